"""``txbroker resolve``: ends transactions that programs left prepared, as their database decided."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager

import click
from rich.console import Group as Stack
from rich.console import RenderableType

from txbroker import create_decision_table
from txbroker.cli.arguments import Parsed, pause
from txbroker.cli.exits import Exit, Failure
from txbroker.cli.invocation import Command, Invocation, pass_invocation
from txbroker.cli.output import emit, facts, json_line
from txbroker.databases.adapters.database import Connector, named
from txbroker.databases.resolver import Resolution, Resolver
from txbroker.databases.urls import connector
from txbroker.errors import Misuse, OutcomeUnknown, StorageUnavailable

VARIABLE = "TXBROKER_DATABASE"
"""The environment variable with the database's URL, by default."""

WAIT = (
    "A waiting transaction is decided when its program commits or rolls back in the database. If that program is gone "
    "or hangs, end its session there (PostgreSQL: pg_stat_activity, 'idle in transaction', pg_terminate_backend; "
    "MySQL: SHOW PROCESSLIST, KILL; SQLite: end the process that has the file open), then resolve again."
)
"""What to do about a transaction that waits."""


@click.command(cls=Command, short_help="End what blocks of `txbroker.atomic` have left prepared.")
@click.option(
    "--database",
    metavar="URL",
    help="postgresql://..., sqlite:///PATH or mysql://..., without a password; or file:PATH or env:NAME, where the URL "
    f"stands. Default env:{VARIABLE}.",
)
@click.option("--watch", is_flag=True, help="Make a pass every --interval, until Ctrl-C.")
@click.option("--once", is_flag=True, help="Make one pass. This is the default.")
@click.option(
    "--interval", type=Parsed("duration", pause), default="10s", help="Time between two passes. Default 10s."
)
@click.option(
    "--create", is_flag=True, help="Make the decision table if it does not exist, and resolve nothing."
)
@click.option(
    "--adopt",
    type=click.Choice(["replacement", "separate"]),
    help="The database is a copy: it replaces the original for good, or both live on.",
)
@pass_invocation
def resolve(
    invocation: Invocation,
    database: str | None,
    watch: bool,
    once: bool,
    interval: int,
    create: bool,
    adopt: str | None,
) -> None:
    """End transactions that blocks of `txbroker.atomic` left prepared, as their database decided.

    Exits with 1 if something is still undecided (a database transaction is open), or contradicted by a forced outcome.
    """
    if watch and (once or create or adopt):
        raise click.UsageError("--watch goes with none of --once, --create and --adopt")
    if database is None and VARIABLE not in os.environ:
        raise click.UsageError(f"Missing option '--database', and {VARIABLE} is not set")
    try:
        open_database = connector(database or f"env:{VARIABLE}")
    except Misuse as error:
        raise Failure(str(error), Exit.USAGE) from error
    if create or adopt:
        identity = make_table(open_database, adopt or "")
        emit(invocation.as_json, {"table": identity}, lambda: f"The decision table is {identity}.")
        return
    with invocation.connect() as broker, Resolver(open_database, broker) as resolver:
        if watch:
            keep_resolving(invocation, resolver, interval / 1_000_000)
        with database_errors():
            found = resolver.resolve()
    emit(invocation.as_json, resolution_json(found), lambda: resolution_text(found))
    if found.waiting or found.contradicted:
        raise click.exceptions.Exit(int(Exit.NO))


@contextmanager
def database_errors() -> Iterator[None]:
    """Turn a driver's error into an exit code: an unreachable database is no fault of the program."""
    try:
        yield
    except Exception as error:
        if not named(error, "Error") or not named(error, "DatabaseError", "InterfaceError"):
            raise
        away = named(error, "OperationalError", "InterfaceError")
        said = str(error).strip().rstrip(".")
        stop = "" if said.endswith(("?", "!")) else "."
        raise Failure(
            f"the database said {type(error).__name__}: {said}{stop} What was not decided waits",
            Exit.UNREACHABLE if away else Exit.REFUSED,
        ) from error


def make_table(open_database: Connector, adopt: str) -> str:
    """Make the decision table, or adopt it."""
    with database_errors():
        database = open_database()
        try:
            return create_decision_table(database, adopt)
        finally:
            database.close()


def keep_resolving(invocation: Invocation, resolver: Resolver, seconds: float) -> None:
    """Make one pass after the other; if something is unreachable, the next pass tries again."""
    while True:
        try:
            with database_errors():
                found = resolver.resolve(patient=True)
        except (Failure, StorageUnavailable, OutcomeUnknown) as error:
            click.echo(f"{error}; trying again in {seconds:g} s", err=True)
            resolver.close_database()
        else:
            if not found.is_quiet:
                text = resolution_json(found)
                click.echo(json_line(text) if invocation.as_json else sentence(found))
        time.sleep(seconds)


def resolution_json(found: Resolution) -> dict[str, object]:
    """Return a pass in JSON."""
    return {
        "committed": [str(xid) for xid in found.committed],
        "rolled_back": [str(xid) for xid in found.rolled_back],
        "waiting": [str(xid) for xid in found.waiting],
        "contradicted": found.contradicted,
        "removed": found.removed,
        "elsewhere": found.elsewhere,
        "delivered": found.outbox.delivered,
        "refused": found.outbox.refused,
    }


def sentence(found: Resolution) -> str:
    """Return a pass on one line."""
    parts = [
        f"{len(found.committed)} committed",
        f"{len(found.rolled_back)} rolled back",
        f"{len(found.waiting)} waiting for an open database transaction",
        f"{len(found.contradicted)} contradicted by force",
        f"{found.removed} rows removed",
        f"{found.elsewhere} of other databases left alone",
        f"{found.outbox.delivered} blocks delivered from the outbox",
        f"{found.outbox.refused} blocks refused for ever (see 'txbroker outbox list')",
    ]
    return ", ".join(part for part in parts if not part.startswith("0 ")) or "nothing was in doubt"


def resolution_text(found: Resolution) -> RenderableType:
    """Return a pass for people."""
    named_ones = [
        (what, str(xid))
        for what, xids in (
            ("committed", found.committed),
            ("rolled back", found.rolled_back),
            ("waiting", found.waiting),
            ("contradicted", found.contradicted),
        )
        for xid in xids
    ]
    text = sentence(found)
    if found.waiting:
        text += f".\n{WAIT}"
    return Stack(facts(named_ones), text) if named_ones else text

"""``txbroker resolve``: ends what programs have left, as their database decided."""

from __future__ import annotations

import time

import click
from rich.console import Group as Stack
from rich.console import RenderableType

from txbroker import create_decision_table
from txbroker.cli.arguments import Parsed, pause
from txbroker.cli.database import database_errors, database_option, opener
from txbroker.cli.exits import Exit, Failure
from txbroker.cli.invocation import Command, Invocation, confirm, pass_invocation
from txbroker.cli.output import count_text, emit, facts, json_line, time_text
from txbroker.databases.adapters.database import Connector
from txbroker.databases.outbox import restored
from txbroker.databases.outbox.restored import SetBack
from txbroker.databases.outbox.table import OutboxTable
from txbroker.databases.resolver import Resolution, Resolver, goes_on
from txbroker.databases.tables.identity import REPLACEMENT, SEPARATE
from txbroker.errors import TxBrokerError

WAIT = (
    "A waiting transaction is decided when its program commits or rolls back in the database. If that program is gone "
    "or hangs, end its session there (PostgreSQL: pg_stat_activity, 'idle in transaction', pg_terminate_backend; "
    "MySQL: SHOW PROCESSLIST, KILL; SQLite: end the process that has the file open), then resolve again."
)
"""What to do about a transaction that waits."""
OF_A_BACKUP = (
    "A restored transaction was prepared when the backup was made that the broker's data are restored from, and the "
    "database has no decision: it was never committed, or it was and all of it was done since. Look for the rows that "
    "belong to it, then end it with 'txbroker transactions commit' or 'rollback'."
)
"""What to do about one that was restored."""


RESTORED = "restored"
"""What ``--adopt`` is told of a database that was set back to a copy of its own."""


@click.command(cls=Command, short_help="End what blocks of `txbroker.atomic` have left.")
@database_option
@click.option("--watch", is_flag=True, help="Make a pass every --interval, until Ctrl-C.")
@click.option("--once", is_flag=True, help="Make one pass. This is the default.")
@click.option(
    "--interval", type=Parsed("duration", pause), default="10s", help="Time between two passes. Default 10s."
)
@click.option("--create", is_flag=True, help="Make the tables if they do not exist, and resolve nothing.")
@click.option(
    "--adopt",
    type=click.Choice([REPLACEMENT, SEPARATE, RESTORED]),
    help="The database is a copy: 'replacement', it replaces the original for good; 'separate', both live on; "
    "'restored', it was set back to a copy of itself, and the broker refuses its outbox (OutboxSetBack).",
)
@click.option(
    "--deliver",
    is_flag=True,
    help="With --adopt restored: deliver the rows of which nobody knows whether they were, some perhaps a second time.",
)
@click.option(
    "--drop",
    is_flag=True,
    help="With --adopt restored: delete those rows, some perhaps never delivered.",
)
@click.option("--yes", is_flag=True, help="With --adopt restored: do not ask.")
@pass_invocation
def resolve(
    invocation: Invocation,
    database: str | None,
    watch: bool,
    once: bool,
    interval: int,
    create: bool,
    adopt: str | None,
    deliver: bool,
    drop: bool,
    yes: bool,
) -> None:
    """End what blocks of `txbroker.atomic` have left, as their database decided.

    Transactions that were left prepared are ended, and messages that were left in the database are delivered. Exits
    with 1 if something is still undecided (a database transaction is open), is contradicted by a forced outcome, or was
    refused for ever.
    """
    if watch and (once or create or adopt):
        raise click.UsageError("--watch goes with none of --once, --create and --adopt")
    if (deliver != drop) != (adopt == RESTORED) or (deliver and drop):
        raise click.UsageError(
            "--adopt restored goes with one of --deliver and --drop, and they only with it"
        )
    open_database = opener(database)
    if create or (adopt and adopt != RESTORED):
        identity = make_table(open_database, adopt or "")
        emit(invocation.as_json, {"table": identity}, lambda: f"The decision table is {identity}.")
        return
    with invocation.connect() as broker, Resolver(open_database, broker) as resolver:
        if adopt:
            adopt_restored(invocation, resolver, drop, yes)
            return
        if watch:
            keep_resolving(invocation, resolver, interval / 1_000_000)
        with database_errors():
            found = resolver.resolve()
    emit(invocation.as_json, resolution_json(found), lambda: resolution_text(found))
    if found.needs_a_person:
        raise click.exceptions.Exit(int(Exit.NO))


def adopt_restored(invocation: Invocation, resolver: Resolver, drop: bool, yes: bool) -> None:
    """Say what the rows are of a database that was set back, after a question if there are any."""
    table, broker = OutboxTable(resolver.connection), resolver.broker
    with database_errors("Nothing was changed"):
        name = resolver.look().name
        found = restored.look(table, broker)
    if found is None:
        emit(
            invocation.as_json,
            {"table": name, "set_back": False},
            lambda: (
                f"The decision table {name} was not set back: the broker takes its outbox as it is. Nothing was "
                "changed."
            ),
        )
        return
    if found.rows:
        what = (
            f"{count_text(found.rows, 'row')} of {count_text(len(found.doubtful), 'stream')}{_between(found)}"
        )
        confirm(
            f"The broker does not know whether {what} were delivered. Rows of blocks that have committed since the "
            "database was set back are among them, unless the programs were stopped.\n"
            + ("Delete them for good?" if drop else "Deliver them, some perhaps a second time?"),
            yes,
        )
    with database_errors("Look whether it is done: run the same command again"):
        restored.adopt(table, broker, found, drop)
    rows = f"{count_text(found.rows, 'row')} of {count_text(len(found.doubtful), 'stream')} that it does not know"
    said = {
        "table": name,
        "set_back": True,
        "generation": {"database": found.before.generation, "broker": found.known, "now": found.generation},
        "rows": found.rows,
        "streams": len(found.doubtful),
        "done": "dropped" if drop else "to be delivered",
    }
    emit(
        invocation.as_json,
        said,
        lambda: (
            f"The decision table {name} was set back: its outbox had generation {found.before.generation}, and the "
            f"broker knew {found.known}. It has {found.generation} now, and is delivered again. "
            + (f"Deleted {rows}." if drop else f"To be delivered: {rows}.")
        ),
    )


def _between(found: SetBack) -> str:
    if found.oldest is None or found.newest is None:
        return ""
    return f", of blocks that ended from {time_text(found.oldest)} to {time_text(found.newest)},"


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
        except (Failure, TxBrokerError) as error:
            if isinstance(error, TxBrokerError) and not goes_on(error):
                raise
            click.echo(f"{error}; trying again in {seconds:g} s", err=True)
            resolver.close_database()
        else:
            if not found.is_quiet:
                text = resolution_json(found)
                click.echo(json_line(text) if invocation.as_json else found.sentence)
        time.sleep(seconds)


def resolution_json(found: Resolution) -> dict[str, object]:
    """Return a pass in JSON."""
    return {
        "committed": [str(xid) for xid in found.committed],
        "rolled_back": [str(xid) for xid in found.rolled_back],
        "waiting": [str(xid) for xid in found.waiting],
        "restored": [str(xid) for xid in found.restored],
        "contradicted": found.contradicted,
        "removed": found.removed,
        "elsewhere": found.elsewhere,
        "delivered": found.outbox.delivered,
        "refused": found.outbox.refused,
        "released": found.outbox.released,
    }


def resolution_text(found: Resolution) -> RenderableType:
    """Return a pass for people."""
    named_ones = [
        (what, str(xid))
        for what, xids in (
            ("committed", found.committed),
            ("rolled back", found.rolled_back),
            ("waiting", found.waiting),
            ("restored", found.restored),
            ("contradicted", found.contradicted),
        )
        for xid in xids
    ]
    text = found.sentence
    if found.waiting:
        text += f".\n{WAIT}"
    if found.restored:
        text += f".\n{OF_A_BACKUP}"
    return Stack(facts(named_ones), text) if named_ones else text

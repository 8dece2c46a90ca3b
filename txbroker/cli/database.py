"""What commands about a database share: the option ``--database``, and the exit codes of its driver's errors."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

import click

from txbroker.cli.exits import Exit, Failure
from txbroker.databases.adapters.database import Connector, named
from txbroker.databases.urls import connector
from txbroker.errors import Misuse

VARIABLE = "TXBROKER_DATABASE"
"""The environment variable with the database's URL, by default."""

database_option = click.option(
    "--database",
    metavar="URL",
    help="postgresql://..., sqlite:///PATH or mysql://..., without a password; or file:PATH or env:NAME, where the URL "
    f"stands. Default env:{VARIABLE}.",
)


def opener(database: str | None) -> Connector:
    """Return what opens connections to the database of the option; exits with 2 if it cannot be understood."""
    if database is None and VARIABLE not in os.environ:
        raise click.UsageError(f"Missing option '--database', and {VARIABLE} is not set")
    try:
        return connector(database or f"env:{VARIABLE}")
    except Misuse as error:
        raise Failure(str(error), Exit.USAGE) from error


@contextmanager
def database_errors(state: str = "What was not decided waits") -> Iterator[None]:
    """Turn a driver's error into an exit code: an unreachable database is no fault of the program. ``state`` says what
    state things are in then.
    """
    try:
        yield
    except Exception as error:
        if not named(error, "Error") or not named(error, "DatabaseError", "InterfaceError"):
            raise
        away = named(error, "OperationalError", "InterfaceError")
        said = str(error).strip().rstrip(".")
        stop = "" if said.endswith(("?", "!")) else "."
        raise Failure(
            f"the database said {type(error).__name__}: {said}{stop} {state}",
            Exit.UNREACHABLE if away else Exit.REFUSED,
        ) from error

"""``txbroker outbox``: shows what lies in the outbox of a database, and ends what the broker has refused."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final, NamedTuple

import click

from txbroker.cli.arguments import Parsed
from txbroker.cli.clock import now_micros
from txbroker.cli.database import database_errors, database_option, opener
from txbroker.cli.exits import WORST, Exit, Failure, exit_for
from txbroker.cli.invocation import Group, Invocation, confirm, pass_invocation
from txbroker.cli.outbox_description import (
    WIDTH,
    list_text,
    refused_json,
    row_json,
    row_text,
    stream_json,
)
from txbroker.cli.output import count_text, emit, table, visible
from txbroker.databases.outbox import contents
from txbroker.databases.outbox.contents import PATIENCE, Place
from txbroker.databases.outbox.keeper import Keeper
from txbroker.databases.resolver import Resolver
from txbroker.errors import TxBrokerError

if TYPE_CHECKING:
    from txbroker import Connection

MOST = 100
"""Refused rows, or messages of a row, that are shown without ``--limit``."""

STATE = "Nothing was changed"
LOOK = "Rows that are told above are done, the others may be: look ('txbroker outbox list')"
"""What is told with a driver's error of commands that only read, and of those that change something."""

AGAIN = "now number 1 of"
GONE = "is no refused row any more"

_STREAM: Final = re.compile("[0-9a-f]{32}")


class Ended(NamedTuple):
    """What became of one refused row. ``code`` is OK if what was asked for was done."""

    stream: str
    number: int
    result: str
    code: Exit = Exit.OK
    again: str | None = None
    """The stream under which the row is now, if it is tried again."""


def stream_name(text: str) -> str:
    """Return the name of a stream; raises ``ValueError``."""
    if not _STREAM.fullmatch(text):
        raise ValueError(
            f"{text!r} is no stream: 32 digits 0-9 and a-f, as 'txbroker outbox list' shows them"
        )
    return text


STREAM = Parsed("stream", stream_name)
stream_argument = click.argument("stream", type=STREAM)
number_argument = click.argument("number", type=click.IntRange(1))
chosen_stream = click.argument("stream", type=STREAM, required=False)
chosen_number = click.argument("number", type=click.IntRange(1), required=False)


@click.group(cls=Group, short_help="Show what lies in the outbox of a database, end what was refused.")
def outbox() -> None:
    """Show what lies in the outbox of a database, and end what the broker has refused.

    The outbox has the messages of blocks of `txbroker.atomic` that only send, until the broker has them.
    """


@contextmanager
def opened(
    invocation: Invocation, database: str | None, state: str = STATE
) -> Iterator[tuple[Keeper, Connection]]:
    """Return the keeper of the database's outbox, and the broker, for the length of a ``with``."""
    open_database = opener(database)
    with invocation.connect() as broker, Resolver(open_database, broker) as resolver, database_errors(state):
        resolver.look()
        keeper = resolver.keeper
        assert keeper is not None, "the kinds of databases that have URLs have outboxes"
        yield keeper, broker


# -- list -----------------------------------------------------------------------------------------


@outbox.command("list", short_help="List the streams that have rows, and the refused rows.")
@database_option
@click.option("--limit", type=click.IntRange(1), default=MOST, help=f"Show so many refused rows ({MOST}).")
@pass_invocation
def list_rows(invocation: Invocation, database: str | None, limit: int) -> None:
    """List the streams that have rows in the outbox, and the rows that the broker has refused for ever, oldest first.

    A row is deleted some time after it was delivered: those that are delivered wait for nothing.
    """
    with opened(invocation, database) as (keeper, broker):
        rows = keeper.table
        streams = contents.streams(rows, broker)
        keys = rows.refused(broker.identity)
        found = [contents.refused(rows, *key) for key in keys[:limit]]
        refused = [each for each in found if each is not None]
        elsewhere = rows.elsewhere(broker.identity)
        name = rows.connection.look().name
    now = now_micros()
    said = {
        "table": name,
        "streams": [stream_json(each) for each in streams],
        "refused": [refused_json(each) for each in refused],
        "refused_rows": len(keys),
        "elsewhere": [{"broker": identity, "rows": count} for identity, count in elsewhere],
    }
    emit(invocation.as_json, said, lambda: list_text(streams, refused, len(keys), elsewhere, now))


# -- show -----------------------------------------------------------------------------------------


@outbox.command(short_help="Show a row, refused or not, with its messages.")
@stream_argument
@number_argument
@database_option
@click.option("--limit", type=click.IntRange(1), default=MOST, help=f"Show so many messages ({MOST}).")
@pass_invocation
def show(invocation: Invocation, stream: str, number: int, database: str | None, limit: int) -> None:
    """Show the row with NUMBER of STREAM, of the outbox or refused: when its block ended, and its messages.

    Values are shortened; with --json they are whole, and all messages are shown.
    """
    with opened(invocation, database) as (keeper, broker):
        found = contents.row(keeper.table, broker, stream, number)
    if found is None:
        raise _not_there(stream, number, "neither in the outbox nor among the refused rows")
    emit(invocation.as_json, row_json(found), lambda: row_text(found, limit))


def _not_there(stream: str, number: int, where: str) -> Failure:
    return Failure(
        f"number {number} of stream {stream} is {where}: it was delivered and deleted, was dropped or tried again, or "
        f"never was. {STATE}. 'txbroker outbox list' shows what there is",
        Exit.NO,
    )


# -- retry and drop -------------------------------------------------------------------------------


@outbox.command(short_help="Have refused rows delivered after all.")
@chosen_stream
@chosen_number
@click.option("--all", "every", is_flag=True, help="All refused rows, oldest first.")
@database_option
@pass_invocation
def retry(
    invocation: Invocation, stream: str | None, number: int | None, every: bool, database: str | None
) -> None:
    """Put the refused row with NUMBER of STREAM, or --all, into the outbox again, and deliver it at once.

    What the broker refuses for ever is refused again, under another stream; what it cannot take now stays in the
    outbox, and is delivered by programs and `txbroker resolve`. Messages come behind those that were sent since.
    """
    _check_choice(stream, number, every)
    with told(invocation, "delivered") as done, opened(invocation, database, LOOK) as (keeper, broker):
        for key in _chosen(keeper, broker, stream, number):
            done.append(_retried(keeper, *key))
            if done[-1].code in (Exit.UNREACHABLE, Exit.UNKNOWN):
                break


def _retried(keeper: Keeper, stream: str, number: int) -> Ended:
    try:
        found = contents.retry(keeper, stream, number)
    except TxBrokerError as error:
        return Ended(stream, number, f"nothing was changed: {type(error).__name__}: {error}", exit_for(error))
    if found is None:
        return Ended(stream, number, GONE, Exit.NO)
    if found.place is Place.REFUSED:
        return Ended(stream, number, f"refused again: {found.error}", Exit.REFUSED, found.stream)
    if found.place is Place.UNDELIVERED:
        code = Exit.UNREACHABLE if found.error is None else exit_for(found.error)
        return Ended(stream, number, f"in the outbox, not delivered yet: {found.error}", code, found.stream)
    return Ended(stream, number, "delivered")


@outbox.command(short_help="Delete refused rows and their messages.")
@chosen_stream
@chosen_number
@click.option("--all", "every", is_flag=True, help="All refused rows.")
@click.option("--yes", is_flag=True, help="Do not ask.")
@database_option
@pass_invocation
def drop(
    invocation: Invocation,
    stream: str | None,
    number: int | None,
    every: bool,
    yes: bool,
    database: str | None,
) -> None:
    """Delete the refused row with NUMBER of STREAM, or --all, for good: its messages are never sent.

    What its block wrote in the database stays.
    """
    _check_choice(stream, number, every)
    with told(invocation, "dropped") as done, opened(invocation, database, LOOK) as (keeper, broker):
        keys = _chosen(keeper, broker, stream, number)
        if keys:
            confirm(_question(keeper, keys), yes)
        for key in keys:
            was_there = keeper.table.drop(*key, PATIENCE)
            said = ("dropped", Exit.OK) if was_there else (GONE, Exit.NO)
            done.append(Ended(*key, *said))


def _question(keeper: Keeper, keys: list[tuple[str, int]]) -> str:
    if len(keys) > 1:
        return f"Delete {len(keys):,} refused rows and their messages for good?"
    [(stream, number)] = keys
    found = contents.refused(keeper.table, stream, number)
    what = "its messages"
    if found is not None and found.runs:
        what = f"{count_text(found.messages, 'message')} for {', '.join(map(visible, found.topics))}"
    return f"Delete number {number} of stream {stream}, with {what}, for good?"


def _check_choice(stream: str | None, number: int | None, every: bool) -> None:
    if every != (stream is None) or (stream is None) != (number is None):
        raise click.UsageError("say STREAM and NUMBER of a refused row, or --all")


def _chosen(
    keeper: Keeper, broker: Connection, stream: str | None, number: int | None
) -> list[tuple[str, int]]:
    """Return the keys of the refused rows that are meant; exits with 1 if there is no such row."""
    if stream is None or number is None:
        return keeper.table.refused(broker.identity)
    if keeper.table.refused_row(stream, number) is None:
        raise _not_there(stream, number, "not among the refused rows")
    return [(stream, number)]


@contextmanager
def told(invocation: Invocation, participle: str) -> Iterator[list[Ended]]:
    """Print what became of each row, also if the rest could not be tried; fail with the code of the most urgent
    failure.
    """
    done = list[Ended]()
    try:
        yield done
    except BaseException:
        if done:
            _tell(invocation, done)
        raise
    _tell(invocation, done)
    codes = {each.code for each in done} - {Exit.OK}
    if codes:
        failed = sum(each.code is not Exit.OK for each in done)
        raise Failure(
            f"{len(done) - failed:,} of {count_text(len(done), 'row')} {participle}, {failed:,} not; each is told "
            "above",
            next(each for each in WORST if each in codes),
        )


def _tell(invocation: Invocation, done: Sequence[Ended]) -> None:
    said = [
        {
            "stream": each.stream,
            "number": each.number,
            "done": each.code is Exit.OK,
            "result": each.result,
            "now": each.again,
        }
        for each in done
    ]
    columns, least = ["stream", "number", "result"], {"stream": WIDTH}
    rows: list[tuple[object, ...]] = [each[:3] for each in done]
    if any(each.again for each in done):
        columns, least = [*columns, AGAIN], {**least, AGAIN: WIDTH}
        rows = [(*each[:3], each.again) for each in done]
    emit(invocation.as_json, said, lambda: table(columns, rows, "No row is refused.", least=least))

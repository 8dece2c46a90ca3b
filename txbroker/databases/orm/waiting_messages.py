"""Messages that wait in the program for the commit of an ORM's transaction: ``carry`` and Django's ``send``.

They wait because of savepoints: messages that were sent in a savepoint that is rolled back are dropped, and a broker's
transaction has no savepoints. So they are bounded, by default by :data:`MAX_BYTES`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import NamedTuple, cast

from txbroker import errors
from txbroker.client.blocking import Connection
from txbroker.client.loop.waiting import Waits
from txbroker.databases.adapters.adapter import run
from txbroker.databases.adapters.database import Database
from txbroker.databases.blocking import Atomic, BlockingSide
from txbroker.databases.orm.wrapped import WrappedDatabase
from txbroker.databases.outbox.terms import AUTO, OutboxTerms
from txbroker.databases.protocol import Deciding

MAX_BYTES = 16 * 1024 * 1024
"""How many bytes may wait in one transaction: values, keys and headers."""

Broker = Connection | Callable[[], Connection]
"""A connection, or a function that returns one when it is needed, for example after a fork."""


def check_room(taken: int, waits: Waits, bound: int) -> None:
    """Raise BufferFull if a message, or one to be taken back, does not fit beside ``taken`` bytes."""
    if taken + waits.size > bound:
        raise errors.BufferFull(
            f"{taken + waits.size} bytes of messages would wait for this transaction's commit, {bound} are allowed: "
            "nothing was sent, and the transaction is as it was. Use smaller transactions, a greater max_bytes, or "
            "txbroker.atomic, which sends at once"
        )


class Terms(NamedTuple):
    """The options of blocks; see :func:`txbroker.atomic`."""

    application: str = ""
    wait: str = "decision"
    timeout: float | None = None
    outbox: OutboxTerms = AUTO


def block(database: WrappedDatabase, broker: Broker, terms: Terms) -> Atomic:
    """Return a block that is not entered yet."""
    connection = broker if isinstance(broker, Connection) else broker()
    side = BlockingSide(connection, terms.wait, terms.timeout, terms.outbox)
    return Atomic(Deciding(cast(Database, database), side, terms.application), side, None)


def commit_with(atomic: Atomic, waiting: Iterable[Waits]) -> None:
    """Decide, prepare, commit and tell the broker: the last steps. Raises as the end of a block does.

    After it has raised, the database is rolled back, or the error is ``OutcomeUnknown``.
    """
    if atomic.xid is None:
        try:
            atomic.__enter__()
        except BaseException as error:
            run(atomic.deciding.roll_back_database(error))
            raise
    try:
        for each in waiting:
            each.carry_out(atomic)
    except BaseException as error:
        atomic.__exit__(type(error), error, error.__traceback__)
        raise
    atomic.__exit__(None, None, None)

"""Rows of an outbox as a program leaves them that dies after COMMIT, put there by hand; and generations set back."""

import contextlib
import time

from journal.formats import frame
from txbroker.databases.adapters.adapter import run
from txbroker.databases.outbox import payload
from txbroker.databases.outbox.table import OutboxTable
from txbroker.databases.tables.resolver_connection import ResolverConnection


def stream(number):
    """The name of a stream."""
    return f"{number:032x}"


def packed(topic, *values, partition=0, partitions=1, headers=None, at=None):
    """A payload with a message for each value; ``at`` is now, by default."""
    now = time.time_ns() // 1000
    frames = b"".join(frame.encode(value, now, b"key", headers) for value in values)
    run = payload.Run(topic, partition, partitions, len(frames))
    return payload.pack(now if at is None else at, [run], frames)


@contextlib.contextmanager
def outbox_table(opens):
    """The outbox, over a connection of its own."""
    connection = ResolverConnection(opens)
    try:
        connection.look()
        yield OutboxTable(connection)
    finally:
        connection.close()


def leave(opens, broker, name, number, data):
    """A row that nobody has delivered."""
    with outbox_table(opens) as table:
        table.mark(name, number, broker.identity, data, 5.0)


def leave_refused(opens, broker, name, number, data, error="UnknownTopic: there is no topic of that name"):
    """A row that the broker has refused for ever."""
    leave(opens, broker, name, number, data)
    with outbox_table(opens) as table:
        table.refuse(name, number, error, 5.0)


def identity_text(opens):
    """The identity row."""
    with outbox_table(opens) as table:
        return table.connection.read_identity().text


def set_generation(opens, text):
    """Have the identity row say what it said before."""
    with outbox_table(opens) as table, table.connection.transaction(5.0) as database:
        run(database.execute(database.update_identity, (text,)))

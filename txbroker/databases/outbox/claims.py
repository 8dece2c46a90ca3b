"""Claims and releases of streams, with the generation that their decision table has on disk (decision 0048).

Others raise the generation in the database first, and tell the broker then. So a generation that is lower than the
broker's may only have been read too early: it is read again, and if it is still lower, the database was set back.
"""

from __future__ import annotations

from txbroker import errors
from txbroker.client.blocking import Connection
from txbroker.client.operations.streams import claim_stream, release_stream
from txbroker.databases.tables.resolver_connection import ResolverConnection
from txbroker.wire.messages import StreamHeld


def claim(connection: ResolverConnection, broker: Connection, stream: bytes, patience: float) -> StreamHeld:
    """Become the holder of a stream.

    Raises OutboxSetBack if the database was set back, LimitExceeded if there are too many streams.
    """
    while True:
        generation = connection.generation(patience)
        try:
            return broker.run(claim_stream(broker.core, stream, connection.name, generation))
        except errors.OutboxSetBack as error:
            check(connection, error)


def release(
    connection: ResolverConnection,
    broker: Connection,
    stream: bytes,
    epoch: bytes,
    last: int,
    generation: int,
    patience: float,
) -> int:
    """Have a stream forgotten whose rows up to ``last`` are gone; return the generation that was told.

    ``generation`` was forced with the deletion, or after it. Raises OutboxSetBack, StreamFenced, StreamOutOfOrder.
    """
    while True:
        try:
            broker.run(release_stream(broker.core, stream, epoch, last, generation))
            return generation
        except errors.OutboxSetBack as error:
            check(connection, error)
        generation = connection.generation(patience)


def check(connection: ResolverConnection, error: errors.OutboxSetBack) -> None:
    """Raise OutboxSetBack if the generation is still lower than the broker's, which ``error`` has."""
    found = connection.read_identity()
    if found.generation < error.generation:
        raise errors.OutboxSetBack(
            f"the database of the decision table {found.name} was set back to a copy: its outbox has generation "
            f"{found.generation}, and the broker has been told {error.generation} before. Rows may be there again "
            "whose messages were delivered, so nothing of this outbox is delivered, and nothing was changed; blocks "
            "still commit. Stop the programs, then say what those rows are: 'txbroker resolve --database URL --adopt "
            "restored --drop' deletes those that may have been delivered, '--deliver' delivers them, some perhaps a "
            "second time",
            error.generation,
        ) from error

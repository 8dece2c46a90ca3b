"""A database that was set back to a copy: which rows of its outbox are doubtful, and what a person says of them.

Its generation is lower than the broker knows (decision 0048). Streams may have been released since the copy was taken,
so of a row whose stream the broker does not know nobody can tell whether it was delivered. Rows of streams that the
broker knows are not doubtful: those up to its last number are delivered, those above are not.
"""

from __future__ import annotations

import secrets
from typing import NamedTuple

from journal.records.stream_entries import STREAM_BYTES
from txbroker import errors
from txbroker.client.blocking import Connection
from txbroker.client.operations.streams import list_streams
from txbroker.databases.outbox import claims
from txbroker.databases.outbox.contents import PATIENCE, ended
from txbroker.databases.outbox.table import OutboxTable
from txbroker.databases.tables.identity import Identity


class SetBack(NamedTuple):
    """A database that was set back. ``known`` is the generation that the broker knows of the outbox ``before``.

    ``doubtful`` has the streams of which the broker knows nothing, with their highest numbers, and ``delivered`` those
    that it knows and that have rows up to their last numbers, with these. ``rows`` counts the doubtful rows;
    ``oldest`` and ``newest`` say when the first and the last of their blocks ended, in µs since 1970 UTC by the
    programs' clocks (None: unknown).
    """

    before: Identity
    known: int
    doubtful: dict[str, int]
    delivered: dict[str, int]
    rows: int
    oldest: int | None
    newest: int | None

    @property
    def generation(self) -> int:
        """The generation that the outbox has once it is adopted."""
        return self.known + 1


def look(table: OutboxTable, broker: Connection) -> SetBack | None:
    """Return what was set back; None if nothing was, because the broker takes a claim with the database's generation.

    The claim is of a stream that nobody uses, and is released at once.
    """
    connection, stream = table.connection, secrets.token_bytes(STREAM_BYTES)
    try:
        held = claims.claim(connection, broker, stream, PATIENCE)
    except errors.OutboxSetBack as error:
        before, known = connection.read_identity(), error.generation
    else:
        generation = connection.generation(PATIENCE)
        claims.release(connection, broker, stream, held.epoch, held.last, generation, PATIENCE)
        return None
    lasts = {info.stream.hex(): info.last for info in broker.run(list_streams(broker.core, before.name))}
    found = table.streams(broker.identity)
    doubtful = [rows for rows in found if rows.stream not in lasts]
    times = [
        at
        for rows in doubtful
        for number in (rows.lowest, rows.highest)
        if (at := ended(table, rows.stream, number)) is not None
    ]
    return SetBack(
        before,
        known,
        {rows.stream: rows.highest for rows in doubtful},
        {rows.stream: last for rows in found if rows.lowest <= (last := lasts.get(rows.stream, 0))},
        sum(rows.rows for rows in doubtful),
        min(times, default=None),
        max(times, default=None),
    )


def adopt(table: OutboxTable, broker: Connection, found: SetBack, drop: bool) -> None:
    """Have the outbox delivered again: with ``drop`` without the doubtful rows, which are deleted.

    Raises Misuse, having changed nothing, if the generation was raised meanwhile.
    """
    lasts = {**found.delivered, **found.doubtful} if drop else {}
    if not table.raise_generation(found.before, found.generation, lasts, PATIENCE):
        raise errors.Misuse(
            f"the decision table {found.before.name} has another generation than {found.before.generation} now: "
            "somebody else has adopted it meanwhile, or it was set back once more; nothing was changed. Look again"
        )
    if look(table, broker) is not None:
        raise errors.OutboxSetBack(
            f"the outbox of the decision table {found.before.name} has generation {found.generation} now, and the "
            "broker has been told a higher one meanwhile, by a program that still uses the database from before; "
            "rows were not changed since. Stop that program, then run the same command again",
            found.generation,
        )

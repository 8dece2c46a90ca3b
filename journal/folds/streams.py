"""The fold of streams: how far each has been delivered, and who may go on with it (decision 0048).

A stream is the numbered rows that one connection to a database leaves in an outbox. Here is only what a repetition is
known by: the highest number that was delivered, and the epoch under which the next one comes. A stream that is not here
has no rows that were delivered.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, Final

import msgspec
from zope.interface import implementer

from journal.formats.checkpoint_rows import Count, Fact, RowReader
from journal.interfaces import ICommitFold
from journal.records.record import (
    Nonce,
    StreamClaimed,
    StreamReleased,
    TransactionCommitted,
)
from journal.records.stream_entries import StreamId, TableName

_LSN_BYTES: Final = 8


class Stream(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """A stream, also as its row in a checkpoint.

    ``claim`` is the LSN of the newest claim, ``nonce`` that of the start in which it was made; ``born`` is the epoch of
    the claim with which the stream became known. ``used`` is the journal time of the last claim or delivery.
    """

    stream: StreamId
    table: TableName
    claim: Count
    nonce: Nonce
    last: Count
    used: int
    born: bytes
    client: str

    @property
    def epoch(self) -> bytes:
        """What the holder shows: the claim's LSN and the start's nonce."""
        return epoch_of(self.claim, self.nonce)


class HeadRow(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """The part of a checkpoint beside the streams."""

    generations: list[tuple[TableName, Count]]


def epoch_of(lsn: int, nonce: bytes) -> bytes:
    """Return the epoch of the claim with that LSN. A copy of the data counts LSNs anew, but has other nonces."""
    return lsn.to_bytes(_LSN_BYTES) + nonce


_NOBODY: Final[frozenset[Any]] = frozenset()


@implementer(ICommitFold)
class StreamsFold:
    """All known streams by their ids, those that were claimed last at the end; and the generations of their tables."""

    name = "streams"
    handles: tuple[type, ...] = (StreamClaimed, StreamReleased, TransactionCommitted)

    def __init__(self) -> None:
        self.streams: dict[bytes, Stream] = {}
        self.generations: dict[str, int] = {}
        """The highest generation that was told of each table."""

    def concerned(self) -> frozenset[Any]:
        """Return no transaction: a delivery is told by its record alone; see :class:`ICommitFold`."""
        return _NOBODY

    def conflict(self, positions: Any, number: Any = None) -> None:
        """Return nothing: no stream stands against positions of groups."""

    def apply(self, lsn: int, record: Any, data: bytes | memoryview) -> None:  # noqa: ARG002
        """Apply one record to the state; asserts that the record continues it."""
        if type(record) is TransactionCommitted:
            if record.settles and (delivered := record.delivered) is not None:
                self._delivered(delivered.stream, delivered.claim, delivered.number, record.at)
        elif type(record) is StreamClaimed:
            self._claimed(lsn, record)
        elif type(record) is StreamReleased:
            stream = self.streams.pop(record.stream)
            self._tell(stream.table, record.generation)

    def _claimed(self, lsn: int, record: StreamClaimed) -> None:
        known = self.streams.pop(record.stream, None)
        assert known is None or known.table == record.table, (
            f"it claims stream {record.stream.hex()} for table {record.table}, which is of table {known.table}"
        )
        epoch = epoch_of(lsn, record.nonce)
        last, born = (0, epoch) if known is None else (known.last, known.born)
        self.streams[record.stream] = Stream(
            record.stream, record.table, lsn, record.nonce, last, record.at, born, record.client
        )
        self._tell(record.table, record.generation)

    def _delivered(self, stream: bytes, claim: int, number: int, at: int) -> None:
        known = self.streams[stream]
        assert known.claim == claim, (
            f"it delivers for the claim at LSN {claim} of stream {stream.hex()}, the newest is at LSN {known.claim}"
        )
        assert number > known.last, (
            f"it delivers {number} of stream {stream.hex()}, {known.last} was the last"
        )
        self.streams[stream] = msgspec.structs.replace(known, last=number, used=at)

    def _tell(self, table: str, generation: int) -> None:
        before = self.generations.get(table, 0)
        assert generation >= before, f"it tells generation {generation} of table {table}, which had {before}"
        self.generations[table] = generation

    def snapshot(self) -> Iterator[Any]:
        """Return the generations, then one row per stream: the streams themselves, which do not change."""
        return iter([HeadRow(list(self.generations.items())), *self.streams.values()])

    @staticmethod
    def read(rows: RowReader) -> None:
        """Read the rows of a checkpoint."""
        rows.take(HeadRow)
        rows.rest(Stream)

    def facts(self) -> Iterator[tuple[Fact, object]]:
        """Yield the facts of each table and stream."""
        for table, generation in self.generations.items():
            yield Fact(f"the generation of decision table {table}"), generation
        for stream in self.streams.values():
            facts = (
                stream.table,
                stream.epoch.hex(),
                stream.last,
                stream.used,
                stream.born.hex(),
                stream.client,
            )
            yield Fact(f"stream {stream.stream.hex()} (table, epoch, last, used, born, client)"), facts

    def restore(self, rows: Iterable[Any]) -> None:
        """Replace the state by the rows of a :meth:`snapshot`."""
        head, *streams = rows
        self.generations = dict(head.generations)
        self.streams = {stream.stream: stream for stream in streams}

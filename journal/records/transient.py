"""Transient queues: their numbers, and what of a record is not about them (decision 0068).

A transient queue is in no file that a start reads. Records are applied with all that they say of it, and written to the
journal without that: a start finds everything as if the queue had never been.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Iterable, Mapping
from typing import Any, Final, Protocol, TypeVar

from crc32c import crc32c
from msgspec.structs import replace

from journal.constants import SLICED_COMMIT_BYTES
from journal.formats.frame import unstamped
from journal.records.copies import weight_of_runs
from journal.records.group_entries import GroupPositions, Settled
from journal.records.queue_entries import QUEUE_GROUP, QUEUE_TOPIC_PREFIX
from journal.records.record import (
    AnyRecord,
    Bound,
    LogStartMoved,
    OffsetsCommitted,
    Placement,
    Published,
    Run,
    TopicCreated,
    TopicDeleted,
    TransactionAdded,
    TransactionCommitted,
    TransactionOffsetsAdded,
    TransactionPrepared,
    Unbound,
    slices,
)

FIRST_TRANSIENT: Final = 1 << 62
"""The partition numbers of transient queues begin here. No other partition gets such a number."""
NUMBERS_OF_START: Final = 1 << 30
"""How many of these each start has for itself: a client that names one of an earlier start never means a new one."""
MOST_RUNS: Final = 256
"""Messages that go so many different ways are applied in slices: an empty log is made ready in 80 µs."""

Names = Container[str]
"""The names of the transient queues that are there."""
Data = bytes | memoryview
_WithRuns = TransactionAdded | TransactionPrepared | TransactionCommitted


def first_number(start: int) -> int:
    """Return the first number of a transient queue of that start."""
    return FIRST_TRANSIENT + start * NUMBERS_OF_START


def is_transient(partition: int) -> bool:
    """Return whether a partition is a transient queue's."""
    return partition >= FIRST_TRANSIENT


def durable_first(partitions: list[int]) -> list[int]:
    """Return partitions with those of transient queues last: what a run leaves in the journal is its beginning."""
    return sorted(partitions, key=is_transient)


class _Routed(Protocol):
    """A run of a record, or the entry that a transaction keeps of one: ``also`` are partitions behind the first."""

    @property
    def partition(self) -> int: ...

    @property
    def also(self) -> list[int]: ...


_R = TypeVar("_R", bound=_Routed)


def durable_run(run: _R) -> _R:
    """Return a run, or its entry, without transient queues. One that goes only to these goes nowhere: its frames stay,
    because the checksum of a transaction, and the sequence of a producer, are about them, too.
    """
    partition, also = run.partition, run.also
    if is_transient(partition):
        partition, also = 0, []
    elif also and is_transient(also[-1]):
        also = [each for each in also if not is_transient(each)]
    else:
        return run
    return replace(run, partition=partition, also=also)  # type: ignore[type-var]  # both are structs


def _has_transient_targets(runs: list[Run]) -> bool:
    return any(is_transient(run.also[-1] if run.also else run.partition) for run in runs)


def _durable_contents(record: _WithRuns, data: Data) -> tuple[list[Run], Data]:
    """Return the runs of a transaction's record without transient queues, and their frames. Those that go nowhere are
    not stamped, and their checksum is of all of them in the record, as in every record.
    """
    runs, pieces, checksum = list[Run](), list[Data](), 0
    for run, frames in slices(record, data):
        kept, piece = durable_run(run), frames
        if not kept.partition:
            piece = unstamped(frames)
            checksum = crc32c(piece, checksum)
            kept = replace(kept, checksum=checksum)
        runs.append(kept)
        pieces.append(piece)
    return runs, b"".join(pieces)


def durable_placements(placements: Iterable[Placement]) -> list[Placement]:
    """Return the places in other logs than those of transient queues."""
    return [each for each in placements if not is_transient(each.partition)]


def durable_settled(settled: Iterable[Settled]) -> list[Settled]:
    """Return what is settled elsewhere than in transient queues."""
    return [each for each in settled if not is_transient(each.partition)]


def _durable_part_of(positions: GroupPositions) -> GroupPositions:
    """Return what a group finishes elsewhere than in transient queues; it may be nothing."""
    if any(is_transient(each.partition) for each in positions.settled):
        return replace(positions, settled=durable_settled(positions.settled))
    return positions


def durable_positions(positions: Iterable[GroupPositions]) -> list[GroupPositions]:
    """Return what groups finish elsewhere than in transient queues, without what is nothing in queues."""
    found = map(_durable_part_of, positions)
    return [each for each in found if each.offsets or each.settled or each.group != QUEUE_GROUP]


def is_volatile(record: Published, size: int) -> bool:
    """Return whether messages with ``size`` bytes are in no journal: they are in transient queues alone, no producer
    could send them again, and they are applied in one turn. What is applied in slices needs an LSN of its own, up to
    which nothing of it is shown, and where its frames can be read again.
    """
    if record.producer_id or record.ids or len(record.runs) > MOST_RUNS:
        return False
    runs = record.runs
    if any(run.partition and not is_transient(run.partition) for run in runs):
        return False
    most = max([len(run.targets) for run in runs], default=0)
    return most == 1 or (most > 1 and weight_of_runs(runs, size) <= SLICED_COMMIT_BYTES)


def durable_part(record: AnyRecord, data: Data, queues: Names) -> tuple[AnyRecord, Data] | None:
    """Return what the journal gets of a record and its data; None for nothing. ``queues`` are the transient ones."""
    if isinstance(record, _WithRuns):
        if _has_transient_targets(record.runs):
            runs, data = _durable_contents(record, data)
            record = replace(record, runs=runs)
        return _settling(record), data
    if type(record) is Published:
        return None if is_volatile(record, len(data)) else (_published(record), data)
    part = _PARTS.get(type(record))
    kept = record if part is None else part(record, queues)
    return None if kept is None else (kept, data)


def is_unwritten(record: AnyRecord, queues: Names) -> bool:
    """Return whether the journal gets nothing of a record, of a kind that has no messages."""
    part = _PARTS.get(type(record))
    return part is not None and part(record, queues) is None


def _settling(record: _WithRuns) -> AnyRecord:
    """Return a record without what it settles in transient queues, and without its places there."""
    if type(record) is TransactionAdded:
        return record
    if type(record) is TransactionPrepared:
        positions = list(map(_durable_part_of, record.positions))
        return record if positions == record.positions else replace(record, positions=positions)
    assert type(record) is TransactionCommitted
    placements = durable_placements(record.placements)
    settles = [_durable_part_of(each) if type(each) is GroupPositions else each for each in record.settles]
    if len(placements) == len(record.placements) and settles == record.settles:
        return record
    return replace(record, placements=placements, settles=settles)


def _created(record: TopicCreated, queues: Names) -> AnyRecord | None:  # noqa: ARG001
    return None if is_transient(record.first_partition) else record


def _deleted(record: TopicDeleted, queues: Names) -> AnyRecord | None:  # noqa: ARG001
    number = record.topic.removeprefix(QUEUE_TOPIC_PREFIX)
    return None if number != record.topic and is_transient(int(number)) else record


def _moved(record: LogStartMoved, queues: Names) -> AnyRecord | None:  # noqa: ARG001
    return None if is_transient(record.partition) else record


def _bound(record: Bound | Unbound, queues: Names) -> AnyRecord | None:
    binding = record.binding
    return None if not binding.to_exchange and binding.destination in queues else record


def _published(record: Published) -> Published:
    if not _has_transient_targets(record.runs):
        return record
    runs = list(map(durable_run, record.runs))
    return replace(record, runs=runs, placements=durable_placements(record.placements))


def _offsets(record: OffsetsCommitted, queues: Names) -> AnyRecord | None:  # noqa: ARG001
    settled = durable_settled(record.settled)
    if len(settled) == len(record.settled):
        return record
    return replace(record, settled=settled) if settled or record.offsets else None


def _offsets_added(record: TransactionOffsetsAdded, queues: Names) -> AnyRecord:  # noqa: ARG001
    settled = durable_settled(record.settled)
    return record if len(settled) == len(record.settled) else replace(record, settled=settled)


_PARTS: Final[Mapping[type, Callable[[Any, Names], AnyRecord | None]]] = {
    TopicCreated: _created,
    TopicDeleted: _deleted,
    LogStartMoved: _moved,
    Bound: _bound,
    Unbound: _bound,
    OffsetsCommitted: _offsets,
    TransactionOffsetsAdded: _offsets_added,
}
"""The other kinds of records that may be about transient queues."""

"""The check of the schedule in the newest checkpoint: each message that waits is in the timetable, once, at its time;
and what the journal's records have placed is what was to be placed.

The timetable could be made anew from the logs, and no record tells of it: if it and the logs disagree, messages come
early, or never.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import suppress
from typing import NamedTuple

from journal.errors import InvalidFrame
from journal.folds.schedule import ScheduleFold
from journal.formats import filenames
from journal.formats.checkpoint import Checkpoint
from journal.formats.envelope import SCHEDULE_TOPIC, Clock, Envelope, envelopes, id_of, place_of
from journal.formats.frame import HEADER, walk
from journal.formats.store_state import StoreState
from journal.interfaces import IFilesystem
from journal.log.segment import segments_of
from journal.records.record import Due, Published, sends, slices
from journal.wal.reader import JournalEntry
from journal.walks.findings import Affected, Finding
from journal.walks.segment_walk import FrameEntry, walk_segment

Times = dict[int, list[tuple[Clock, int]]]
"""The times in the timetables, in µs, by the ids of messages."""


class Placed(NamedTuple):
    """What a record has placed: a frame with that checksum, in that partition at that offset. One that went through an
    exchange has its address as ``partition``, and as ``offset`` how many of its record went before it.
    """

    partition: int
    offset: int
    checksum: int
    lsn: int


def placed_by(entry: JournalEntry) -> Iterator[tuple[int, Placed]]:
    """Yield id and place of each message that was due and placed by a record, as far as its frames can be read."""
    record = entry.record
    if isinstance(record, Published):
        if record.ids:
            yield from _routed_by(record, entry)
        return
    assert isinstance(record, Due)
    ids = iter(record.ids)
    with suppress(InvalidFrame):
        for sent, frames in sends(record, entry.data)[:-1]:
            for (position, _, _, _), number in zip(walk(frames), ids, strict=False):
                header = HEADER.unpack_from(frames, position)
                yield number, Placed(sent.partition, header[2], header[1], entry.lsn)


def _routed_by(record: Published, entry: JournalEntry) -> Iterator[tuple[int, Placed]]:
    ids = enumerate(record.ids)
    with suppress(InvalidFrame):
        for _, frames in slices(record, entry.data):
            for (position, _, _, _), (before, number) in zip(walk(frames), ids, strict=False):
                yield (
                    number,
                    Placed(record.address, before, HEADER.unpack_from(frames, position)[1], entry.lsn),
                )


def check_schedule(
    filesystem: IFilesystem, checkpoint: Checkpoint, reads: bool, placed: Mapping[int, Placed]
) -> Iterator[Finding]:
    """Yield what the schedule's rows say against each other and against its logs; with ``reads`` also against the
    messages in their segments, whose own damage is not told here, and how these differ from what was ``placed``, by id.
    """
    rows = checkpoint.folds.get(ScheduleFold.name)
    if rows is not None:
        fold = ScheduleFold()
        fold.restore(rows)
        yield from _ScheduleCheck(filesystem, checkpoint, fold, placed).run(reads)


class _ScheduleCheck:
    """One run."""

    def __init__(
        self,
        filesystem: IFilesystem,
        checkpoint: Checkpoint,
        fold: ScheduleFold,
        placed: Mapping[int, Placed],
    ) -> None:
        self._filesystem, self._fold, self._placed = filesystem, fold, placed
        self._path = filenames.checkpoint_file(checkpoint.header.lsn)
        self._at = checkpoint.header.at
        self._stores = {each.index: each for each in checkpoint.stores if each.topic == SCHEDULE_TOPIC}
        self._times: Times = {}
        for clock, table in fold.timetables.items():
            for due, entry in table.entries():
                self._times.setdefault(fold.number_of(entry), []).append((clock, due))
        self._waiting = 0

    def run(self, reads: bool) -> Iterator[Finding]:
        """Check all logs, then what is there beside them."""
        for index in range(len(self._fold.logs)):
            yield from self._log(index)
        for number in sorted(self._times):
            index, offset = place_of(number)
            if offset >= self._fold.logs[index].seen:
                yield self._finding(index, offset, "it is in the timetable, and behind what has been seen")
        counted = sum(self._fold.targets.values())
        if counted != self._waiting:
            problem = f"{counted} scheduled messages are counted by their partitions, {self._waiting} wait"
            yield Finding(self._path, 0, problem)
        elif reads:
            yield from self._messages()

    def _log(self, index: int) -> Iterator[Finding]:
        log, store = self._fold.logs[index], self._stores.get(index)
        start, end = (0, 0) if store is None else (store.start_offset, store.end_offset)
        if max(log.begins, log.seen, log.over.end) > end:
            problem = (
                f"it knows messages up to {max(log.begins, log.seen, log.over.end)}, the log ends at {end}"
            )
            yield self._finding(index, end, problem)
        if start > log.first:
            yield self._finding(index, log.first, f"it waits, and the log starts at {start}")
        for offset in range(log.begins, min(log.seen, end)):
            if log.waits(offset):
                self._waiting += 1
                times = self._times.get(id_of(index, offset), [])
                if len(times) != 1:
                    yield self._finding(
                        index, offset, f"it waits, and is {len(times)} times in the timetable"
                    )

    def _messages(self) -> Iterator[Finding]:
        """Compare what waits with its envelope, as far as that is in a segment, and sound."""
        found, unread = Counter[int](), self._waiting
        for store in self._stores.values():
            log = self._fold.logs[store.index]
            for envelope in self._envelopes(store):
                yield from self._content(store.index, envelope)
                if envelope.offset < log.seen and log.waits(envelope.offset):
                    unread -= 1
                    found[envelope.partition] += 1
                    yield from self._time(store.index, envelope)
        for partition in sorted(found.keys() | self._fold.targets.keys()):
            counted, held = self._fold.targets.get(partition, 0), found[partition]
            if not held <= counted <= held + unread:
                problem = (
                    f"{counted} scheduled messages are counted for partition number {partition}, {held} wait"
                )
                yield Finding(self._path, 0, problem)

    def _content(self, index: int, envelope: Envelope) -> Iterator[Finding]:
        """A frame's checksum does not change when it is placed."""
        placed = self._placed.get(id_of(index, envelope.offset))
        if placed is None:
            return
        checksum = HEADER.unpack_from(envelope.frame)[1]
        if (placed.partition, placed.checksum) != (envelope.partition, checksum):
            place = f"at offset {placed.offset} of partition number {placed.partition}"
            if placed.partition < 0:
                place = f"through the exchange at {placed.partition}, behind {placed.offset} others"
            what = (
                f"what was placed {place} (checksum {placed.checksum:08x}, LSN {placed.lsn}) is not the message at "
                f"offset {envelope.offset} of log {index} of the schedule (checksum {checksum:08x}, for partition "
                f"number {envelope.partition})"
            )
            affects = Affected(SCHEDULE_TOPIC, index, envelope.offset, envelope.offset)
            yield Finding(self._path, 0, what, affects=affects)

    def _time(self, index: int, envelope: Envelope) -> Iterator[Finding]:
        """A message that was due, and could not be placed, is looked at again later."""
        due = -(-envelope.due // 1_000) * 1_000
        times = self._times.get(id_of(index, envelope.offset), [])
        was_due = envelope.clock is Clock.WALL or envelope.due <= self._fold.time(self._at)
        for clock, at in times:
            if clock is not envelope.clock or at < due or (at > due and not was_due):
                said = f"it is due at {envelope.due} by clock {envelope.clock.name}"
                yield self._finding(
                    index, envelope.offset, f"{said}, in the timetable at {at} by {clock.name}"
                )

    def _envelopes(self, store: StoreState) -> Iterator[Envelope]:
        for segment in segments_of(store):
            with suppress(OSError):
                for each in walk_segment(self._filesystem, segment.path, segment.base_offset, segment.size):
                    if isinstance(each, FrameEntry):
                        with suppress(InvalidFrame):
                            yield from envelopes(each.frame)

    def _finding(self, index: int, offset: int, problem: str) -> Finding:
        what = f"the message at offset {offset} of log {index} of the schedule: {problem}"
        return Finding(self._path, 0, what, affects=Affected(SCHEDULE_TOPIC, index, offset, offset))

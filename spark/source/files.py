"""Logs in the files of a data directory: one at rest, one that a broker is writing to, or a copy.

A checkpoint says where a log ends, never the size of a file, because bytes behind that end may be torn or cut off
again. Nothing is locked or changed. An index is a hint: only the frames themselves are believed.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from journal.formats.checkpoint import Checkpoint
from journal.formats.frame import HEADER_BYTES
from journal.formats.index import OFFSET_FIELDS, DamagedIndex, around_time
from journal.formats.segment_header import SEGMENT_HEADER_BYTES
from journal.log.catalog import head_of_catalog
from journal.log.segment import Segment
from journal.log.start_history import Starts
from journal.records.outcome_entry import ArchivedOutcome, unpack
from journal.transactions.outcome_archive import head_of
from journal.walks.outcome_walk import archive_from
from spark.source.checkpoints import log_of, newest_checkpoint
from spark.source.logs import Log, Points, Slice, Start
from spark.source.segment_cursor import DirectoryFiles, SegmentCursor, segments_of

_ENTRY = np.dtype([(name, f">{code}") for name, code in OFFSET_FIELDS.items()])


class Directory:
    """The logs of a data directory as its newest sound checkpoint has them."""

    def __init__(self, path: str) -> None:
        self._files = DirectoryFiles(path)
        self._checkpoint: Checkpoint | None = None

    @property
    def checkpoint(self) -> Checkpoint:
        """Return the newest sound one, read once."""
        if self._checkpoint is None:
            self._checkpoint = newest_checkpoint(self._files.path)
        return self._checkpoint

    @property
    def identity(self) -> str:
        """Return the name of the broker's data; "" for a log that no service has opened."""
        rows = self.checkpoint.folds.get("identity", [])
        return rows[0] if rows and isinstance(rows[0], str) else ""

    @property
    def start(self) -> Start:
        """See :class:`spark.source.logs.Logs`."""
        return Start(self._starts.number, self._starts.nonce)

    def knows(self, start: Start) -> bool:
        """See :class:`spark.source.logs.Logs`."""
        return self._starts.may_have_had(*start)

    @property
    def _starts(self) -> Starts:
        starts = Starts()
        starts.restore(self.checkpoint.folds["starts"])
        return starts

    @property
    def wall_offset(self) -> int:
        """Return the wall clock less the clock of the append times, in µs."""
        return head_of_catalog(self.checkpoint).wall_offset

    def logs(self, wanted: Callable[[str], bool]) -> list[Log]:
        """See :class:`spark.source.logs.Logs`."""
        stores = [store for store in self.checkpoint.stores if wanted(store.topic)]
        return sorted((log_of(store) for store in stores), key=lambda each: (each.topic, each.index))

    def offset_for_time(self, log: Log, time: int, *, late: bool) -> int:
        """See :class:`spark.source.logs.Logs`."""
        at = time - self.wall_offset
        for segment in segments_of(log):
            if segment.last_time >= at:
                found = self._around(segment, at, late)
                return max(log.start, min(found, log.end))
        return log.end

    def _around(self, segment: Segment, at: int, late: bool) -> int:
        if at <= segment.first_time:
            return segment.base_offset
        try:
            index = self._files.read_all(segment.index_path), self._files.read_all(segment.time_path)
            before, after = around_time(*index, segment.seed, at)
        except (DamagedIndex, OSError):
            before = after = None
        if late:
            return after[0] if after else segment.end_offset
        return before[0] if before else segment.base_offset

    def first_since(self, log: Log, time: int) -> int:
        """See :class:`spark.source.logs.Logs`."""
        at = time - self.wall_offset
        return next((each.base_offset for each in log.segments if each.last_time >= at), log.end)

    def points(self, log: Log, first: int, end: int) -> Points:
        """Do what :class:`spark.source.logs.Logs` says. A damaged index makes uneven parts, never wrong ones."""
        offsets: list[int] = []
        sizes: list[int] = []
        below = 0
        for segment in segments_of(log):
            if segment.base_offset < end and segment.end_offset > first:
                offsets.append(segment.base_offset)
                sizes.append(below)
                for offset, position in self._entries(segment):
                    offsets.append(offset)
                    sizes.append(below + position)
            below += segment.size
            if segment.base_offset < end and segment.end_offset > first:
                offsets.append(segment.end_offset)
                sizes.append(below)
        return Points(np.array(offsets, np.int64), np.array(sizes, np.int64))

    def _entries(self, segment: Segment) -> list[tuple[int, int]]:
        """Return some hundred of the index's entries, evenly spread."""
        try:
            data = self._files.read_all(segment.index_path)
        except OSError:
            return []
        entries = np.frombuffer(data[: len(data) // _ENTRY.itemsize * _ENTRY.itemsize], _ENTRY)
        entries = entries[:: max(1, len(entries) // 500)]
        found: list[tuple[int, int]] = []
        last = (segment.base_offset, SEGMENT_HEADER_BYTES)
        for offset, position in zip(entries["offset"].tolist(), entries["position"].tolist(), strict=True):
            if last[0] < offset < segment.end_offset and last[1] < position < segment.size:
                last = (offset, position)
                found.append(last)
        return found

    def archived_between(self, archive: Log, part: Slice) -> tuple[int, int]:
        """See :class:`spark.source.logs.Logs`."""
        segments = part.log.segments
        if not segments:
            return archive.end, -1
        state = next(store for store in self.checkpoint.stores if store.number == archive.number)
        first = archive_from(self._files.filesystem, state, segments[0].first_time)
        return min(max(first, archive.start), archive.end), segments[-1].last_time

    def archive_waiting(self) -> list[ArchivedOutcome]:
        """See :class:`spark.source.logs.Logs`."""
        _, frames = head_of(self.checkpoint)
        return [unpack(frame[HEADER_BYTES:]) for frame in frames]

    def cursor(self, part: Slice) -> SegmentCursor:
        """See :class:`spark.source.logs.Logs`."""
        return SegmentCursor(self._files, part.log)

    def close(self) -> None:
        """Do nothing: no file is held open."""

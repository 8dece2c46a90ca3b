"""The entries of an index that point into a slice, against its frames: one whose checksum fits must find its frame."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from journal.filenames import REPAIRS, SegmentKind
from journal.filesystem import OSFilesystem
from journal.indexes import OFFSET_ENTRY, salt_of
from journal.inspect.findings import second_crc32c
from journal.inspect.index_check import astray
from journal.inspect.journal_walk import file_size, read_some
from spark.audit.directory import of_finding
from spark.audit.facts import Fact
from spark.audit.frames import Frames
from spark.audit.slices import ENTRY, Slice


class Pointers:
    """Those of one slice. What else is wrong with an index is told by who verifies it."""

    def __init__(self, filesystem: OSFilesystem, part: Slice) -> None:
        self._part = part
        self._repaired = filesystem.exists(REPAIRS)
        path = part.path.removesuffix(SegmentKind.LOG.value) + SegmentKind.INDEX.value
        try:
            data = read_some(filesystem, path, 0, file_size(filesystem, path))
        except OSError:
            data = b""
        self._data = data[: len(data) // OFFSET_ENTRY.size * OFFSET_ENTRY.size]
        self._positions = np.frombuffer(self._data, ENTRY)["position"].astype(np.int64)
        self._salt = salt_of(part.number, part.base)

    def astray(self, frames: Frames) -> Iterator[Fact]:
        """Those that point into these frames, and to none of them or to another one than they say."""
        if not len(frames.start):
            return
        begin, end = frames.at + int(frames.start[0]), frames.at + int(frames.start[-1] + frames.length[-1])
        for entry in np.flatnonzero((self._positions >= begin) & (self._positions < end)).tolist():
            at = entry * OFFSET_ENTRY.size
            offset, position, crc = OFFSET_ENTRY.unpack_from(self._data, at)
            if second_crc32c(self._data[at : at + OFFSET_ENTRY.size - 4], self._salt) != crc:
                continue
            place = int(np.searchsorted(frames.start, position - frames.at))
            found = place < len(frames.start) and int(frames.start[place]) == position - frames.at
            if not found or int(frames.offset[place]) != offset:
                yield of_finding(astray(self._part.path, entry, offset, position), self._repaired)

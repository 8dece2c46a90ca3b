"""A read that has been decided on the reactor and may be carried out elsewhere."""

from __future__ import annotations

from collections.abc import Callable

from journal.interfaces import IFile
from journal.open_files import OpenFiles
from journal.segment import BrokenChain, Read, Segment, read_run
from journal.segment_index import SegmentIndex, Shelf, WouldBlock

HINTS = 16


class Hints:
    """Where recent reads ended, so that reading through a log needs no index. For all threads."""

    __slots__ = ("_places",)

    def __init__(self) -> None:
        # One slot per offset modulo the number of slots: a store of one reference is atomic, so no lock.
        self._places: list[tuple[int, int, int] | None] = [None] * HINTS

    def put(self, base_offset: int, offset: int, position: int) -> None:
        """Note that the frame of ``offset`` begins at ``position`` of the segment."""
        self._places[offset % HINTS] = (base_offset, offset, position)

    def get(self, base_offset: int, offset: int) -> int | None:
        """The position of the frame of ``offset`` if it was noted."""
        place = self._places[offset % HINTS]
        return place[2] if place is not None and place[:2] == (base_offset, offset) else None


class ReadPlan:
    """A read whose answer is in memory already. Closing it does nothing."""

    __slots__ = ("_data",)

    def __init__(self, data: bytes) -> None:
        self._data = data

    def run_now(self) -> bytes | None:
        """Whole frames; None if that would wait for the disk: then call :meth:`run` on another thread."""
        return self._data

    def run(self) -> bytes:
        """Whole frames. Raises :class:`journal.errors.CorruptSegment` if the first of them is damaged."""
        return self._data

    def close(self) -> None:
        """Give up a plan that was not carried out. A second close does nothing."""


class DiskReadPlan(ReadPlan):
    """A read from a segment, as it was when the plan was made.

    The plan holds the file open until it has been carried out or closed, so that appends, flushes and
    retention may go on, even the file's unlinking.
    """

    __slots__ = ("_file", "_files", "_hints", "_max_bytes", "_offset", "_sealed", "_segment", "_shelf")

    def __init__(
        self,
        files: OpenFiles,
        segment: Segment,
        sealed: bool,
        shelf: Shelf,
        hints: Hints,
        offset: int,
        max_bytes: int,
    ) -> None:
        self._file: IFile | None = None  # first, so that __del__ finds it whatever happens here
        self._files = files
        self._segment = segment
        self._sealed = sealed
        self._shelf = shelf
        self._hints = hints
        self._offset = offset
        self._max_bytes = max_bytes
        self._file = open_log(files, segment)

    def run_now(self) -> bytes | None:
        """Whole frames; None if that would wait for the disk: then call :meth:`run` on another thread."""
        file = self._open_file()
        try:
            data = self._run(reading_now(file), now=True)
        except WouldBlock:
            return None
        except BaseException:
            self.close()
            raise
        self.close()
        return data

    def run(self) -> bytes:
        """Whole frames. Raises :class:`journal.errors.CorruptSegment` if the first of them is damaged."""
        try:
            return self._run(self._open_file().read, now=False)
        finally:
            self.close()

    def close(self) -> None:
        """Give up a plan that was not carried out. A second close does nothing."""
        file, self._file = self._file, None
        if file is not None:
            self._files.release(file)

    def __del__(self) -> None:
        self.close()

    def _open_file(self) -> IFile:
        if self._file is None:
            raise RuntimeError("this read has been carried out or closed")
        return self._file

    def _run(self, read: Read, now: bool) -> bytes:
        segment = self._segment
        index = SegmentIndex(self._files, segment, self._sealed, self._shelf, read, now)
        hint = self._hints.get(segment.base_offset, self._offset)
        offset, position = index.locate(self._offset) if hint is None else (self._offset, hint)
        try:
            data, end = read_run(read, segment, offset, position, self._max_bytes)
        except BrokenChain as broken:
            raise index.corrupt(broken) from broken
        self._hints.put(segment.base_offset, end, position + len(data))
        return data


def open_log(files: OpenFiles, segment: Segment) -> IFile:
    """Open and pin a segment's file; raises :class:`journal.errors.CorruptSegment` if it is not there."""
    try:
        return files.acquire(segment.path)
    except FileNotFoundError:
        last = segment.end_offset - 1
        raise segment.corrupt("the file is missing", 0, segment.base_offset, last) from None


def reading_now(file: IFile) -> Read:
    """``file.read`` that raises :class:`WouldBlock` instead of waiting for the disk."""
    read_now: Callable[[int, int], bytes | None] = file.read_now

    def read(position: int, length: int) -> bytes:
        data = read_now(position, length)
        if data is None:
            raise WouldBlock
        return data

    return read

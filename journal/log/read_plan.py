"""A read that has been planned on the reactor and may run on another thread."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from journal.constants import KIB
from journal.errors import TxBrokerError
from journal.formats.frame import HEADER_BYTES, append_time
from journal.interfaces import IFile
from journal.log.segment import BrokenChain, Read, Segment, read_run
from journal.log.segment_index import SegmentIndex, Shelf, WouldBlock
from journal.vfs.open_files import OpenFiles

HINTS = 16

PIECE_BYTES = 256 * KIB
"""How many bytes are read and checked at a time on the reactor, unless one frame is larger: 0.1 ms of 1 KiB frames."""
PIECE_FRAMES = 512
"""Most frames of a piece: 0.6 ms, however small they are."""

GoesOn = Callable[[], bool]
"""Returns whether a read may take another piece."""


def always() -> bool:
    """Return True: for a read that delays no other work."""
    return True


class Frames(NamedTuple):
    """Whole frames in a row, and the offset after the last message in them."""

    data: bytes
    end: int


class Hints:
    """The ends of recent reads, so that reading through a log needs no index. For all threads."""

    __slots__ = ("_places",)

    def __init__(self) -> None:
        # One slot per offset modulo the number of slots: a store of one reference is atomic, so no lock.
        self._places: list[tuple[int, int, int] | None] = [None] * HINTS

    def put(self, salt: int, offset: int, position: int) -> None:
        """Note that the frame of ``offset`` begins at ``position`` of the segment with that salt."""
        self._places[offset % HINTS] = (salt, offset, position)

    def get(self, salt: int, offset: int) -> int | None:
        """The position of the frame of ``offset`` if it was noted."""
        place = self._places[offset % HINTS]
        return place[2] if place is not None and place[:2] == (salt, offset) else None


class ReadPlan:
    """A read whose answer is in memory already. Closing it does nothing."""

    __slots__ = ("_frames",)

    def __init__(self, frames: Frames) -> None:
        self._frames = frames

    def run_now(self, goes_on: GoesOn = always) -> Frames | None:  # noqa: ARG002
        """Return whole frames; None if that would wait for the disk: then call :meth:`run` on another thread.

        Frames that have to be checked one by one come in pieces: the first is taken, and others while ``goes_on()``.
        """
        return self._frames

    def run(self) -> Frames:
        """Return whole frames. Raises :class:`journal.errors.CorruptSegment` if the first of them is damaged."""
        return self._frames

    def close(self) -> None:
        """Drop a plan that did not run. A second close does nothing."""


class DiskReadPlan(ReadPlan):
    """A read from a segment, as it was when the plan was made.

    The plan holds the file open until it has run or is closed, so that appends, flushes and retention may continue,
    even the unlinking of the file.
    """

    __slots__ = (
        "_file",
        "_files",
        "_hints",
        "_max_bytes",
        "_offset",
        "_sealed",
        "_segment",
        "_shelf",
        "_until",
    )

    def __init__(
        self,
        files: OpenFiles,
        segment: Segment,
        sealed: bool,
        shelf: Shelf,
        hints: Hints,
        offset: int,
        until: int,
        max_bytes: int,
    ) -> None:
        self._file: IFile | None = None  # first, so that __del__ finds it in every case
        self._files = files
        self._segment = segment
        self._sealed = sealed
        self._shelf = shelf
        self._hints = hints
        self._offset = offset
        self._until = min(until, segment.end_offset)
        self._max_bytes = max_bytes
        self._file = open_log(files, segment)

    def run_now(self, goes_on: GoesOn = always) -> Frames | None:
        """Return whole frames; None if that would wait for the disk: then call :meth:`run` on another thread."""
        file = self._open_file()
        try:
            frames = self._run(reading_now(file), goes_on, now=True)
        except WouldBlock:
            return None
        except BaseException:
            self.close()
            raise
        self.close()
        return frames

    def run(self) -> Frames:
        """Return whole frames. Raises :class:`journal.errors.CorruptSegment` if the first of them is damaged."""
        try:
            return self._run(self._open_file().read, always, now=False)
        finally:
            self.close()

    def close(self) -> None:
        """Drop a plan that did not run. A second close does nothing."""
        file, self._file = self._file, None
        if file is not None:
            self._files.release(file)

    def __del__(self) -> None:
        self.close()

    def _open_file(self) -> IFile:
        if self._file is None:
            raise RuntimeError("this read has been carried out or closed")
        return self._file

    def _run(self, read: Read, goes_on: GoesOn, now: bool) -> Frames:
        segment = self._segment
        index = SegmentIndex(self._files, segment, self._sealed, self._shelf, read, now)
        hint = self._hints.get(segment.salt, self._offset)
        offset, position = index.locate(self._offset) if hint is None else (self._offset, hint)
        pieces: list[bytes] = []
        room = self._max_bytes
        try:
            while True:
                size = min(room, PIECE_BYTES)
                data, end = read_run(read, segment, offset, position, size, PIECE_FRAMES, self._until)
                if pieces and len(data) > room:
                    break  # one frame that is larger than the rest
                pieces.append(data)
                offset = end
                position += len(data)
                room -= len(data)
                if room < HEADER_BYTES or offset >= self._until or not goes_on():
                    break
        except WouldBlock:
            if not pieces:
                raise
        except BrokenChain as broken:
            if not pieces:
                raise index.corrupt(broken) from broken
        self._hints.put(segment.salt, offset, position)
        return Frames(pieces[0] if len(pieces) == 1 else b"".join(pieces), offset)


def open_log(files: OpenFiles, segment: Segment) -> IFile:
    """Open and pin a segment's file; raises :class:`journal.errors.CorruptSegment` if it is missing."""
    try:
        return files.acquire(segment.path)
    except FileNotFoundError:
        last = segment.end_offset - 1
        raise segment.corrupt("the file is missing", 0, segment.base_offset, last) from None


def reading_now(file: IFile) -> Read:
    """Return a ``file.read`` that raises :class:`WouldBlock` instead of waiting for the disk."""
    read_now: Callable[[int, int], bytes | None] = file.read_now

    def read(position: int, length: int) -> bytes:
        data = read_now(position, length)
        if data is None:
            raise WouldBlock
        return data

    return read


def append_time_of(plan: ReadPlan) -> int:
    """Return the append time of the first frame that is read, in µs since 1970; 0 if it is not known, or the frame
    cannot be read: who reads it for itself is told of that. May wait for the disk.
    """
    try:
        return append_time(plan.run().data)
    except (TxBrokerError, OSError):
        return 0

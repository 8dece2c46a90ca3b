"""A forward reader of a partition's log by offset, read-only: for comparing it with the journal."""

from __future__ import annotations

from collections import OrderedDict

from journal.formats import filenames
from journal.formats.frame import GAP, HEADER, HEADER_BYTES
from journal.formats.index import DamagedIndex, floor_offset
from journal.formats.segment_header import SEGMENT_HEADER_BYTES
from journal.formats.store_state import StoreState
from journal.interfaces import IFile, IFilesystem
from journal.log.segment import (
    BrokenChain,
    FramePlace,
    Segment,
    flag_at,
    is_frame_of,
    segments_of,
    walk_headers,
)
from journal.vfs.file_window import file_size, read_some
from journal.walks.segment_walk import frame_at

MOST_OPEN = 64


class OpenLogs:
    """Read-only files, of which the longest unused are closed."""

    def __init__(self, filesystem: IFilesystem) -> None:
        self.filesystem = filesystem
        self._open: OrderedDict[str, IFile] = OrderedDict()

    def file(self, path: str) -> IFile:
        """Return the file; it stays open until many others have been asked for."""
        file = self._open.pop(path, None) or self.filesystem.open(path, writable=False)
        self._open[path] = file
        if len(self._open) > MOST_OPEN:
            self._open.popitem(last=False)[1].close()
        return file

    def close(self) -> None:
        """Close them all."""
        while self._open:
            self._open.popitem()[1].close()


class LogReader:
    """One partition's log as a checkpoint has it. :meth:`read` is cheap where the last one ended."""

    def __init__(self, files: OpenLogs, state: StoreState) -> None:
        self.state = state
        self._files = files
        self.segments = segments_of(state)
        self._segment = 0
        self._offset = -1
        self._position = 0
        self._gap = (0, 0)
        """The offsets of the gap that was found last."""

    @property
    def first_offset(self) -> int:
        """Return the first offset that its segments hold."""
        return self.segments[0].base_offset if self.segments else self.state.flushed_offset

    def read(self, offset: int, length: int) -> bytes | None:
        """Return ``length`` bytes from the frame of ``offset`` on; fewer at a segment's end.

        Returns None if damage keeps it from being found or read, nothing if no frame begins with that offset.
        """
        if offset != self._offset:
            try:
                if not self._seek(offset):
                    return b""
            except (BrokenChain, OSError):
                return None
        segment = self.segments[self._segment]
        if self._position >= segment.size and self._segment + 1 < len(self.segments):
            self._segment, self._position = self._segment + 1, SEGMENT_HEADER_BYTES
            segment = self.segments[self._segment]
        try:
            return self._read(segment, self._position, min(length, segment.size - self._position))
        except OSError:
            return None  # the segment's check reports it

    @property
    def place(self) -> tuple[str, int]:
        """Return the path and the position of the last read."""
        segment = self.segments[self._segment] if self.segments else None
        return (segment.path, self._position) if segment is not None else (filenames.PARTITION_DIRECTORY, 0)

    def is_damaged(self, offset: int, at: int) -> bool:
        """Return whether no sound frame of ``offset`` begins ``at`` bytes behind the beginning of the last read.

        Then the segment itself is damaged there: its bytes are not another log's.
        """
        segment = self.segments[self._segment]
        if self._offset < 0 or self._position + at >= segment.size:
            return False
        try:
            file = self._files.file(segment.path)
            return not frame_at(file, self._position + at, offset, segment.size)
        except OSError:
            return True

    def is_compacted(self, offset: int) -> bool:
        """Return whether messages may have been removed from the segment that holds an offset."""
        return any(each.epoch for each in self.segments if each.base_offset <= offset < each.end_offset)

    def is_in_gap(self, offset: int) -> bool:
        """Return whether a compaction has removed the message."""
        if not self.is_in_last_gap(offset) and self.is_compacted(offset):
            segment = next(each for each in self.segments if offset < each.end_offset)
            try:
                place = self._holding(segment, offset)
                if place is not None and flag_at(self._files.file(segment.path).read, place.position) & GAP:
                    self._gap = (place.offset, place.offset + place.messages)
            except (BrokenChain, OSError):
                return False
        return self.is_in_last_gap(offset)

    def is_in_last_gap(self, offset: int) -> bool:
        """Return whether the gap that was found last has the message."""
        return self._gap[0] <= offset < self._gap[1]

    @property
    def behind_gap(self) -> int:
        """The offset behind the gap that was found last."""
        return self._gap[1]

    def lose_place(self) -> None:
        """Look for the next offset anew, because the bytes read do not belong there."""
        self._offset = -1

    def advance(self, offset: int, length: int) -> None:
        """Go on: the bytes read belong there, and the next frame, of ``offset``, begins ``length`` bytes on."""
        self._offset = offset
        self._position += length

    def _read(self, segment: Segment, position: int, length: int) -> bytes:
        try:
            return self._files.file(segment.path).read(position, length)
        except FileNotFoundError:
            return b""

    def _seek(self, offset: int) -> bool:
        for number, segment in enumerate(self.segments):
            if segment.base_offset <= offset < segment.end_offset:
                self._segment, self._offset = number, offset
                position = self._locate(segment, offset)
                self._position = position if position is not None else 0
                if position is None:
                    self._offset = -1
                return position is not None
        return False

    def _locate(self, segment: Segment, offset: int) -> int | None:
        place = self._holding(segment, offset)
        return place.position if place is not None and place.offset == offset else None

    def _holding(self, segment: Segment, offset: int) -> FramePlace | None:
        """Return the place of the frame that holds an offset; None if the segment ends before it."""

        def read(position: int, length: int) -> bytes:
            return self._read(segment, position, length)

        start = (segment.base_offset, SEGMENT_HEADER_BYTES)
        filesystem = self._files.filesystem
        if filesystem.exists(segment.index_path):
            data = read_some(filesystem, segment.index_path, 0, file_size(filesystem, segment.index_path))
            try:
                hint = floor_offset(data, segment.seed, offset)
            except DamagedIndex:
                hint = None
            if hint is not None and is_frame_of(read, segment, *hint):
                start = hint
        for place in walk_headers(read, segment, *start):
            if offset < place.offset + place.messages:
                return place
        return None


def difference(expected: bytes | memoryview, found: bytes) -> tuple[int, int]:
    """Return (messages, bytes) before the first frame in which two runs differ; ``expected`` is a sound run."""
    view, position, messages = memoryview(expected), 0, 0
    while position + HEADER_BYTES <= len(view):
        length, _, _, _, _, count, _, _ = HEADER.unpack_from(view, position)
        if view[position : position + length] != found[position : position + length]:
            break
        position += length
        messages += count
    return messages, position

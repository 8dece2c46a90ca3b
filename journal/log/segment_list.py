"""A partition's segments, oldest first: found by bisection, dropped at the start, compared at recovery."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Sequence
from operator import attrgetter
from typing import NamedTuple

from journal.errors import NEXT_STEP, CorruptSegment
from journal.formats.filenames import parse_segment_file
from journal.formats.segment_header import SEGMENT_HEADER_BYTES
from journal.formats.store_state import SegmentState
from journal.interfaces import IFilesystem
from journal.log.proof import Beyond, files_beyond
from journal.log.segment import Segment, header_fault
from journal.vfs.file_window import opened
from journal.words import span

_base_offset = attrgetter("base_offset")
_end_offset = attrgetter("end_offset")
_last_time = attrgetter("last_time")


class SegmentList:
    """Contiguous segments; the last one is *active*: it takes flushes until it rolls."""

    __slots__ = ("directory", "number", "segments", "total_bytes")

    def __init__(self, number: int, directory: str, states: Iterable[SegmentState] = ()) -> None:
        self.number = number
        self.directory = directory
        self.segments = [Segment.of(number, directory, state) for state in states]
        self.total_bytes = sum(segment.frame_bytes for segment in self.segments)

    @property
    def active(self) -> Segment | None:
        """The segment that is written to."""
        return self.segments[-1] if self.segments else None

    @property
    def sealed(self) -> Sequence[Segment]:
        """All but the active one."""
        return self.segments[:-1]

    def states(self) -> list[SegmentState]:
        """Return the states for a checkpoint."""
        return [segment.state() for segment in self.segments]

    def next_segment(self, base_offset: int) -> Segment:
        """Return an empty segment to follow the last one; it is not in the list before :meth:`put`."""
        return Segment(self.number, self.directory, base_offset, 0, base_offset)

    def put(self, segment: Segment) -> None:
        """Add a segment after a flush: the active one, grown, or the one after it."""
        last = self.active
        if last is not None and last.base_offset == segment.base_offset:
            self.segments.pop()
            self.total_bytes -= last.frame_bytes
        elif last is not None and last.end_offset != segment.base_offset:
            raise AssertionError(
                f"{segment.path} does not follow {last.path}, which ends at {last.end_offset}"
            )
        self.segments.append(segment)
        self.total_bytes += segment.frame_bytes

    def holding(self, offset: int) -> tuple[Segment, bool] | None:
        """Return the segment that holds ``offset`` and whether it is sealed; None if none does."""
        found = bisect_right(self.segments, offset, key=_base_offset) - 1
        if found < 0 or offset >= self.segments[found].end_offset:
            return None
        return self.segments[found], found < len(self.segments) - 1

    def reaching(self, time: int) -> tuple[Segment, bool] | None:
        """Return the first segment with a message appended at ``time`` or later, and whether it is sealed."""
        found = bisect_left(self.segments, time, key=_last_time)
        if found == len(self.segments):
            return None
        return self.segments[found], found < len(self.segments) - 1

    def replace(self, old: Segment, new: Segment) -> bool:
        """Put a segment in the place of a sealed one; return whether that is still in the list."""
        found = bisect_left(self.segments, old.base_offset, key=_base_offset)
        if found >= len(self.segments) - 1 or self.segments[found] != old:
            return False
        self.segments[found] = new
        self.total_bytes += new.frame_bytes - old.frame_bytes
        return True

    def drop_below(self, offset: int) -> list[Segment]:
        """Remove and return the sealed segments that lie wholly below ``offset``."""
        count = bisect_right(self.segments, offset, hi=max(0, len(self.segments) - 1), key=_end_offset)
        dropped = self.segments[:count]
        del self.segments[:count]
        self.total_bytes -= sum(segment.frame_bytes for segment in dropped)
        return dropped

    def drop_all(self) -> list[Segment]:
        """Remove and return all segments, the active one too."""
        dropped, self.segments, self.total_bytes = self.segments, [], 0
        return dropped

    def compare(self, filesystem: IFilesystem, end_offset: int) -> Strangers:
        """Compare the files with the list, as a checkpoint had it; return files beside and beyond it.

        Changes nothing. Raises :class:`journal.errors.CorruptSegment` for a file that is missing, shorter than it was
        (its bytes had been forced) or another segment's.
        """
        try:
            names = filesystem.list_directory(self.directory)
        except FileNotFoundError:
            names = []  # never flushed; or removed, which the checks below find
        present = set(names)
        longer = False
        unmarked = []
        for segment in self.segments:
            size, marked = _check(filesystem, segment, present)
            longer = size > segment.size
            if not marked:
                unmarked.append(segment.path)
        beyond = files_beyond(self.number, self.directory, names, self.segments)
        early, late = self._strangers(names, end_offset)
        return Strangers(early, late, [each for each in beyond if longer or each.is_whole], unmarked)

    def _strangers(self, names: Iterable[str], end_offset: int) -> tuple[list[str], list[str]]:
        """Return the paths of segments that are not in the list: those before it, beside other files of segments that
        are in it, and those after.
        """
        known = {segment.base_offset: segment.epoch for segment in self.segments}
        first = self.segments[0].base_offset if self.segments else end_offset
        early: list[str] = []
        late: list[str] = []
        for name in names:
            found = parse_segment_file(name)
            if found is None or known.get(found.base_offset) == found.epoch:
                continue
            is_early = found.base_offset < first or found.base_offset in known
            (early if is_early else late).append(f"{self.directory}/{name}")
        return early, late


class Strangers(NamedTuple):
    """Files in a log's directory that its list does not have: all of segments before it, and of those after. Beside
    the former are those that a compaction made, or replaced, of segments that are in it.

    ``beyond`` are the logs among the latter, and the newest file of the list if it is longer than it was. ``unmarked``
    are files of the list whose header is damaged.
    """

    early: list[str]
    late: list[str]
    beyond: list[Beyond]
    unmarked: list[str]


def _check(filesystem: IFilesystem, segment: Segment, names: set[str]) -> tuple[int, bool]:
    """Return the file's size, and whether its header is sound; raises :class:`CorruptSegment`.

    A damaged header proves nothing, but the frames behind it can be read: a verification reports it.
    """
    path = segment.path
    if path.rpartition("/")[2] not in names:
        raise _refused(segment, "the file is missing", 0)
    with opened(filesystem, path) as file:
        size = int(file.size())
        if size < segment.size:
            raise _refused(segment, f"the file ends there, {segment.size} bytes had been forced", size)
        first_bytes = file.read(0, SEGMENT_HEADER_BYTES)
        fault = header_fault(segment, first_bytes)
        if fault is not None and fault.foreign:
            raise _refused(segment, fault.what, 0)
        return size, fault is None


def _refused(segment: Segment, what: str, position: int) -> CorruptSegment:
    """Return the error that stops a start; offsets up to the end of the segment may be affected."""
    first, last = segment.base_offset, segment.end_offset - 1
    return CorruptSegment(
        f"{segment.path} is damaged at byte {position}: {what}. Its {span('offset', first, last)}, or a part of "
        "that, are lost, so the start is refused; nothing was changed. Restore the file from a copy and start again. "
        f"{NEXT_STEP}",
        segment.path,
        position,
        first,
        last,
    )

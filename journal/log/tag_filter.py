"""A filter by tags over frames that were read: which of them hold a message that has one of the tags."""

from __future__ import annotations

import re
import sys
from collections.abc import Collection, Sequence
from typing import NamedTuple

from journal.errors import CompressionUnavailable, CorruptData, InvalidFrame
from journal.formats.frame import (
    COMPRESSION,
    HEADER,
    HEADER_BYTES,
    INNER_HEADER_BYTES,
    WRAPPER,
    decode_attribute,
    encode_alone,
    is_compressed,
    open_wrapper,
    walk_inner,
)
from journal.log.read_plan import ReadPlan
from journal.log.search import MOST_OPENED
from journal.message_headers import TAG_HEADER
from journal.offset_set import OffsetSet

_unpack_header = HEADER.unpack_from


class TagFilter(NamedTuple):
    """What is let through: messages that have one of these ``tags``, and those at the offsets ``kept``.

    ``until`` and ``room`` bound what is let through as those of a read do: no frame that begins at ``until`` or above,
    and no more bytes than ``room`` but at least one frame. What does not match is examined beyond ``until``, too, while
    nothing was let through.
    """

    tags: Collection[bytes]
    kept: OffsetSet
    until: int = sys.maxsize
    room: int = sys.maxsize


class Filtered(NamedTuple):
    """Whole frames that hold a message that is let through, and the ``unmatched`` offsets of all others that were
    examined, also inside of these frames: everything below ``end`` was.
    """

    data: bytes
    end: int
    unmatched: OffsetSet


def filtered(frames: bytes, offset: int, wanted: TagFilter) -> Filtered:
    """Examine a run of whole, checked frames from the message at ``offset`` on.

    A tag lies in a frame as it is, behind the header's name, so only messages with these bytes among their headers are
    decoded. If less than half of a wrapper is let through, it comes without the wrapper. A wrapper that cannot be
    opened is let through, so that its reader is told why. It ends early after ``MOST_OPENED``.
    """
    through = _Through(offset, wanted)
    may_match = through.may_match(frames)
    position = 0
    while position < len(frames) and through.opened < MOST_OPENED:
        length, _, first, appended, _, count, flag, attribute = _unpack_header(frames, position)
        begin, position = position, position + length
        if first + count <= offset:
            continue
        found: list[int] = []
        data = b""
        if flag & WRAPPER:
            if may_match or flag & COMPRESSION:
                found, data = through.of_wrapper(frames[begin:position], first, appended, count)
        elif may_match and through.matches(frames, begin + HEADER_BYTES, attribute, first):
            found, data = [first], frames[begin:position]
        if not through.take(first, first + count, found, data):
            break
    return through.result()


class _Through:
    """What a run of frames has let through so far. Everything from ``offset`` to below ``end`` was examined."""

    def __init__(self, offset: int, wanted: TagFilter) -> None:
        self.opened = 0
        self._offset = self._end = offset
        self._wanted = wanted
        self._search = _encoded(wanted.tags).search
        self._parts: list[bytes] = []
        self._matched = OffsetSet()
        self._size = 0

    def may_match(self, data: bytes) -> bool:
        """Return whether any message in ``data`` may be let through, without decoding it."""
        return bool(self._wanted.kept) or self._search(data) is not None

    def matches(self, data: bytes, begin: int, attribute: int, offset: int) -> bool:
        """Return whether the message at ``offset`` is let through, whose attribute begins there in ``data``, and has so
        many bytes.
        """
        tags = self._wanted.tags
        if attribute:
            end = begin + attribute
            if self._search(data, begin, end):
                headers = decode_attribute(data[begin:end]).headers
                if any(name == TAG_HEADER and value in tags for name, value in headers):
                    return True
        return offset in self._wanted.kept

    def of_wrapper(self, frame: bytes, first: int, appended: int, count: int) -> tuple[list[int], bytes]:
        """Return the offsets of the messages of a wrapper that are let through, and the frames that hold them."""
        try:
            if is_compressed(frame):
                inside = open_wrapper(memoryview(frame), f"the wrapper at offset {first}")
                self.opened += len(inside)
            else:
                inside = frame[HEADER_BYTES:]
            if not self.may_match(inside):
                return [], b""
            found = self._inside(inside, first)
        except (CompressionUnavailable, InvalidFrame):
            return list(range(first, first + count)), frame
        if 2 * len(found) < count:
            alone = [encode_alone(inner, offset, appended) for offset, inner in found.items()]
            return list(found), b"".join(alone)
        return list(found), frame

    def _inside(self, inside: bytes, first: int) -> dict[int, bytes]:
        """Return the frames inside of a wrapper that are let through, by offset."""
        found: dict[int, bytes] = {}
        for number, (position, length, attribute) in enumerate(walk_inner(inside)):
            offset, begin = first + number, position + INNER_HEADER_BYTES
            if offset >= self._offset and self.matches(inside, begin, attribute, offset):
                found[offset] = inside[position : position + length]
        return found

    def take(self, first: int, end: int, found: list[int], data: bytes) -> bool:
        """Let the messages of a frame through that were found in it; return False if that is one frame too many."""
        is_too_large = self._parts and self._size + len(data) > self._wanted.room
        if (first >= self._wanted.until and (found or self._parts)) or (found and is_too_large):
            self._end = max(self._end, first)
            return False
        if found:
            self._parts.append(data)
            self._size += len(data)
            for offset in found:
                self._matched.add(offset)
        self._end = end
        return True

    def result(self) -> Filtered:
        """Return what was let through."""
        unmatched = OffsetSet()
        unmatched.add_range(self._offset, self._end)
        unmatched.difference_update(self._matched)
        return Filtered(b"".join(self._parts), self._end, unmatched)


def _encoded(tags: Collection[bytes]) -> re.Pattern[bytes]:
    """Return what finds the header of one of these tags, however msgpack has encoded the length of its value.

    The tags alone would be found in the header's name, too: messages with any tag were decoded for "e", 130 ms for 4
    MiB. And it is one search for all tags: 14 ms for 16 of them, where 16 searches take 50.
    """
    values = b"|".join(re.escape(bytes((len(tag),)) + tag) for tag in tags)
    return re.compile(
        re.escape(TAG_HEADER.encode()) + rb"(?:\xc4|\xc5\x00|\xc6\x00\x00\x00)(?:" + values + rb")", re.DOTALL
    )


class PlannedRead(NamedTuple):
    """A read of the frames from ``begin`` on. If it brings less than all below ``until``, no more is known."""

    begin: int
    plan: ReadPlan
    until: int = 0


class FilteredRead:
    """Planned reads of one log from ``begin`` on, in their order, whose frames are filtered where they run.

    What is between them, and from the last one to ``end``, is known not to match, and is not read.
    """

    __slots__ = ("_end", "_reads", "_wanted", "begin")

    def __init__(self, reads: Sequence[PlannedRead], begin: int, wanted: TagFilter, end: int = 0) -> None:
        self._reads = reads
        self._wanted = wanted
        self._end = end
        self.begin = begin

    def run(self) -> tuple[Filtered, int]:
        """Return what is let through, and how many bytes were read; raises as the first of the reads does."""
        data, unmatched, offset, size = b"", OffsetSet(), self.begin, 0
        for read in self._reads:
            unmatched.add_range(offset, read.begin)
            offset = max(offset, read.begin)
            wanted = self._wanted._replace(room=self._wanted.room - len(data))
            try:
                frames = read.plan.run()
            except CorruptData:
                if offset == self.begin:
                    raise
                return Filtered(data, offset, unmatched), size  # it is met again, by the next one
            found = filtered(frames.data, offset, wanted)
            size += len(frames.data)
            if data and len(data) + len(found.data) > self._wanted.room:
                return Filtered(data, offset, unmatched), size
            data += found.data
            unmatched.update(found.unmatched)
            offset = found.end
            if offset < max(frames.end, read.until):
                return Filtered(data, offset, unmatched), size
        unmatched.add_range(offset, self._end)
        return Filtered(data, max(offset, self._end), unmatched), size

    def close(self) -> None:
        """Drop reads that did not run."""
        for read in self._reads:
            read.plan.close()

"""A filter by tags over frames that were read: which of them hold a message that has one of the tags."""

from __future__ import annotations

import sys
from collections.abc import Collection, Sequence
from typing import NamedTuple

from journal.errors import CompressionUnavailable, CorruptData, InvalidFrame
from journal.formats.frame import COMPRESSION, HEADER, Message, decode_run, open_wrapper
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

    def has(self, message: Message) -> bool:
        """Return whether a message is let through."""
        return message.offset in self.kept or any(
            name == TAG_HEADER and value in self.tags for name, value in message.headers
        )


class Filtered(NamedTuple):
    """Whole frames that hold a message that is let through, and the ``unmatched`` offsets of all others that were
    examined, also inside of these frames: everything below ``end`` was.
    """

    data: bytes
    end: int
    unmatched: OffsetSet


def filtered(frames: bytes, offset: int, wanted: TagFilter) -> Filtered:
    """Examine a run of whole, checked frames from the message at ``offset`` on.

    A tag lies in a frame as it is, so only frames that hold its bytes are decoded. A compressed frame that cannot be
    opened is let through, so that its reader is told why. It ends early after ``MOST_OPENED``.
    """
    through = _Through(frames, offset, wanted)
    position = 0
    while position < len(frames) and through.opened < MOST_OPENED:
        length, _, first, _, count, flag, _ = _unpack_header(frames, position)
        after = position + length
        if first + count > offset and through.may_match(position, after, first, count, flag):
            found = through.found(position, after)
            if found is None:
                through.end = first + count
            elif not through.take(position, after, first, count, found):
                break
        elif first + count > offset:
            if through.parts and first >= wanted.until:
                break
            through.end = first + count
        position = after
    return through.result()


class _Through:
    """What a run of frames has let through so far. Everything from ``offset`` to below ``end`` was examined."""

    def __init__(self, frames: bytes, offset: int, wanted: TagFilter) -> None:
        self.parts: list[bytes] = []
        self.end = self.offset = offset
        self.opened = 0
        self._frames = frames
        self._view = memoryview(frames)
        self._wanted = wanted
        self._tags = [tag for tag in wanted.tags if tag in frames]
        self._matched = OffsetSet()
        self._size = 0

    def may_match(self, position: int, after: int, first: int, count: int, flag: int) -> bool:
        """Return whether a frame has to be decoded: it is compressed, or holds the bytes of a tag."""
        if flag & COMPRESSION:
            return True
        for tag in self._tags:
            if self._frames.find(tag, position, after) >= 0:
                return True
        kept = self._wanted.kept
        return bool(kept) and bool(kept.within(first, first + count))

    def found(self, position: int, after: int) -> list[int] | None:
        """Return the offsets of the messages of a frame that are let through; None for no such message."""
        frame = self._view[position:after]
        _, _, first, _, count, flag, _ = _unpack_header(frame)
        try:
            if flag & COMPRESSION:
                inside = open_wrapper(frame, f"the wrapper at offset {first}")
                self.opened += len(inside)
                if not any(tag in inside for tag in self._wanted.tags) and not self._wanted.kept:
                    return None
            messages = decode_run(frame, self.offset)
        except (CompressionUnavailable, InvalidFrame):
            return list(range(max(first, self.offset), first + count))
        return [each.offset for each in messages if self._wanted.has(each)] or None

    def take(self, position: int, after: int, first: int, count: int, found: list[int]) -> bool:
        """Let a frame through with the messages found in it; return False if it is one too many."""
        size = after - position
        if first >= self._wanted.until or (self.parts and self._size + size > self._wanted.room):
            self.end = max(self.end, first)
            return False
        self.parts.append(self._frames[position:after])
        self._size += size
        for offset in found:
            self._matched.add(offset)
        self.end = first + count
        return True

    def result(self) -> Filtered:
        """Return what was let through."""
        unmatched = OffsetSet()
        unmatched.add_range(self.offset, self.end)
        unmatched.difference_update(self._matched)
        data = self.parts[0] if len(self.parts) == 1 else b"".join(self.parts)
        return Filtered(data, self.end, unmatched)


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

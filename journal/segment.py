"""One append-only file of stamped frames: what is known of it, and how its bytes are walked and checked."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import NamedTuple

import msgspec

from journal.constants import KIB
from journal.errors import WHAT_ELSE, CorruptSegment
from journal.filenames import SegmentKind, segment_file
from journal.frame import HEADER, HEADER_BYTES, LOST, is_sound
from journal.words import span

Read = Callable[[int, int], bytes]
"""(position, length) to bytes of the segment's file; fewer only where it ends."""

SCAN_BLOCK = 64 * KIB
MOST_FRAMES = 1 << 62

_unpack_header = HEADER.unpack_from


class SegmentState(msgspec.Struct, array_like=True, frozen=True):
    """A segment in a checkpoint. ``end_offset`` is exclusive, times are append times in µs.

    ``head`` is the checksum that the first frame carries: a file of another segment is not taken for this one.
    """

    base_offset: int
    size: int
    end_offset: int
    first_time: int
    last_time: int
    head: int = 0


class Segment(msgspec.Struct, frozen=True):
    """A segment as it was at one moment: all threads may look at it. A flush makes a new one of it."""

    number: int
    directory: str
    base_offset: int
    size: int = 0
    end_offset: int = 0
    first_time: int = 0
    last_time: int = 0
    head: int = 0

    @property
    def path(self) -> str:
        """The path of the frames."""
        return segment_file(self.directory, self.base_offset, SegmentKind.LOG)

    @property
    def index_path(self) -> str:
        """The path of the sparse offset index."""
        return segment_file(self.directory, self.base_offset, SegmentKind.INDEX)

    @property
    def time_path(self) -> str:
        """The path of the sparse time index."""
        return segment_file(self.directory, self.base_offset, SegmentKind.TIME)

    @property
    def paths(self) -> list[str]:
        """All files of the segment."""
        return [self.path, self.index_path, self.time_path]

    def state(self) -> SegmentState:
        """What a checkpoint keeps of it."""
        return SegmentState(
            self.base_offset, self.size, self.end_offset, self.first_time, self.last_time, self.head
        )

    def grown(self, size: int, end_offset: int, first_time: int, last_time: int, head: int = 0) -> Segment:
        """The segment after ``size`` bytes were appended; ``first_time`` and ``head`` count if they are the first."""
        return Segment(
            self.number,
            self.directory,
            self.base_offset,
            self.size + size,
            end_offset,
            self.first_time if self.size else first_time,
            last_time,
            self.head if self.size else head,
        )

    def corrupt(self, what: str, position: int, first_offset: int, last_offset: int) -> CorruptSegment:
        """The error for damaged bytes; offsets are inclusive."""
        damaged = span("offset", first_offset, last_offset).capitalize()
        return CorruptSegment(
            f"{self.path} is damaged at byte {position}: {what}. {damaged} "
            "cannot be read, all others can; nothing was changed. Restore the file from a copy, or read on "
            f"from offset {last_offset + 1}. {WHAT_ELSE}",
            self.path,
            position,
            first_offset,
            last_offset,
        )


class FramePlace(NamedTuple):
    """Where a frame lies in its segment and what its header says; it holds ``messages`` offsets."""

    position: int
    length: int
    offset: int
    messages: int
    timestamp: int


class BrokenChain(Exception):
    """The bytes at ``position``, where ``offset`` should begin, are not its frame.

    ``next_offset`` is where the next frame begins if the length can still be believed, else None.
    """

    def __init__(self, what: str, position: int, offset: int, next_offset: int | None = None) -> None:
        super().__init__(what)
        self.position = position
        self.offset = offset
        self.next_offset = next_offset


def walk_headers(read: Read, segment: Segment, offset: int, position: int) -> Iterator[FramePlace]:
    """Yield the frames from the one of ``offset`` at ``position`` to the end, looking at headers alone.

    Raises :class:`BrokenChain` at the first that is not the continuation of what came before.
    """
    data, start = b"", position
    while position < segment.size:
        at = position - start
        if at + HEADER_BYTES > len(data):
            data, start, at = read(position, min(SCAN_BLOCK, segment.size - position)), position, 0
            if len(data) < HEADER_BYTES:
                raise BrokenChain("the file ends too early", position, offset)
        length, _, found, timestamp, count, _, _ = _unpack_header(data, at)
        if not _continues(segment, position, offset, length, found, count):
            raise BrokenChain(f"no frame of offset {offset} is there", position, offset)
        yield FramePlace(position, length, offset, count, timestamp)
        position += length
        offset += count


def is_frame_of(read: Read, segment: Segment, offset: int, position: int) -> bool:
    """Whether a frame with that offset begins at that position, by its header."""
    if not 0 <= position <= segment.size - HEADER_BYTES:
        return False
    data = read(position, HEADER_BYTES)
    if len(data) < HEADER_BYTES:
        return False
    length, _, found, _, count, _, _ = _unpack_header(data)
    return _continues(segment, position, offset, length, found, count)


def checksum_of(frame: bytes | memoryview) -> int:
    """The checksum that a frame carries."""
    return int(_unpack_header(frame)[1])


def is_of_another(read: Read, segment: Segment) -> bool:
    """Whether the file begins with a sound frame that is not the segment's first. Damage alone does not make one."""
    data = read(0, HEADER_BYTES)
    if len(data) < HEADER_BYTES:
        return False
    length, crc, _, _, _, flag, _ = _unpack_header(data)
    if crc == segment.head or flag & LOST or not HEADER_BYTES <= length <= segment.size:
        return False
    return is_sound(memoryview(read(0, length)))


def read_run(
    read: Read, segment: Segment, offset: int, position: int, max_bytes: int, most: int = MOST_FRAMES
) -> tuple[bytes, int]:
    """Whole frames from the one of ``offset`` at ``position`` on, each with its checksum checked.

    At most ``max_bytes`` and ``most`` frames, but at least one frame; stops before a damaged frame. Returns the bytes
    and the offset after them. Raises :class:`BrokenChain` if the first frame is damaged.
    """
    rest = segment.size - position
    data = read(position, min(max(max_bytes, HEADER_BYTES), rest))
    if len(data) < HEADER_BYTES:
        raise BrokenChain("the file ends too early", position, offset)
    length = _unpack_header(data)[0]
    if len(data) < length <= rest:
        data = read(position, length)
    view = memoryview(data)
    taken, end = 0, len(data)
    while end - taken >= HEADER_BYTES and most:
        length, _, found, _, count, flag, _ = _unpack_header(data, taken)
        if not _continues(segment, position + taken, offset, length, found, count):
            fault = BrokenChain(f"no frame of offset {offset} is there", position + taken, offset)
        elif taken + length > end:
            break
        elif not is_sound(view[taken : taken + length]):
            what = f"the frame of offset {offset} fails its checksum"
            fault = BrokenChain(what, position + taken, offset, offset + count)
        elif flag & LOST:
            what = "the messages that stood there were lost before a repair, see repairs.json"
            fault = BrokenChain(what, position + taken, offset, offset + count)
        else:
            taken += length
            offset += count
            most -= 1
            continue
        if taken:
            break
        raise fault
    if not taken:
        raise BrokenChain("the file ends too early", position, offset)
    return data[:taken], offset


def _continues(segment: Segment, position: int, offset: int, length: int, found: int, count: int) -> bool:
    return (
        found == offset
        and HEADER_BYTES <= length <= segment.size - position
        and 0 < count <= segment.end_offset - offset
    )

"""A segment: one append-only file of stamped frames, its known state, and the walks and checks over its bytes."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from typing import NamedTuple

import msgspec
from crc32c import crc32c
from msgspec.structs import replace

from journal.constants import KIB
from journal.errors import WHAT_ELSE, CorruptSegment
from journal.formats.filenames import SegmentKind, segment_file
from journal.formats.frame import HEADER, HEADER_BYTES, LOST, is_sound
from journal.formats.segment_header import (
    SEGMENT_HEADER_BYTES,
    Checksum,
    HeaderFault,
    seed_of,
    unpack_segment_header,
)
from journal.formats.store_state import SegmentState, StoreState
from journal.words import span

Read = Callable[[int, int], bytes]
"""Maps (position, length) to bytes of the segment's file; fewer only where it ends."""

SCAN_BLOCK = 64 * KIB
MOST_FRAMES = 1 << 62

_unpack_header = HEADER.unpack_from


class Segment(msgspec.Struct, frozen=True):
    """A segment as it was at one moment: all threads may read it. A flush makes a new one of it.

    Its ``size`` is 0 before it has a file, then that of the header and the frames. ``epoch`` counts its compactions,
    and ``removed`` the messages in its gaps.
    """

    number: int
    directory: str
    base_offset: int
    size: int = 0
    end_offset: int = 0
    first_time: int = 0
    last_time: int = 0
    salt: int = 0
    checksum: int = 0
    epoch: int = 0
    removed: int = 0

    @classmethod
    def of(cls, number: int, directory: str, state: SegmentState) -> Segment:
        """Return the segment of a checkpoint."""
        return cls(
            number,
            directory,
            state.base_offset,
            state.size,
            state.end_offset,
            state.first_time,
            state.last_time,
            state.salt,
            state.checksum,
            state.epoch,
            state.removed,
        )

    @property
    def path(self) -> str:
        """The path of the frames."""
        return segment_file(self.directory, self.base_offset, SegmentKind.LOG, self.epoch)

    @property
    def index_path(self) -> str:
        """The path of the sparse offset index."""
        return segment_file(self.directory, self.base_offset, SegmentKind.INDEX, self.epoch)

    @property
    def time_path(self) -> str:
        """The path of the sparse time index."""
        return segment_file(self.directory, self.base_offset, SegmentKind.TIME, self.epoch)

    @property
    def keys_path(self) -> str:
        """The path of the table of keys, which may not exist."""
        return segment_file(self.directory, self.base_offset, SegmentKind.KEYS, self.epoch)

    @property
    def paths(self) -> list[str]:
        """All files of the segment. The log is the first: what is beside it is written while it is there."""
        return [self.path, self.index_path, self.time_path, self.keys_path]

    @property
    def frame_bytes(self) -> int:
        """Bytes of its frames: its size without the header."""
        return max(0, self.size - SEGMENT_HEADER_BYTES)

    @property
    def seed(self) -> int:
        """The running checksum at the first frame; it seeds the checksums of the index, too."""
        return seed_of(self.salt)

    def state(self) -> SegmentState:
        """Return its state for a checkpoint."""
        return SegmentState(
            self.base_offset,
            self.size,
            self.end_offset,
            self.first_time,
            self.last_time,
            self.salt,
            self.checksum,
            self.epoch,
            self.removed,
        )

    def begun(self, salt: int) -> Segment:
        """Return the segment, which has no file yet, with a header of that salt and no frames."""
        return replace(self, size=SEGMENT_HEADER_BYTES, salt=salt, checksum=seed_of(salt))

    def grown(self, size: int, end_offset: int, first_time: int, last_time: int) -> Segment:
        """Return the segment after ``size`` bytes of frames were appended; ``first_time`` counts if they are the first.

        Its running checksum is still the one before them.
        """
        return replace(
            self,
            size=self.size + size,
            end_offset=end_offset,
            first_time=self.first_time if self.end_offset > self.base_offset else first_time,
            last_time=last_time,
        )

    def corrupt(self, what: str, position: int, first_offset: int, last_offset: int) -> CorruptSegment:
        """Return the error for damaged bytes; offsets are inclusive."""
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


def segments_of(state: StoreState) -> list[Segment]:
    """Return the segments of a log in a checkpoint, with their partition."""
    return [Segment.of(state.number, state.directory, segment) for segment in state.segments]


def header_fault(segment: Segment, first_bytes: bytes, checksum: Checksum = crc32c) -> HeaderFault | None:
    """Return what is wrong with the first bytes of a segment's file; None if they are its header."""
    header = unpack_segment_header(first_bytes, checksum)
    if header is None:
        return HeaderFault("its header is damaged", foreign=False)
    number, base_offset = header.partition, header.base_offset
    if (number, base_offset) != (segment.number, segment.base_offset):
        what = f"it is the segment of partition number {number} from offset {base_offset} on"
    elif header.salt != segment.salt:
        what = f"it is another file of offset {base_offset} on, made by start {header.start}"
    else:
        return None
    return HeaderFault(what, foreign=True)


class FramePlace(NamedTuple):
    """The place of a frame in its segment, and its header's fields; it holds ``messages`` offsets."""

    position: int
    length: int
    offset: int
    messages: int
    timestamp: int


class BrokenChain(Exception):
    """The bytes at ``position``, where ``offset`` should begin, are not its frame.

    ``next_offset`` is where the next frame begins if the length can still be believed, else None. ``lost``: a repair
    has found nothing of it.
    """

    lost = False

    def __init__(self, what: str, position: int, offset: int, next_offset: int | None = None) -> None:
        super().__init__(what)
        self.position = position
        self.offset = offset
        self.next_offset = next_offset


def walk_headers(read: Read, segment: Segment, offset: int, position: int) -> Iterator[FramePlace]:
    """Yield the frames from the one of ``offset`` at ``position`` to the end, reading only headers.

    Raises :class:`BrokenChain` at the first that does not continue the one before.
    """
    data, start = b"", position
    while position < segment.size:
        at = position - start
        if at + HEADER_BYTES > len(data):
            data, start, at = read(position, min(SCAN_BLOCK, segment.size - position)), position, 0
            if len(data) < HEADER_BYTES:
                raise BrokenChain("the file ends too early", position, offset)
        length, _, found, _, timestamp, count, _, _ = _unpack_header(data, at)
        if not _continues(segment, position, offset, length, found, count):
            raise BrokenChain(f"no frame of offset {offset} is there", position, offset)
        yield FramePlace(position, length, offset, count, timestamp)
        position += length
        offset += count


def flag_at(read: Read, position: int) -> int:
    """Return the flag of the frame there."""
    return int(_unpack_header(read(position, HEADER_BYTES))[6])


def run_on(read: Read, checksum: int, position: int, end: int) -> int:
    """Return the running checksum at ``end``, from the one at ``position``. A file that ends too early gives
    another one.
    """
    while position < end:
        data = read(position, min(SCAN_BLOCK, end - position))
        if not data:
            return ~checksum & 0xFFFFFFFF
        checksum = crc32c(data, checksum)
        position += len(data)
    return checksum


def is_frame_of(read: Read, segment: Segment, offset: int, position: int) -> bool:
    """Return whether a frame with that offset begins at that position, by its header."""
    if not SEGMENT_HEADER_BYTES <= position <= segment.size - HEADER_BYTES:
        return False
    data = read(position, HEADER_BYTES)
    if len(data) < HEADER_BYTES:
        return False
    length, _, found, _, _, count, _, _ = _unpack_header(data)
    return _continues(segment, position, offset, length, found, count)


def read_run(
    read: Read,
    segment: Segment,
    offset: int,
    position: int,
    max_bytes: int,
    most: int = MOST_FRAMES,
    until: int = sys.maxsize,
) -> tuple[bytes, int]:
    """Return whole frames from the one of ``offset`` at ``position`` on, each with its checksum checked.

    At most ``max_bytes`` and ``most`` frames, none that begins at ``until`` or behind it, but at least one frame; stops
    before a damaged frame. Returns the bytes and the offset after them. Raises :class:`BrokenChain` if the first frame
    is damaged.
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
        length, _, found, _, _, count, flag, _ = _unpack_header(data, taken)
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
            fault.lost = True
        else:
            taken += length
            offset += count
            most = most - 1 if offset < until else 0
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

"""The blocks of a segment: the bytes between two places with a known running checksum.

The index of a segment has the running checksum for its entries and the checkpoint has it for the end, so a whole
segment is proven with one pass over its bytes. If that fails, the blocks show where.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from journal.constants import MIB
from journal.formats.checksum import join
from journal.formats.filenames import SegmentKind
from journal.formats.frame import CRC_START, HEADER, HEADER_BYTES
from journal.formats.index import Anchor, anchors
from journal.formats.segment_header import SEGMENT_HEADER_BYTES, Checksum, seed_of
from journal.formats.store_state import SegmentState
from journal.interfaces import IFilesystem
from journal.log.segment import Read
from journal.vfs.file_window import file_size, read_some
from journal.walks.findings import second_crc32c

OFFSET_AT, FRAME_BEGIN = 8, 16
"""Where the offset of a frame lies in it, and the end of that."""


class Block(NamedTuple):
    """The frames from one place to another."""

    start: Anchor
    end: Anchor


class Span(NamedTuple):
    """Frames of a block: bytes ``position`` to below ``end``, offsets ``first`` to below ``after``."""

    position: int
    end: int
    first: int
    after: int


def known_places(filesystem: IFilesystem, log: str, salt: int, end_offset: int, size: int) -> list[Anchor]:
    """Return the sound entries of the index beside a log's file; none if it cannot be read, which is reported
    elsewhere.
    """
    path = log.rpartition(".")[0] + "." + SegmentKind.INDEX.value
    try:
        data = read_some(filesystem, path, 0, file_size(filesystem, path))
    except OSError:
        return []
    return anchors(data, seed_of(salt), end_offset, size, second_crc32c)


def blocks_of(state: SegmentState, known: Sequence[Anchor], first: int = 0) -> list[Block]:
    """Return the blocks of a segment as a checkpoint has it, from the place numbered ``first`` on; 0 is its beginning.

    ``known`` are the sound entries of its index.
    """
    places = [
        Anchor(state.base_offset, SEGMENT_HEADER_BYTES, seed_of(state.salt)),
        *known,
        Anchor(state.end_offset, state.size, state.checksum),
    ]
    return [Block(*pair) for pair in zip(places[first:], places[first + 1 :], strict=False)]


def failing(
    read: Read, blocks: Sequence[Block], count: Callable[[int], object], checksum: Checksum = second_crc32c
) -> Iterator[Block]:
    """Yield the blocks whose bytes are not those that were written, or begin with another offset.

    ``count`` is called with the number of bytes read. A run of small blocks is read at once.
    """
    data, start = memoryview(b""), 0
    for block in blocks:
        position, running = block.start.position, block.start.running
        while position < block.end.position:
            needed = FRAME_BEGIN if position == block.start.position else 1
            if not start <= position <= start + len(data) - needed:
                data, start = (
                    memoryview(read(position, min(MIB, blocks[-1].end.position - position))),
                    position,
                )
                count(len(data))
                if not data:
                    break
            piece = data[position - start : block.end.position - start]
            begins = piece[OFFSET_AT:FRAME_BEGIN]
            if position == block.start.position and int.from_bytes(begins) != block.start.offset:
                break
            running = checksum(piece, running)
            position += len(piece)
        if position < block.end.position or running != block.end.running:
            yield block


def proven_frames(read: Read, block: Block) -> list[Span] | None:
    """Return the sound frames of a block, neighbours joined, if they are proven to be its own; None if they are not.

    Frames with damage behind their checksum are left out and do not prevent the proof of the others. A frame's own
    checksum determines what its bytes were, and from that follows the block's checksum with them. So the block proves
    all other frames, and the damaged frame's checksum as well. If lengths, ids or checksums of frames are damaged,
    nothing is proven: the bytes may be another segment's.
    """
    position, offset, running = block.start.position, block.start.offset, block.start.running
    spans: list[Span] = []
    data, start = memoryview(b""), 0
    while position < block.end.position:
        if position + HEADER_BYTES > start + len(data):
            data, start = memoryview(read(position, min(MIB, block.end.position - position))), position
            if len(data) < HEADER_BYTES:
                return None
        length, crc, found, _, _, count, _, _ = HEADER.unpack_from(data, position - start)
        if found != offset or not HEADER_BYTES <= length <= block.end.position - position:
            return None
        if position + length > start + len(data):
            data, start = (
                memoryview(read(position, max(length, min(MIB, block.end.position - position)))),
                position,
            )
        frame = data[position - start : position - start + length]
        if second_crc32c(frame[CRC_START:]) == crc and count:
            running = second_crc32c(frame, running)
            after = offset + count
            if spans and spans[-1].end == position:
                spans[-1] = spans[-1]._replace(end=position + length, after=after)
            else:
                spans.append(Span(position, position + length, offset, after))
        else:
            running = join(second_crc32c(frame[:CRC_START], running), crc, length - CRC_START)
            after = _offset_at(read, position + length, block)
        position, offset = position + length, after
    whole = (position, offset, running) == (block.end.position, block.end.offset, block.end.running)
    return spans if whole else None


def _offset_at(read: Read, position: int, block: Block) -> int:
    """Return the offset of the frame at a position, behind one whose count cannot be believed."""
    if position == block.end.position:
        return block.end.offset
    header = read(position, HEADER_BYTES)
    return HEADER.unpack(header)[2] if len(header) == HEADER_BYTES else -1

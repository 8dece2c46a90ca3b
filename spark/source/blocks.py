"""A block of frames with compressed batches: these are opened, and the block is then read like any other.

In place of each compressed wrapper comes the one that would have been sent without compression, checksum and all. So
nothing that makes columns of a block knows of compression. Places are told as they are in the block that was read. What
is opened at a time is bounded: a block of 8 MiB may hold terabytes.
"""

from __future__ import annotations

from bisect import bisect_right
from itertools import pairwise
from typing import Final, NamedTuple

from crc32c import crc32c

from journal.constants import MIB
from journal.errors import InvalidFrame
from journal.formats.compression import SIZE
from journal.formats.frame import COMPRESSION, CRC_START, HEADER, HEADER_BYTES, uncompressed
from journal.formats.frame_check import count_in_wrapper
from spark.source.heads import CompressedBlock, Heads, UnsoundBlock, read_heads

OPENED_BYTES: Final = 16 * MIB
"""About so much comes out of a block at a time, or what one frame holds."""


def read_block(data: bytes, offset: int) -> tuple[Heads, int, int]:
    """The messages of a block that begins with the frame of ``offset``, as :func:`spark.source.heads.read_heads` gives
    them.

    Not all whole frames are taken where these open to much. Raises :class:`UnsoundBlock`, and
    :class:`CompressionUnavailable` where the package is not installed.
    """
    try:
        return read_heads(data, offset)
    except CompressedBlock:
        opened = _open(data, offset)
    try:
        heads, taken, after = read_heads(opened.data, offset)
    except UnsoundBlock as fault:
        _check_counts(opened, fault)
        raise UnsoundBlock(str(fault), opened.place(fault.position), fault.offset, fault.end) from None
    if opened.fault is not None:
        raise opened.fault
    return heads, opened.place(taken), after


class _Place(NamedTuple):
    """From ``here`` on in the opened block bytes are those from ``there`` on; or all come out of what begins there."""

    here: int
    there: int
    inside: bool


class _Opened(NamedTuple):
    """A block with what is compressed opened, up to ``fault`` if something cannot be."""

    data: bytes
    places: list[_Place]
    fault: UnsoundBlock | None

    def place(self, here: int) -> int:
        """Where in the block as it was read a place of the opened one is; of what was compressed, where it begins."""
        found = self.places[bisect_right(self.places, here, key=lambda place: place.here) - 1]
        return found.there if found.inside else found.there + here - found.here


def _check_counts(opened: _Opened, fault: UnsoundBlock) -> None:
    """Raise for the first frame opened before the fault that holds other messages than it says.

    The broker may have been told to believe them; where one lies, what is noticed first is that the next does not fit.
    """
    for place, behind in pairwise(opened.places):
        if not place.inside or place.here >= fault.position:
            continue
        wrapper = memoryview(opened.data)[place.here : behind.here]
        _, _, offset, _, count, _, _ = HEADER.unpack_from(wrapper)
        try:
            held = count_in_wrapper(wrapper)
        except InvalidFrame as error:
            raise UnsoundBlock(f"the wrapper of offset {offset}: {error}", place.there, offset) from None
        if held != count:
            what = f"the wrapper of offset {offset} says {count} messages, it holds {held}"
            raise UnsoundBlock(what, place.there, offset, offset + count)


def _open(data: bytes, offset: int) -> _Opened:
    """Follow the frames; put what is compressed in its place opened, and copy all between."""
    view = memoryview(data)
    parts: list[bytes | memoryview] = []
    places = [_Place(0, 0, False)]
    position = copied = here = opened = 0
    fault = None
    end = len(data)
    while position + HEADER_BYTES <= end:
        length, _, _, _, count, flag, _ = HEADER.unpack_from(data, position)
        if length < HEADER_BYTES or position + length > end:
            break  # read_heads says what that is
        if flag & COMPRESSION:
            frame = view[position : position + length]
            size = SIZE.unpack_from(frame, HEADER_BYTES)[0] if length >= HEADER_BYTES + SIZE.size else 0
            if opened and opened + size > OPENED_BYTES:
                end = position
                break
            following = int.from_bytes(data[position + length + 8 : position + length + 16], "big")
            whole = _opened_frame(frame, position, offset, following)
            if isinstance(whole, UnsoundBlock):
                fault, end = whole, position
                break
            parts += [view[copied:position], whole]
            here += position - copied
            places += [_Place(here, position, True), _Place(here + len(whole), position + length, False)]
            here += len(whole)
            opened += size
            copied = position + length
        position += length
        offset += count
    parts.append(view[copied:end])
    return _Opened(b"".join(parts), places, fault)


def _opened_frame(frame: memoryview, position: int, offset: int, following: int) -> bytes | UnsoundBlock:
    """The frame opened, or what is wrong with it; ``following`` is the offset of the next one, if there is one."""
    _, crc, found, _, count, _, _ = HEADER.unpack_from(frame)
    if found != offset:
        return UnsoundBlock(f"no frame of offset {offset} is there", position, offset)
    if crc32c(frame[CRC_START:]) != crc:
        behind = following if following == offset + count else None
        return UnsoundBlock(f"the frame of offset {offset} fails its checksum", position, offset, behind)
    try:
        return uncompressed(frame, f"the wrapper of offset {offset}")
    except InvalidFrame as error:
        return UnsoundBlock(str(error), position, offset, offset + count)

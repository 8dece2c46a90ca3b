"""Blocks of frames with compressed batches: these are opened, and the block is then read like any other.

Each compressed wrapper is replaced by the one that would have been sent without compression, with its checksum. So the
code that makes columns of a block needs no compression. Places are reported as in the original block. What is opened at
a time is bounded: a block of 8 MiB may hold terabytes.
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
from spark.source.message_heads import CompressedBlock, Heads, UnsoundBlock, read_heads

OPENED_BYTES: Final = 16 * MIB
"""About how many uncompressed bytes are made of a block at a time, or those of one frame."""


def read_block(data: bytes, offset: int) -> tuple[Heads, int, int]:
    """Read the messages of a block that begins with the frame of ``offset``.

    It returns what :func:`spark.source.message_heads.read_heads` does.
    Not all whole frames are taken if these become large. Raises :class:`UnsoundBlock`, and
    :class:`CompressionUnavailable` if the package is not installed.
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
    """A place: bytes from ``here`` on in the opened block are those from ``there`` on, or the contents of what begins
    there.
    """

    here: int
    there: int
    inside: bool


class _Opened(NamedTuple):
    """A block with its compressed frames opened, up to ``fault`` if one cannot be opened."""

    data: bytes
    places: list[_Place]
    fault: UnsoundBlock | None

    def place(self, here: int) -> int:
        """Return the place in the original block of a place in the opened one; for compressed bytes, their frame's
        beginning.
        """
        found = self.places[bisect_right(self.places, here, key=lambda place: place.here) - 1]
        return found.there if found.inside else found.there + here - found.here


def _check_counts(opened: _Opened, fault: UnsoundBlock) -> None:
    """Raise for the first frame opened before the fault that holds another number of messages than it states.

    The broker may have been set to believe these numbers; if one is wrong, the first sign is that the next frame does
    not fit.
    """
    for place, behind in pairwise(opened.places):
        if not place.inside or place.here >= fault.position:
            continue
        wrapper = memoryview(opened.data)[place.here : behind.here]
        _, _, offset, _, _, count, _, _ = HEADER.unpack_from(wrapper)
        try:
            held = count_in_wrapper(wrapper)
        except InvalidFrame as error:
            raise UnsoundBlock(f"the wrapper of offset {offset}: {error}", place.there, offset) from None
        if held != count:
            what = f"the wrapper of offset {offset} says {count} messages, it holds {held}"
            raise UnsoundBlock(what, place.there, offset, offset + count)


def _open(data: bytes, offset: int) -> _Opened:
    """Follow the frames; replace compressed frames by their opened form, and copy everything else."""
    view = memoryview(data)
    parts: list[bytes | memoryview] = []
    places = [_Place(0, 0, False)]
    position = copied = here = opened = 0
    fault = None
    end = len(data)
    while position + HEADER_BYTES <= end:
        length, _, _, _, _, count, flag, _ = HEADER.unpack_from(data, position)
        if length < HEADER_BYTES or position + length > end:
            break  # read_heads reports it
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
    """Return the frame opened, or what is wrong with it; ``following`` is the offset of the next one, if there
    is one.
    """
    _, crc, found, _, _, count, _, _ = HEADER.unpack_from(frame)
    if found != offset:
        return UnsoundBlock(f"no frame of offset {offset} is there", position, offset)
    if crc32c(frame[CRC_START:]) != crc:
        behind = following if following == offset + count else None
        return UnsoundBlock(f"the frame of offset {offset} fails its checksum", position, offset, behind)
    try:
        return uncompressed(frame, f"the wrapper of offset {offset}")
    except InvalidFrame as error:
        return UnsoundBlock(str(error), position, offset, offset + count)

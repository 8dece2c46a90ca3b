"""The sizes of message bodies in a queue whose bytes are bounded, four bytes each (decision 0061)."""

from __future__ import annotations

from array import array
from collections.abc import Iterable, Iterator
from typing import Final

from journal.errors import InvalidFrame
from journal.formats.frame import LOST, WRAPPER, too_short, wrong_length
from journal.formats.frame_header import HEADER_BYTES, unpack_header

_BITS: Final = 13
_BLOCK: Final = 1 << _BITS
"""Sizes that are kept, and forgotten, together: 32 KiB."""
_PLACE: Final = _BLOCK - 1


class BodySizes:
    """The sizes of the bodies of messages from offset ``base`` on to below ``end``, in bytes.

    What lies outside has size 0: it is not measured yet, or has been forgotten.
    """

    __slots__ = ("_blocks", "_sums", "end")

    def __init__(self, base: int = 0) -> None:
        self.end = base
        self._blocks: dict[int, array[int]] = {}
        """Sizes by the number of their block. The first block begins at its first offset that is measured."""
        self._sums: dict[int, int] = {}

    def add(self, sizes: Iterable[int]) -> int:
        """Add the sizes of the next messages; return their sum."""
        found = array("I", sizes)
        begin, added = 0, 0
        while begin < len(found):
            number, place = self.end >> _BITS, self.end & _PLACE
            piece = found[begin : begin + _BLOCK - place]
            block = self._blocks.get(number)
            if block is None:
                block = self._blocks[number] = array("I", bytes(4 * place))
            elif len(block) < place:
                block.frombytes(bytes(4 * (place - len(block))))
            block.extend(piece)
            size = sum(piece)
            self._sums[number] = self._sums.get(number, 0) + size
            added += size
            self.end += len(piece)
            begin += len(piece)
        return added

    def skip(self, offset: int) -> None:
        """Pass over what lies below an offset and is not measured."""
        self.end = max(self.end, offset)

    def sum(self, first: int, end: int) -> int:
        """Return how many bytes the bodies from offset ``first`` to below ``end`` have."""
        found, end = 0, min(end, self.end)
        while first < end:
            number, place = first >> _BITS, first & _PLACE
            stop = min(_BLOCK, place + end - first)
            if stop - place == _BLOCK:
                found += self._sums.get(number, 0)
            elif (block := self._blocks.get(number)) is not None:
                found += sum(block[place:stop])
            first += stop - place
        return found

    def count_for(self, first: int, end: int, size: int) -> int:
        """Return how many messages from offset ``first`` on, to below ``end``, have ``size`` bytes or more; all if they
        have less.
        """
        offset = first
        while offset < end and size > 0:
            number, place = offset >> _BITS, offset & _PLACE
            stop = min(_BLOCK, place + end - offset)
            known = self._blocks.get(number)
            for each in () if known is None else known[place:stop]:
                offset += 1
                size -= each
                if size <= 0:
                    return offset - first
            offset = min(end, (number << _BITS) + stop)
        return offset - first

    def forget_below(self, offset: int) -> None:
        """Forget what is below an offset, whole blocks at a time."""
        number = offset >> _BITS
        if self._blocks and next(iter(self._blocks)) < number:  # they are in order
            for below in [each for each in self._blocks if each < number]:
                del self._blocks[below], self._sums[below]


def sizes_in(data: bytes | memoryview, first: int, end: int) -> Iterator[int]:
    """Yield the sizes of the bodies in frames of a queue's log, of the messages from offset ``first`` to below ``end``.

    A message that is lost, or was removed by a compaction, has none. Raises :class:`InvalidFrame` at an impossible
    length.
    """
    position, stop = 0, len(data)
    while position < stop:
        if stop - position < HEADER_BYTES:
            raise too_short(position, stop)
        length, _, offset, _, _, count, flag, attribute = unpack_header(data, position)
        if length < HEADER_BYTES + attribute or length > stop - position:
            raise wrong_length(position, length, stop)
        if offset >= end:
            return
        if flag & (LOST | WRAPPER) or count != 1:
            for _ in range(max(first, offset), min(end, offset + count)):
                yield 0
        elif offset >= first:
            yield length - HEADER_BYTES - attribute
        position += length


def body_bytes(frames: bytes | memoryview) -> int:
    """Return how many bytes the bodies of checked frames have that are not in a log yet."""
    found = position = 0
    while position < len(frames):
        length, _, _, _, _, _, _, attribute = unpack_header(frames, position)
        if length < HEADER_BYTES + attribute:
            raise InvalidFrame(f"frame at {position} says {length} bytes; nothing was sent")
        found += length - HEADER_BYTES - attribute
        position += length
    return found

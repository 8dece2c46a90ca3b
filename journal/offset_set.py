"""A set of offsets, kept as bitmaps of 32,768 offsets each, that can be copied in a moment."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

CHUNK_BITS: Final = 15
CHUNK: Final = 1 << CHUNK_BITS
"""How many offsets one bitmap has."""
_PLACE: Final = CHUNK - 1
_BYTES: Final = CHUNK // 8
_FULL: Final = (1 << CHUNK) - 1
"""The bitmap of a chunk in which every offset is in the set: one object for all, so that long runs cost little."""
_RUN: Final = re.compile("1+")
_SHOWN: Final = 20
"""How many runs the text of a set names."""


class OffsetSet:
    """A set of offsets. Each chunk of :data:`CHUNK` offsets is one immutable ``int``, used as a bitmap.

    A copy shares all bitmaps: it costs one dictionary entry for each chunk, whatever is in it. A chunk takes up to
    4 KiB, and a chunk without offsets or with all of them nothing.
    """

    __slots__ = ("_chunks",)

    def __init__(self, chunks: dict[int, int] | None = None) -> None:
        self._chunks: dict[int, int] = chunks or {}

    @staticmethod
    def from_bits(base: int, bits: int) -> OffsetSet:
        """Return the set of the offsets ``base + n`` for each bit ``n`` of ``bits``."""
        first, shift = base >> CHUNK_BITS, base & _PLACE
        bits <<= shift
        if bits <= _FULL:
            return OffsetSet({first: bits} if bits else None)
        data, chunks = bits.to_bytes((bits.bit_length() + 7) // 8, "little"), {}
        for number, start in enumerate(range(0, len(data), _BYTES), first):
            if chunk := int.from_bytes(data[start : start + _BYTES], "little"):
                chunks[number] = _FULL if chunk == _FULL else chunk
        return OffsetSet(chunks)

    def bits(self, base: int) -> int:
        """Return the set as one bitmap whose bit 0 is the offset ``base``; none of its offsets may be below that."""
        if not self._chunks:
            return 0
        first, last = min(self._chunks), max(self._chunks)
        chunks = (self._chunks.get(number, 0) for number in range(first, last + 1))
        whole = int.from_bytes(b"".join([chunk.to_bytes(_BYTES, "little") for chunk in chunks]), "little")
        shift = (first << CHUNK_BITS) - base
        return whole << shift if shift >= 0 else whole >> -shift

    # -- questions ---------------------------------------------------------------------------------

    def __bool__(self) -> bool:
        return bool(self._chunks)

    def __len__(self) -> int:
        return sum([chunk.bit_count() for chunk in self._chunks.values()])

    def __contains__(self, offset: int) -> bool:
        return bool(self._chunks.get(offset >> CHUNK_BITS, 0) >> (offset & _PLACE) & 1)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, OffsetSet) and self._chunks == other._chunks

    __hash__ = None  # type: ignore[assignment]

    @property
    def first(self) -> int:
        """The lowest offset of a set that has some."""
        number = min(self._chunks)
        chunk = self._chunks[number]
        return (number << CHUNK_BITS) + (chunk & -chunk).bit_length() - 1

    @property
    def end(self) -> int:
        """The offset after the highest one; 0 for an empty set."""
        if not self._chunks:
            return 0
        number = max(self._chunks)
        return (number << CHUNK_BITS) + self._chunks[number].bit_length()

    def missing_from(self, offset: int) -> int:
        """Return the lowest offset at or above ``offset`` that is not in the set."""
        while True:
            place = offset & _PLACE
            rest = self._chunks.get(offset >> CHUNK_BITS, 0) >> place
            run = (~rest & (rest + 1)).bit_length() - 1
            if place + run < CHUNK:
                return offset + run
            offset += CHUNK - place

    def common(self, other: OffsetSet) -> int | None:
        """Return the lowest offset that is in both sets; None if there is none."""
        few, many = sorted((self._chunks, other._chunks), key=len)
        for number in sorted(few):
            if both := few[number] & many.get(number, 0):
                return (number << CHUNK_BITS) + (both & -both).bit_length() - 1
        return None

    def within(self, first: int, end: int) -> OffsetSet:
        """Return a new set of the offsets that are at or above ``first`` and below ``end``."""
        found = OffsetSet()
        if first < end:
            high = (end - 1) >> CHUNK_BITS
            for number in self._numbers(first >> CHUNK_BITS, high):
                found._chunks[number] = self._chunks[number]
            found.discard_below(first)
            if high in found._chunks:
                kept = (1 << ((end - 1 & _PLACE) + 1)) - 1
                found._put(high, found._chunks[high] & kept)
        return found

    def count_within(self, first: int, end: int) -> int:
        """Return how many offsets are at or above ``first`` and below ``end``."""
        if first >= end:
            return 0
        low, high, count = first >> CHUNK_BITS, (end - 1) >> CHUNK_BITS, 0
        for number in self._numbers(low, high):
            chunk = self._chunks[number]
            if number == high:
                chunk &= (1 << ((end - 1 & _PLACE) + 1)) - 1
            if number == low:
                chunk >>= first & _PLACE
            count += CHUNK if chunk is _FULL else chunk.bit_count()
        return count

    def _numbers(self, low: int, high: int) -> list[int]:
        """Return the numbers of the chunks that there are, from one to another one."""
        if high - low < len(self._chunks):
            return [number for number in range(low, high + 1) if number in self._chunks]
        return [number for number in self._chunks if low <= number <= high]

    def intersects(self, other: OffsetSet) -> bool:
        """Return whether an offset is in both sets."""
        return self.common(other) is not None

    def shared(self, other: OffsetSet) -> OffsetSet:
        """Return the set of the offsets that are in both."""
        few, many = sorted((self._chunks, other._chunks), key=len)
        return OffsetSet({n: both for n, chunk in few.items() if (both := chunk & many.get(n, 0))})

    def runs(self) -> Iterator[tuple[int, int]]:
        """Yield each run of offsets that follow each other, as (first, end); the end is exclusive."""
        begin = end = -1
        for number in sorted(self._chunks):
            base = number << CHUNK_BITS
            chunk = self._chunks[number]
            for first, behind in ((0, CHUNK),) if chunk is _FULL else runs_of(chunk):
                if base + first != end:
                    if begin >= 0:
                        yield begin, end
                    begin = base + first
                end = base + behind
        if begin >= 0:
            yield begin, end

    def count_runs(self) -> int:
        """Return how many runs there are, in a time that does not grow with their number."""
        found, before = 0, -2
        for number in sorted(self._chunks):
            chunk = self._chunks[number]
            found += 1 if chunk is _FULL else (chunk & ~(chunk << 1)).bit_count()
            if before == number - 1 and chunk & 1 and self._chunks[before] >> _PLACE:
                found -= 1
            before = number
        return found

    def __str__(self) -> str:
        """Return the runs for people, the first of them if there are many: ``5-9, 12``."""
        named: list[str] = []
        more = 0
        for first, end in self.runs():
            if len(named) < _SHOWN:
                named.append(f"{first}-{end - 1}" if end - first > 1 else str(first))
            else:
                more += 1
        return ", ".join(named) + (f" and {more:,} more runs" if more else "")

    __repr__ = __str__

    # -- changes -----------------------------------------------------------------------------------

    def copy(self) -> OffsetSet:
        """Return a set of the same offsets that changes independently. It shares all bitmaps."""
        return OffsetSet(self._chunks.copy())

    def add(self, offset: int) -> None:
        """Add one offset."""
        number = offset >> CHUNK_BITS
        self._put(number, self._chunks.get(number, 0) | 1 << (offset & _PLACE))

    def add_range(self, first: int, end: int) -> None:
        """Add the offsets from ``first`` to below ``end``."""
        while first < end:
            number, place = first >> CHUNK_BITS, first & _PLACE
            count = min(CHUNK - place, end - first)
            self._put(number, self._chunks.get(number, 0) | ((1 << count) - 1) << place)
            first += count

    def update(self, other: OffsetSet) -> None:
        """Add all offsets of another set."""
        for number, chunk in other._chunks.items():
            self._put(number, self._chunks.get(number, 0) | chunk)

    def discard(self, offset: int) -> None:
        """Remove one offset, if it is in the set."""
        if offset in self:
            number = offset >> CHUNK_BITS
            self._put(number, self._chunks[number] ^ 1 << (offset & _PLACE))

    def difference_update(self, other: OffsetSet) -> None:
        """Remove all offsets of another set; it costs what the smaller of both has."""
        for number in self._chunks.keys() & other._chunks.keys():
            self._put(number, self._chunks[number] & ~other._chunks[number])

    def discard_below(self, offset: int) -> None:
        """Remove all offsets below ``offset``."""
        number, place = offset >> CHUNK_BITS, offset & _PLACE
        for below in [each for each in self._chunks if each < number]:
            del self._chunks[below]
        if number in self._chunks:
            self._put(number, self._chunks[number] >> place << place)

    def _put(self, number: int, chunk: int) -> None:
        if chunk:
            self._chunks[number] = _FULL if chunk == _FULL else chunk
        else:
            self._chunks.pop(number, None)


def runs_of(bits: int) -> Iterator[tuple[int, int]]:
    """Yield the runs of ones in a bitmap as (first, end), the lowest first.

    The time grows with the distance between the lowest one and the highest, not with what is below.
    """
    if bits:
        below = (bits & -bits).bit_length() - 1
        rest = bits >> below
        if not rest & (rest + 1):  # the most common case, a single run: 2 µs instead of 50
            yield below, below + rest.bit_length()
            return
        for found in _RUN.finditer(f"{rest:b}"[::-1]):
            yield below + found.start(), below + found.end()

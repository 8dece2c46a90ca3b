"""Shapes of records that look alike: which of their bytes are the same in all, and one struct that reads them all."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import lru_cache
from struct import Struct
from typing import Any, NamedTuple

from journal.records.record import HEADER_BYTES

_CODES = {0xCC: "xB", 0xCD: "xH", 0xCE: "xI", 0xCF: "xQ"}
"""How a struct reads msgpack's unsigned integers behind their first byte, which gives their width."""
_WIDTHS = {0xCC: 2, 0xCD: 3, 0xCE: 5, 0xCF: 9}
_SMALL = 0x80
"""Below it the first byte is the number itself."""
_ARRAY, _TEXT, _TEXT_END, _NIL = 0x90, 0xA0, 0xC0, 0xC0
_TAG_END = 2
"""A head begins with a short array and the tag, which is a number that has to be the same."""


class Part(NamedTuple):
    """A recurring record: its head's numbers (position, first byte or 0), and its lengths.

    ``data_length`` -1: the data is of any length and lies elsewhere. The head's bytes from ``varies_from`` on, behind
    its numbers, may differ from record to record and are read as one value.
    """

    numbers: tuple[tuple[int, int], ...]
    head_length: int
    data_length: int
    with_data: bool
    varies_from: int


class Shape(NamedTuple):
    """How to read records that look alike: which of their bytes are the same in all, and which must be small.

    ``wide`` reads all but the small ones; ``columns`` says where each value is: a small one's place, -1 for the next of
    the others.
    """

    struct: Struct
    wide: Struct
    columns: list[int]
    same: list[int]
    small: list[int]

    def alike(self, body: bytes, position: int, most: int) -> int:
        """Return how many times in a row, at most ``most``, the bytes from ``position`` on have this shape."""
        length = self.struct.size
        for place in self.same:
            column = body[position + place : position + most * length : length]
            most = len(column) - len(column.lstrip(column[:1]))
        for place in self.small:
            column = body[position + place : position + most * length : length]
            if not column.isascii():  # that is, one is not below 128
                most = next(number for number, byte in enumerate(column) if byte >= _SMALL)
        return most

    def rows(self, body: bytes, position: int, count: int) -> Iterator[tuple[int | bytes, ...]]:
        """Yield the values of each of ``count`` records."""
        return self.struct.iter_unpack(memoryview(body)[position : position + count * self.struct.size])

    def read(self, body: bytes, position: int, count: int) -> list[Sequence[Any]]:
        """Return the same by columns. Those of small numbers are bytes: one takes 1 µs for hundreds, a tuple 5."""
        length = self.struct.size
        end = position + count * length
        wide = zip(*self.wide.iter_unpack(memoryview(body)[position:end]), strict=True)
        return [next(wide) if place < 0 else body[position + place : end : length] for place in self.columns]


def numbers(head: bytes) -> tuple[tuple[int, int], ...] | None:
    """Return where the numbers of a head are behind its tag; None if it holds other values than numbers, short
    texts, nil.
    """
    position, end = _TAG_END, len(head)
    found: list[tuple[int, int]] = []
    while position < end:
        code = head[position]
        if code < _SMALL:
            found.append((position, 0))
            position += 1
        elif code in _WIDTHS:
            found.append((position, code))
            position += _WIDTHS[code]
        elif _ARRAY <= code < _TEXT or code == _NIL:
            position += 1
        elif _TEXT <= code < _TEXT_END:
            position += 1 + code - _TEXT
        else:
            return None
    return tuple(found) if position == end else None


@lru_cache(maxsize=1024)
def shape_of(part: Part) -> Shape:
    """Return the shape of records that look like one."""
    # All but the checksum, and without the length if that may differ.
    begin = 0 if part.data_length >= 0 else 4
    same = [place for place in range(begin, HEADER_BYTES) if not 4 <= place < 8]
    small: list[int] = []
    columns: list[int] = []
    layout, wide = [">"], [">"]
    known, position = -HEADER_BYTES, 0
    for place, code in part.numbers:
        same += range(HEADER_BYTES + position, HEADER_BYTES + place + (1 if code else 0))
        columns.append(-1 if code else HEADER_BYTES + place)
        small += [] if code else [HEADER_BYTES + place]
        layout.append(f"{place - known}x{_CODES[code] if code else 'B'}")
        wide.append(f"{place - known}x{_CODES[code] if code else 'x'}")
        position = known = place + (_WIDTHS[code] if code else 1)
    same += range(HEADER_BYTES + position, HEADER_BYTES + part.varies_from)
    varying = part.head_length - part.varies_from
    rest = f"{part.varies_from - known}x{f'{varying}s' if varying else ''}"
    rest += f"{max(0, part.data_length)}{'s' if part.with_data else 'x'}"
    columns += [-1] * (bool(varying) + part.with_data)
    return Shape(Struct("".join([*layout, rest])), Struct("".join([*wide, rest])), columns, same, small)

"""The bytes of a set of offsets, relative to a base: as runs or as a bitmap, whichever is smaller.

There is one encoding for each set and base, and a decoder refuses every other one. An empty set has no bytes. Else the
first byte is 1 for runs: for each run the number of offsets between it and the run before it (or the base), and its
length, both as varints (seven bits a byte, the lowest first, the highest bit set in all bytes but the last); or it is
2 for a bitmap: offset ``base + n`` is bit ``n % 8`` of byte ``n // 8``. A bitmap is written if runs are not smaller.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from journal.errors import InvalidFrame
from journal.offset_set import OffsetSet

MAX_SPAN: Final = 1 << 20
"""The offsets of a set lie at most so far above the base: a bitmap has at most 128 KiB."""
MAX_AHEAD: Final = 1 << 25
"""So far above a group's position at most offsets are finished or have details, whatever a broker's ``max_ahead`` is: a
bound of the format. That is 4 MiB of bitmaps, if they have to be kept whole.
"""

_RUNS, _BITMAP = b"\x01", b"\x02"
_CONTINUED: Final = bytes(range(0x80, 0x100))
"""The bytes of a varint but the last one."""
_LEAST_RUN: Final = 2
"""The bytes of a run: at least one for the gap, and one for the length."""


def encode_offsets(offsets: OffsetSet, base: int) -> bytes:
    """Return the bytes of a set whose offsets are all at or above ``base``, and below ``base + MAX_SPAN``."""
    if not offsets:
        return b""
    first, end = offsets.first, offsets.end
    if first < base:
        raise ValueError(f"the set has offset {first}, which is below {base}")
    if end - base > MAX_SPAN:
        raise ValueError(f"offset {end - 1} is more than {MAX_SPAN} above {base}")
    size = (end - base + 7) // 8
    if _LEAST_RUN * offsets.count_runs() < size:
        runs = _runs(offsets, base)
        if len(runs) < size:
            return _RUNS + runs
    return _BITMAP + offsets.bits(base).to_bytes(size, "little")


def within_spans(offsets: OffsetSet) -> Iterator[OffsetSet]:
    """Yield a set in parts, each of which can be encoded relative to its own first offset, the lowest part first."""
    end = offsets.end
    while offsets:
        first = offsets.first
        yield offsets.within(first, first + MAX_SPAN)
        offsets = offsets.within(first + MAX_SPAN, end)


def encode_pieces(offsets: OffsetSet, base: int) -> list[bytes]:
    """Return the bytes of a set, however far above the base it goes: for each ``MAX_SPAN`` offsets by themselves."""
    bases = range(base, max(base, offsets.end), MAX_SPAN)
    return [encode_offsets(offsets.within(first, first + MAX_SPAN), first) for first in bases]


def decode_pieces(pieces: list[bytes], base: int) -> OffsetSet:
    """Return the set of what :func:`encode_pieces` has returned; raises :class:`InvalidFrame`."""
    if pieces and not pieces[-1]:
        raise _refused(b"", "with an empty last piece")
    found = OffsetSet()
    for number, piece in enumerate(pieces):
        found.update(decode_offsets(piece, base + number * MAX_SPAN))
    return found


def count_walked_runs(data: bytes) -> int:
    """Return how many runs :func:`decode_offsets` walks over one by one, at most: its time grows with them.

    Those of a bitmap that is the smaller form for certain are not walked. What is no encoded set has a number, too.
    """
    rest = data[1:]
    if data[:1] != _BITMAP:
        return len(rest.translate(None, _CONTINUED)) // 2
    bits = int.from_bytes(rest, "little")
    runs = (bits & ~(bits << 1)).bit_count()
    return runs if _LEAST_RUN * runs < len(rest) else 0


def decode_offsets(data: bytes, base: int) -> OffsetSet:
    """Return the set of these bytes; raises :class:`InvalidFrame` for others than :func:`encode_offsets` returns."""
    if not data:
        return OffsetSet()
    kind, rest = data[:1], data[1:]
    if len(rest) > MAX_SPAN // 8:
        raise _refused(data, "too long")
    if kind == _BITMAP:
        offsets = OffsetSet.from_bits(base, int.from_bytes(rest, "little"))
    elif kind == _RUNS:
        offsets = _of_runs(data, base)
    else:
        raise _refused(data, f"of kind {data[0]}")
    if encode_offsets(offsets, base) != data:
        raise _refused(data, "not in the only form that a set of offsets has")
    return offsets


def _runs(offsets: OffsetSet, base: int) -> bytearray:
    found = bytearray()
    for first, end in offsets.runs():
        for number in (first - base, end - first):
            while number > 0x7F:
                found.append(number & 0x7F | 0x80)
                number >>= 7
            found.append(number)
        base = end
    return found


def _of_runs(data: bytes, base: int) -> OffsetSet:
    """Return the set of the runs in these bytes; they may still be in another form than the only one."""
    offsets, end, number, shift, gap = OffsetSet(), base, 0, 0, -1
    for byte in data[1:]:
        number |= (byte & 0x7F) << shift
        shift += 7
        if byte > 0x7F:
            if shift > MAX_SPAN.bit_length():
                raise _refused(data, "with a number that is too large")
            continue
        if gap < 0:
            gap = number
        else:
            first, end = end + gap, end + gap + number
            if end - base > MAX_SPAN:
                raise _refused(data, f"with an offset that is more than {MAX_SPAN} above the base")
            offsets.add_range(first, end)
            gap = -1
        number = shift = 0
    if shift or gap >= 0:
        raise _refused(data, "cut off within a run")
    return offsets


def _refused(data: bytes, why: str) -> InvalidFrame:
    return InvalidFrame(f"the {len(data)} bytes of a set of offsets are {why}")

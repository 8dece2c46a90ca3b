"""The bytes of a set of offsets, relative to a base: as runs or as a bitmap, whichever is smaller.

There is one encoding for each set and base, and a decoder refuses every other one. An empty set has no bytes. Else the
first byte is 1 for runs: for each run the number of offsets between it and the run before it (or the base), and its
length, both as varints (seven bits a byte, the lowest first, the highest bit set in all bytes but the last); or it is
2 for a bitmap: offset ``base + n`` is bit ``n % 8`` of byte ``n // 8``. A bitmap is written if runs are not smaller.
"""

from __future__ import annotations

from typing import Final

from journal.errors import InvalidFrame
from journal.offset_set import OffsetSet, runs_of

MAX_SPAN: Final = 1 << 20
"""The offsets of a set lie at most so far above the base: a bitmap has at most 128 KiB."""

_RUNS, _BITMAP = b"\x01", b"\x02"
_LEAST_RUN: Final = 2
"""The bytes of a run: at least one for the gap, and one for the length."""


def encode_offsets(offsets: OffsetSet, base: int) -> bytes:
    """Return the bytes of a set whose offsets are all at or above ``base``, and below ``base + MAX_SPAN``."""
    bits = offsets.bits(base)
    if bits.bit_length() > MAX_SPAN:
        raise ValueError(f"offset {base + bits.bit_length() - 1} is more than {MAX_SPAN} above {base}")
    return _pack(bits)


def decode_offsets(data: bytes, base: int) -> OffsetSet:
    """Return the set of these bytes; raises :class:`InvalidFrame` for others than :func:`encode_offsets` returns."""
    bits = _unpack(data)
    if _pack(bits) != data:
        raise _refused(data, "not in the only form that a set of offsets has")
    return OffsetSet.from_bits(base, bits)


def _pack(bits: int) -> bytes:
    if not bits:
        return b""
    bitmap = bits.to_bytes((bits.bit_length() + 7) // 8, "little")
    if _LEAST_RUN * (bits & ~(bits << 1)).bit_count() >= len(bitmap):  # so many runs
        return _BITMAP + bitmap
    runs, before = bytearray(), 0
    for first, end in runs_of(bits):
        _put_varint(runs, first - before)
        _put_varint(runs, end - first)
        before = end
    return _RUNS + runs if len(runs) < len(bitmap) else _BITMAP + bitmap


def _put_varint(to: bytearray, number: int) -> None:
    while number > 0x7F:
        to.append(number & 0x7F | 0x80)
        number >>= 7
    to.append(number)


def _unpack(data: bytes) -> int:
    """Return the bitmap of the bytes of a set; they may still be in another form than the only one."""
    if not data:
        return 0
    if len(data) > MAX_SPAN // 8 + 1:
        raise _refused(data, "too long")
    kind, rest = data[:1], data[1:]
    if kind == _BITMAP:
        return int.from_bytes(rest, "little")
    if kind != _RUNS:
        raise _refused(data, f"of kind {data[0]}")
    digits: list[str] = []
    first, end, number, shift, digit = -1, 0, 0, 0, "0"
    for byte in rest:
        number |= (byte & 0x7F) << shift
        shift += 7
        if byte > 0x7F:
            if shift > MAX_SPAN.bit_length():
                raise _refused(data, "with a number that is too large")
            continue
        end += number
        if end > MAX_SPAN:
            raise _refused(data, f"with an offset that is more than {MAX_SPAN} above the base")
        if first < 0:
            first = number
        else:
            digits.append(digit * number)
        number, shift, digit = 0, 0, "1" if digit == "0" else "0"
    if shift or digit == "1":
        raise _refused(data, "cut off within a run")
    return int("".join(digits)[::-1] or "0", 2) << max(first, 0)


def _refused(data: bytes, why: str) -> InvalidFrame:
    return InvalidFrame(f"the {len(data)} bytes of a set of offsets are {why}")

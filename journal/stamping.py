"""Offsets for many runs of frames at once, as replay needs them: a column of bytes at a time."""

from __future__ import annotations

from collections.abc import Sequence
from struct import pack

from journal.errors import InvalidFrame
from journal.frame import HEADER_BYTES, stamp


def stamped(runs: Sequence[bytes], bases: Sequence[int], counts: Sequence[int]) -> list[bytes]:
    """Copies of runs of checked frames, each stamped from its base on.

    For runs of one frame of one length 0.1 µs each, else as :func:`stamp`. Raises :class:`InvalidFrame` if a run does
    not hold as many messages as its count.
    """
    size, number = len(runs[0]), len(runs)
    whole = bytearray(b"".join(runs))
    if len(whole) == size * number and set(map(len, runs)) == {size} and _single(whole, size, number, counts):
        offsets = pack(f">{number}Q", *bases)
        for byte in range(8):
            whole[8 + byte :: size] = offsets[byte::8]
        data = bytes(whole)
        return [data[start : start + size] for start in range(0, len(data), size)]
    view, start, found = memoryview(whole), 0, []
    for run, base, count in zip(runs, bases, counts, strict=True):
        piece = view[start : start + len(run)]
        if stamp(piece, base) != base + count:
            raise InvalidFrame(
                f"a run of {len(run)} bytes does not hold {count} messages; nothing was stored"
            )
        found.append(bytes(piece))
        start += len(run)
    return found


def _single(whole: bytearray, size: int, number: int, counts: Sequence[int]) -> bool:
    """Whether each run of that size is one frame with one message."""
    if size < HEADER_BYTES or counts.count(1) != number:
        return False
    for place, values in ((0, size.to_bytes(4)), (20 + 4, (1).to_bytes(4))):
        for byte, value in enumerate(values):
            if whole[place + byte :: size].count(value) != number:
                return False
    return True

"""Stamping of many runs of frames at once, as replay needs it: a column of bytes at a time."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate
from struct import pack
from typing import NamedTuple, Self

from journal.errors import InvalidFrame
from journal.formats.frame import HEADER_BYTES, stamp


class Joined(NamedTuple):
    """Runs of frames, one behind the other in ``data``: the n-th from ``edges[n]`` to ``edges[n + 1]``."""

    data: bytes | bytearray
    edges: Sequence[int]

    @classmethod
    def of(cls, runs: Sequence[bytes]) -> Self:
        """Return these runs, copied."""
        return cls(b"".join(runs), list(accumulate(map(len, runs), initial=0)))

    def run(self, number: int) -> bytes:
        """Return one of them."""
        return bytes(self.data[self.edges[number] : self.edges[number + 1]])


def stamped(runs: Sequence[bytes], bases: Sequence[int], counts: Sequence[int]) -> Joined:
    """Return copies of runs of checked frames, each stamped from its base on.

    Runs of one frame of one length take 0.1 µs each, others as long as :func:`stamp`. Raises :class:`InvalidFrame` if a
    run does not hold as many messages as its count.
    """
    size, number = len(runs[0]), len(runs)
    whole = bytearray(b"".join(runs))
    if len(whole) == size * number and set(map(len, runs)) == {size} and _single(whole, size, number, counts):
        offsets = pack(f">{number}Q", *bases)
        for byte in range(8):
            whole[8 + byte :: size] = offsets[byte::8]
        return Joined(whole, range(0, len(whole) + 1, size))
    edges = list(accumulate(map(len, runs), initial=0))
    view = memoryview(whole)
    for start, end, base, count in zip(edges, edges[1:], bases, counts, strict=False):
        if stamp(view[start:end], base) != base + count:
            raise InvalidFrame(
                f"a run of {end - start} bytes does not hold {count} messages; nothing was stored"
            )
    return Joined(whole, edges)


def _single(whole: bytearray, size: int, number: int, counts: Sequence[int]) -> bool:
    """Return whether each run of that size is one frame with one message."""
    if size < HEADER_BYTES or counts.count(1) != number:
        return False
    for place, values in ((0, size.to_bytes(4)), (20 + 4, (1).to_bytes(4))):
        for byte, value in enumerate(values):
            if whole[place + byte :: size].count(value) != number:
                return False
    return True

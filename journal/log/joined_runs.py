"""Many runs of frames in one piece of memory, as replay takes them."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate
from typing import NamedTuple, Self


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

"""The churn allocates and frees buffers as tails do in an hour, within a minute, to see what memory is left."""

from __future__ import annotations

import gc
import math
import time
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any, Final, NamedTuple

from journal.buffers import PooledAllocator
from journal.constants import KIB, MIB

BUDGET: Final = 256 * MIB
TRIMS: Final = 360
"""The number of trims in an hour: one every ten seconds."""

WAVES: Final = 6
MOST: Final = 120 * MIB
LEAST: Final = 12 * MIB
"""The bytes between which live memory rises and falls, as under load."""

SIZES: Final = (
    (512, 40), (KIB, 20), (2 * KIB, 10), (4 * KIB, 10), (8 * KIB, 6), (16 * KIB, 5), (64 * KIB, 4),
    (256 * KIB, 3), (MIB, 1.5), (4 * MIB, 0.5),
)  # fmt: skip
"""The sizes that tails ask for, and how often; most bytes are in large ones."""

_ZEROS: Final = memoryview(bytes(4 * MIB))


class Residue(NamedTuple):
    """MiB that are live, and that are resident beyond the start: at the highest wave, after the lowest, and when
    quiet.
    """

    steps: int
    seconds: float
    live_high: float
    resident_high: float
    live_low: float
    resident_low: float
    resident_quiet: float


def resident() -> float:
    """Return the resident MiB of the process, as the kernel counts them."""
    gc.collect()
    text = Path("/proc/self/smaps_rollup").read_text()
    return next(int(line.split()[1]) for line in text.splitlines() if line.startswith("Rss:")) / KIB


class Pooled:
    """Buffers from the pool."""

    def __init__(self) -> None:
        self.pool = PooledAllocator(BUDGET)
        self.trim = self.pool.trim

    def take(self, size: int) -> Any:
        buffer = self.pool.allocate(size)
        buffer.view[:] = _ZEROS[:size]
        return buffer

    def give(self, buffer: Any) -> None:
        buffer.release()


class Plain:
    """Buffers from Python and the C library."""

    def take(self, size: int) -> Any:
        return bytearray(size)

    def give(self, buffer: Any) -> None:
        """Do nothing: a buffer is freed with its last reference."""

    def trim(self) -> None:
        """Do nothing."""


KINDS: Final[dict[str, Callable[[], Pooled | Plain]]] = {"pool": Pooled, "bytearray": Plain}


def churn(kind: str, seconds: float) -> Residue:
    """Run all waves in about that time; this needs a process of its own."""
    memory, random = KINDS[kind](), Random(7)
    sizes, weights = zip(*SIZES, strict=True)
    before = resident()
    live: list[tuple[int, Any]] = []
    held = steps = high = 0
    resident_high = 0.0
    began = time.monotonic()
    for tick in range(TRIMS):
        wanted = LEAST + (MOST - LEAST) * (1 - math.cos(2 * math.pi * WAVES * tick / TRIMS)) / 2
        while time.monotonic() - began < seconds * (tick + 1) / TRIMS:
            for size in random.choices(sizes, weights, k=256):
                while live and held + size > wanted:
                    place = random.randrange(len(live))
                    live[place], live[-1] = live[-1], live[place]
                    given, buffer = live.pop()
                    memory.give(buffer)
                    del buffer
                    held -= given
                live.append((size, memory.take(size)))
                held += size
                steps += 1
        memory.trim()
        if held > high:
            high, resident_high = held, resident() - before
    low, resident_low = held, resident() - before
    for _ in range(3):  # half a minute without any work
        memory.trim()
    return Residue(
        steps,
        time.monotonic() - began,
        high / MIB,
        resident_high,
        low / MIB,
        resident_low,
        resident() - before,
    )

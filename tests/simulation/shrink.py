"""The shrinking of a failing history to as few steps as fail the same way: delta debugging over the steps that are
kept.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

Fails = Callable[[Sequence[int]], bool]


def shrunk(steps: Sequence[int], fails: Fails, seconds: float = 30.0) -> list[int]:
    """A subset of the steps, none of which can be left out (Zeller's ddmin); as far as it got in that time."""
    left, parts = list(steps), 2
    until = time.monotonic() + seconds
    while left and time.monotonic() < until:
        size = -(-len(left) // parts)
        for start in range(0, len(left), size):
            fewer = left[:start] + left[start + size :]
            if fails(fewer):
                left, parts = fewer, max(parts - 1, 2)
                break
            if time.monotonic() > until:
                break
        else:
            if size == 1:
                break
            parts = min(2 * parts, len(left))
    return left


def to_text(steps: Sequence[int]) -> str:
    """Numbers as ranges: 0-3,7,9-10; the empty list is "-"."""
    runs: list[list[int]] = []
    for step in steps:
        if runs and runs[-1][1] == step - 1:
            runs[-1][1] = step
        else:
            runs.append([step, step])
    return ",".join(str(a) if a == b else f"{a}-{b}" for a, b in runs) or "-"


def from_text(text: str) -> list[int]:
    """What :func:`to_text` wrote."""
    steps: list[int] = []
    for run in text.split(",") if text != "-" else ():
        first, _, last = run.partition("-")
        steps.extend(range(int(first), int(last or first) + 1))
    return steps

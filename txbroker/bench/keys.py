"""Keys of messages: none, evenly spread, or few of them much more often than the rest."""

from __future__ import annotations

import random
from bisect import bisect_left
from collections.abc import Callable
from itertools import accumulate

MOST_KEYS = 10_000_000


def check(text: str) -> str:
    """Check ``none``, ``1000`` or ``zipf:1000``; raises ``ValueError``."""
    number = text.removeprefix("zipf:")
    if text != "none" and not (number.isascii() and number.isdigit() and 0 < int(number) <= MOST_KEYS):
        raise ValueError(
            f"{text!r} is not none, a number of keys like 1000, or zipf:1000 (at most {MOST_KEYS:,})"
        )
    return text


def chooser(text: str, seed: int) -> Callable[[], bytes | None]:
    """Return a function that gives the next key, for a value that :func:`check` takes.

    With ``zipf:N`` the k-th most frequent of N keys comes in proportion to 1/k (Zipf's law).
    """
    if text == "none":
        return lambda: None
    drawn = random.Random(seed)
    number = int(text.removeprefix("zipf:"))
    keys = [b"%d" % key for key in range(number)]
    if not text.startswith("zipf:"):
        return lambda: keys[int(drawn.random() * number)]
    sums = list(accumulate(1.0 / (rank + 1) for rank in range(number)))
    whole = sums[-1]
    return lambda: keys[min(bisect_left(sums, drawn.random() * whole), number - 1)]

"""The shares of a stream's partitions in ``maxOffsetsPerTrigger``."""

from __future__ import annotations

import random
from collections.abc import Mapping
from typing import TypeVar

Place = TypeVar("Place")


def limited(behind: Mapping[Place, int], most: int, seed: int) -> dict[Place, int]:
    """Return how many messages to read of each partition so that they are ``most`` in all, or all that there are.

    Each partition with messages gets one, or if they are more than ``most`` the same chance of one; beyond that each
    share is proportional to its backlog. It is rounded up or down by chance, as in systematic sampling (Madow 1944): on
    average each gets its share, and none is left out for long, whatever the others have. The same ``seed`` gives the
    same choice.
    """
    busy = {place: messages for place, messages in behind.items() if messages > 0}
    total = sum(busy.values())
    if total <= most:
        return dict(behind)
    # In fractions of a message with a common denominator; each gets its share of ``more`` beside ``least``.
    if len(busy) >= most:
        parts, least, more = len(busy), most, 0
    else:
        parts = least = total - len(busy)
        more = most - len(busy)
    due = random.Random(seed).randrange(parts)
    found = dict.fromkeys(behind, 0)
    for place, messages in busy.items():
        due += least + more * (messages - 1)
        found[place], due = divmod(due, parts)
    return found

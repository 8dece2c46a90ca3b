"""How ``maxOffsetsPerTrigger`` is shared out among the partitions of a stream."""

from __future__ import annotations

import random
from collections.abc import Mapping
from typing import TypeVar

Place = TypeVar("Place")


def limited(behind: Mapping[Place, int], most: int, seed: int) -> dict[Place, int]:
    """How many messages to read of each partition so that they are ``most`` in all, or all that there are.

    Each partition with messages has one, or where they are more than ``most`` the same chance of one; beyond that each
    is due in proportion to what it has. What it is due is rounded up or down by chance, as by systematic sampling
    (Madow 1944): on the average each gets just that, and none is forgotten for long, whatever the others have. With the
    same ``seed`` the same is chosen.
    """
    busy = {place: messages for place, messages in behind.items() if messages > 0}
    total = sum(busy.values())
    if total <= most:
        return dict(behind)
    # In parts of a message, of which there are so many in one; each is due its part of ``more`` beside ``least``.
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

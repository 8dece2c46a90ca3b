"""Bodies of messages are measured where the bytes of a queue are bounded, as far as their frames are at hand.

What comes while the broker runs is: only a start finds messages that have to be read for it (decision 0061).
"""

from __future__ import annotations

from typing import Final

from journal.constants import KIB, MIB
from txbroker.queues.queue_deliveries import LevelDeliveries

PIECE: Final = 256 * KIB
"""Bytes of messages that are looked at in one step: 1 ms, if they are small."""
MOST: Final = 1 << 15
"""Most messages that are measured in one step: the frames of gaps stand for many (decision 0065)."""
AT_ONCE: Final = 4 * MIB
"""Most bytes of messages from before the start that are looked at in one turn."""


def catch_up(state: LevelDeliveries, end: int) -> bool:
    """Measure messages below offset ``end`` as far as they are at hand; return whether all of them are measured."""
    left = AT_ONCE if state.measured < state.redelivered_below else None
    while (first := state.measured) < end:
        data = state.store.at_hand(first, PIECE) if left is None or left > 0 else None
        if not data:
            return False
        state.measure(data, min(end, first + MOST))
        assert state.measured > first, "frames from an offset on have the message of that"
        left = None if left is None else left - len(data)
    return True

"""The pauses between two tries of what does not work for now, in seconds."""

from __future__ import annotations

from typing import Final

FIRST_PAUSE: Final = 0.05
LONGEST_PAUSE: Final = 5.0


def longer(pause: float) -> float:
    """Return the pause after this one: twice as long, up to the longest."""
    return min(LONGEST_PAUSE, pause * 2)

"""What became of messages that a client publishes with confirms: told once a turn, in the order of their tags.

A method may speak of all tags up to one. It does so where all of these are confirmed, as RabbitMQ has it, so a turn's
forces cost a client one method, whatever exchanges its messages went to.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from journal.offset_set import OffsetSet

Tell = Callable[[int, bool, bool], object]
_FIRST: Final = 1


class Confirms:
    """The confirms of one channel. ``tell(tag, multiple, taken)`` takes what its client is told."""

    def __init__(self, tell: Tell) -> None:
        self._tell = tell
        self._lowest = _FIRST
        """The lowest tag of which its client was not told."""
        self._told = OffsetSet()
        """Tags above that one of which it was."""
        self._taken, self._refused = OffsetSet(), OffsetSet()
        """Tags of which it is to be told."""

    def add(self, first: int, count: int, taken: bool) -> None:
        """Note that messages were taken, or were not: those of so many tags from ``first`` on."""
        (self._taken if taken else self._refused).add_range(first, first + count)

    def flush(self) -> None:
        """Tell the client what was noted."""
        if not (self._taken or self._refused):
            return
        runs = [(*run, True) for run in self._taken.runs()] + [(*run, False) for run in self._refused.runs()]
        self._taken, self._refused = OffsetSet(), OffsetSet()
        last = acked = 0
        """The last tag of the acknowledgement that is to be told next, and how many it speaks of."""
        for first, end, taken in sorted(runs):
            is_lowest = first == self._lowest
            if acked and not (taken and is_lowest):
                self._tell(last, acked > 1, True)
                acked = 0
            if not is_lowest:
                for tag in range(first, end):
                    self._tell(tag, False, taken)
                self._told.add_range(first, end)
                continue
            if taken:
                last, acked = end - 1, acked + end - first
            else:
                self._tell(end - 1, end - first > 1, False)
            self._lowest = self._told.missing_from(end)
            self._told.discard_below(self._lowest)
        if acked:
            self._tell(last, acked > 1, True)

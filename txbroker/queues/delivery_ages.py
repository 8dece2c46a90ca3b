"""When messages of a queue were delivered that has a timeout for consumers: in generations, not one by one."""

from __future__ import annotations

from collections import deque
from typing import Final

from journal.offset_set import OffsetSet

GENERATIONS: Final = 32
"""What is delivered within this part of the timeout is of one age, and late together (decision 0062)."""


class DeliveryAges:
    """Generations of deliveries, each as one set of offsets. Those that were acknowledged or returned since may be in
    them still; those that were delivered again are in the generation of that alone.

    What is delivered at a time is late by ``timeout`` µs after that, at the earliest, and at most a 32nd of it later.
    """

    __slots__ = ("_generations", "_width", "late", "timeout")

    def __init__(self, timeout: int) -> None:
        self.timeout, self._width = timeout, max(1, timeout // GENERATIONS)
        self._generations: deque[tuple[int, OffsetSet]] = deque()
        """(the last time that is not of it any more, offsets), oldest first."""
        self.late = OffsetSet()
        """Deliveries that are late, and of which nobody has taken notice."""

    def delivered(self, offsets: OffsetSet, now: int) -> bool:
        """Note deliveries of messages that were not delivered before; return whether a generation begins with them."""
        if self._generations and now < self._generations[-1][0]:
            self._generations[-1][1].update(offsets)
            return False
        self._generations.append((now + self._width, offsets.copy()))
        return True

    def forget(self, offsets: OffsetSet) -> None:
        """Forget deliveries: these messages are given to somebody else, or anew."""
        for _, known in self._generations:
            known.difference_update(offsets)
        self.late.difference_update(offsets)

    def forget_below(self, offset: int) -> None:
        """Forget deliveries of messages below an offset, which are finished."""
        for _, known in self._generations:
            known.discard_below(offset)

    def next_due(self) -> int | None:
        """Return the journal time at which the oldest generation is late; None if there is none."""
        return self._generations[0][0] + self.timeout if self._generations else None

    def pass_time(self, now: int) -> None:
        """Add to those that are late what has become so by now."""
        while (due := self.next_due()) is not None and due <= now:
            self.late.update(self._generations.popleft()[1])

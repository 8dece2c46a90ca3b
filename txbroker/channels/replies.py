"""The answers of a channel, in the order of the methods that they answer, though some of them wait for the journal.

A client may say several methods at once, and takes the first answer that comes for that of the first method.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from functools import partial
from typing import Any


class _Place:
    """The place of one answer: what is done once those before it were sent."""

    __slots__ = ("is_ready", "steps")

    def __init__(self, *steps: Callable[[], object], is_ready: bool = False) -> None:
        self.steps, self.is_ready = list(steps), is_ready


class Replies:
    """Sends the answers of one channel. ``send`` takes their bytes."""

    def __init__(self, send: Callable[[bytes], object]) -> None:
        self._send = send
        self._line: deque[_Place] = deque()
        self._own: _Place | None = None
        """The place of the answer that is being made."""

    def later(self, *calls: Callable[..., object]) -> list[Callable[..., None]]:
        """Return these callbacks so that what the one which is called sends has its place in the order of now."""
        place = _Place()
        self._line.append(place)
        return [partial(self._answer, place, call) for call in calls]

    def _answer(self, place: _Place, call: Callable[..., object], *answer: Any) -> None:
        before, self._own = self._own, place
        try:
            call(*answer)
        finally:
            self._own = before
        place.is_ready = True
        while self._line and self._line[0].is_ready:
            for step in self._line.popleft().steps:
                step()

    def send(self, data: bytes) -> None:
        """Send bytes behind the answers before them."""
        self.then(partial(self._send, data))

    def then(self, step: Callable[[], object]) -> None:
        """Call once the answers before that were sent."""
        if self._own is not None:
            self._own.steps.append(step)
        elif self._line:
            self._line.append(_Place(step, is_ready=True))
        else:
            step()

    def drop(self) -> None:
        """Send nothing of what waits: the connection has ended."""
        self._line.clear()

"""Answers that wait for a force, counted: small requests can have large answers, and a force can take long."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from journal.constants import KIB

if TYPE_CHECKING:
    from journal.engine import Engine

LARGE: Final = 4 * KIB
"""Smaller answers are not counted: a request counts for itself, and there are at most as many as it has bytes."""


class WaitingAnswers:
    """Hands answers on once all that they may tell of is forced. ``bytes`` is what the large ones take that wait."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine
        self.bytes = 0

    def put(self, deliver: Callable[[bytes], None], answer: bytes) -> None:
        """Have ``deliver(answer)`` called once everything accepted so far is forced and shown; now, if it is."""
        size = len(answer)
        if size < LARGE:
            self._engine.when_forced(deliver, answer)
            return
        self.bytes += size
        self._engine.when_forced(self._deliver, (deliver, answer))

    def _deliver(self, waiting: tuple[Callable[[bytes], None], bytes]) -> None:
        deliver, answer = waiting
        self.bytes -= len(answer)
        deliver(answer)

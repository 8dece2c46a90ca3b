"""The line of TLS handshakes: so many begin in a second at most, and the connections above that wait unread, in order.

A handshake costs the broker some milliseconds and its peer next to nothing.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from typing import Any, Final

from twisted.internet.interfaces import IDelayedCall, IReactorTime

MAX_A_SECOND: Final = 100
AT_ONCE: Final = 5
"""Handshakes that may begin together after a while without any."""
PACE: Final = 1 / (MAX_A_SECOND - AT_ONCE)
"""Seconds from one to the next: with those at once there are no more than :data:`MAX_A_SECOND` in any second."""
MAX_WAITING: Final = 320
"""Connections in the line: all strangers, and all that watch. The last one waits for three seconds and a half."""


class HandshakeLine:
    """The connections whose handshakes are to begin, of all listeners."""

    def __init__(self, clock: IReactorTime) -> None:
        self._clock = clock
        self._waiting: OrderedDict[Any, Callable[[], None]] = OrderedDict()
        self._free_at = clock.seconds() - PACE * AT_ONCE
        """When the last one would have begun, had all of them waited for the pace."""
        self._next: IDelayedCall | None = None

    def __len__(self) -> int:
        return len(self._waiting)

    @property
    def is_free(self) -> bool:
        """Whether a handshake would begin at once."""
        return not self._waiting and self._delay() < PACE / 1_000  # sums of floats are not exact

    @property
    def is_full(self) -> bool:
        """Whether no more may wait."""
        return len(self._waiting) >= MAX_WAITING

    def enter(self, connection: Any, begin: Callable[[], None]) -> bool:
        """Return True if its handshake may begin at once; else ``begin`` is called when it may."""
        if self.is_free:
            self._count()
            return True
        self._waiting[connection] = begin
        self._plan()
        return False

    def leave(self, connection: Any) -> None:
        """Forget one, because it is gone."""
        self._waiting.pop(connection, None)
        if not self._waiting and self._next is not None:
            self._next.cancel()
            self._next = None

    def _delay(self) -> float:
        return self._free_at + PACE - self._clock.seconds()

    def _count(self) -> None:
        self._free_at = max(self._free_at + PACE, self._clock.seconds() - PACE * (AT_ONCE - 1))

    def _plan(self) -> None:
        if self._next is None and self._waiting:
            self._next = self._clock.callLater(max(self._delay(), 0.0), self._go_on)

    def _go_on(self) -> None:
        self._next = None
        if self._waiting:
            _, begin = self._waiting.popitem(last=False)
            self._count()
            self._plan()
            begin()

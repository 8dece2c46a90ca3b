"""The time that a program takes for what it was handed out: if it is too long, its consumer leaves the group."""

from __future__ import annotations

from collections.abc import Callable

from txbroker.client.consumer.options import ConsumerOptions
from txbroker.client.core.core import Core
from txbroker.client.core.waits import Alarm
from txbroker.errors import HandlerTimedOut


class HandlerWatch:
    """Calls ``on_timeout`` when a program has had messages for ``handler_timeout`` seconds and asks for nothing.

    The alarm is set anew only when it has rung, so a message costs no alarm.
    """

    def __init__(
        self, core: Core, options: ConsumerOptions, on_timeout: Callable[[HandlerTimedOut], object]
    ) -> None:
        assert options.handler_timeout is not None
        self._core = core
        self._group = options.group
        self._limit = options.handler_timeout
        self._on_timeout = on_timeout
        self._since: float | None = None
        self._alarm: Alarm | None = None

    def begins(self, has_messages: bool) -> None:
        """Note that the program gets messages now, or asks for some."""
        self._since = self._core.clock() if has_messages else None
        if has_messages and (self._alarm is None or self._alarm.call is None):
            self._alarm = self._core.waits.alarm(self._limit, self._rang)

    def close(self) -> None:
        """Watch no more."""
        self._since = None
        if self._alarm is not None:
            self._alarm.cancel()

    def _rang(self) -> None:
        since = self._since
        if since is None or self._core.fatal is not None:
            return
        left = since + self._limit - self._core.clock()
        if left > 0:
            self._alarm = self._core.waits.alarm(left, self._rang)
            return
        self._on_timeout(
            HandlerTimedOut(
                f"the program had messages of group {self._group!r} for longer than handler_timeout={self._limit:g} s; "
                "this consumer has left the group, and others handle again what it had and did not commit. Ask for "
                "messages again to join again"
            )
        )
        self._since = None  # last: after an interrupt before this line it is done again

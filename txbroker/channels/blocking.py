"""What a full disk is to one connection: its client is told (``connection.blocked``), and what nobody would be told is
lost waits for room.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from txbroker.amqp.connection_methods import ConnectionBlocked, ConnectionUnblocked, Method

REASON: Final = "free space on the broker's disk is below the low-water mark"


class Blocking:
    """Tells one connection, by ``send``. Only clients that want to know are told, and only those that publish.

    ``hold(1)`` has nothing more read of the connection, until ``hold(-1)``.
    """

    def __init__(self, send: Callable[[Method], None], hold: Callable[[int], None]) -> None:
        self._send, self._hold = send, hold
        self._is_told = self._has_ended = False
        self._waiting: list[Callable[[], object]] = []
        self.is_wanted = self.publishes = False

    def refused(self) -> None:
        """A message was refused for that."""
        if self.is_wanted and not (self._is_told or self._has_ended):
            self._is_told = True
            self._send(ConnectionBlocked(REASON))

    def wait(self, again: Callable[[], object]) -> None:
        """Have nothing more read until there is room, and ``again`` was called, which publishes what was refused."""
        if not self._has_ended:
            self._hold(1)
            self._waiting.append(again)

    def look(self, is_full: bool) -> None:
        """Tell it that the disk is full, or go on when there is room again; every second or so."""
        if is_full:
            if self.publishes:
                self.refused()
        elif self._waiting:  # it is told once this was taken: there may be less room than it needs
            waiting, self._waiting = self._waiting, []
            for again in waiting:
                again()
                self._hold(-1)
        elif self._is_told:
            self._is_told = False
            self._send(ConnectionUnblocked())

    def stop(self) -> None:
        """Forget what waits, and say nothing more: the connection has ended, or ends."""
        self._has_ended = True
        self._hold(-len(self._waiting))
        self._waiting.clear()

"""Whether clients are told that the broker takes nothing for now (``connection.blocked``): the disk is nearly full."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from txbroker.amqp.connection_methods import ConnectionBlocked, ConnectionUnblocked, Method

REASON: Final = "free space on the broker's disk is below the low-water mark"


class Blocking:
    """Tells one connection, by ``send``. Only clients that want to know are told, and only those that publish."""

    def __init__(self, send: Callable[[Method], None]) -> None:
        self._send = send
        self._is_told = False
        self.is_wanted = False

    def refused(self) -> None:
        """A message was refused for that."""
        if self.is_wanted and not self._is_told:
            self._is_told = True
            self._send(ConnectionBlocked(REASON))

    def look(self, is_full: bool) -> None:
        """Tell it when there is room again; every second or so."""
        if self._is_told and not is_full:
            self._is_told = False
            self._send(ConnectionUnblocked())

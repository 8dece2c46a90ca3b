"""Whose bytes are read: the memory that peers can make the broker hold is bounded here.

Two things are counted: what has been accepted and is not forced yet (a slow disk), and what has arrived of
messages that are not whole yet (many peers, or hostile ones).
"""

from __future__ import annotations

from collections import deque
from enum import IntFlag
from typing import Protocol

from journal.constants import KIB, MIB

FREE = 64 * KIB
"""A part of a message up to this size is not counted: it is what one read of a socket gives."""

ASSEMBLY_BUDGET = 64 * MIB
"""Default bound of the counted parts of messages of all connections."""


class Pause(IntFlag):
    """Why a connection is not read; it is read while there is no reason."""

    PENDING = 1
    ASSEMBLY = 2
    UNSENT = 4
    ENDING = 8
    TURN = 16


class Readable(Protocol):
    """A connection that can be read or not."""

    def pause(self, reason: Pause) -> None:
        """Do not read for this reason."""

    def resume(self, reason: Pause) -> None:
        """This reason is gone."""


class HasPending(Protocol):
    """What counts bytes that are accepted and not forced yet, or wait to be judged: the broker."""

    @property
    def pending_bytes(self) -> int:
        """How many there are now."""


class Intake:
    """Pauses connections while there is too much of anything, and resumes them."""

    def __init__(self, broker: HasPending, pending: int, assembly: int = ASSEMBLY_BUDGET) -> None:
        self._broker = broker
        self._pending = pending
        self._producers: set[Readable] = set()
        self._assembly = assembly
        self._parts: dict[Readable, int] = {}
        self._waiting: deque[Readable] = deque()
        self.assembled = 0

    def produced(self, connection: Readable) -> None:
        """The connection has sent messages to keep: stop reading it if the disk does not keep up."""
        if self._broker.pending_bytes > self._pending and connection not in self._producers:
            self._producers.add(connection)
            connection.pause(Pause.PENDING)

    def published(self) -> None:
        """Something was forced: read the producers again if only half of the budget is taken."""
        if self._producers and self._broker.pending_bytes <= self._pending // 2:
            producers, self._producers = self._producers, set()
            for connection in producers:
                connection.resume(Pause.PENDING)

    def holds(self, connection: Readable, part: int) -> None:
        """So many bytes of an unfinished message have arrived on the connection (0: none).

        Over the budget, the one that asked for more waits until another has finished or is gone; one of them
        is always read, so there is progress.
        """
        counted = part if part > FREE else 0
        before = self._parts.get(connection, 0)
        if counted == before:
            return
        self.assembled += counted - before
        if counted:
            self._parts[connection] = counted
            if self.assembled > self._assembly and len(self._parts) - len(self._waiting) > 1:
                self._waiting.append(connection)
                connection.pause(Pause.ASSEMBLY)
        else:
            del self._parts[connection]
            self._admit()

    def gone(self, connection: Readable) -> None:
        """The connection is closed."""
        self._producers.discard(connection)
        if connection in self._waiting:
            self._waiting.remove(connection)
        self.holds(connection, 0)

    def _admit(self) -> None:
        while self._waiting and (self.assembled <= self._assembly or len(self._parts) == len(self._waiting)):
            self._waiting.popleft().resume(Pause.ASSEMBLY)
            if self.assembled > self._assembly:
                return

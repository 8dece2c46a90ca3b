"""Whose bytes are read: the memory that peers can make the broker hold is bounded here.

Two things are counted: what has been accepted and is not forced yet (a slow disk), and what has arrived of
messages that are not whole yet (many peers, or hostile ones).
"""

from __future__ import annotations

from collections.abc import Callable
from enum import IntFlag
from typing import Protocol

from journal.constants import MIB

ASSEMBLY_BUDGET = 64 * MIB
"""Default bound of what all connections have sent of messages that are not whole, or wait for their turn."""

STALLED = 3
"""Looks, a second apart, after which a message that does not grow is given up while memory is short."""


class Pause(IntFlag):
    """Why a connection is not read; it is read while there is no reason."""

    PENDING = 1
    ASSEMBLY = 2
    UNSENT = 4
    ENDING = 8
    TURN = 16
    HELD = 32


class Readable(Protocol):
    """A connection that can be read or not."""

    def pause(self, reason: Pause) -> None:
        """Do not read for this reason."""

    def resume(self, reason: Pause) -> None:
        """This reason is gone."""

    def give_up(self, held: int) -> None:
        """It holds so many bytes of a message that does not go on, and others need the memory: end it."""


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
        self._waiting: set[Readable] = set()
        self._seen: dict[Readable, tuple[int, int]] = {}
        self.assembled = 0
        self.on_short: Callable[[bool], None] = _nothing
        """Called with True when half of the budget is used, with False when most of that is free again."""
        self.short = False

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
        """So many bytes of messages have arrived on the connection that are not whole, or wait (0: none).

        Over the budget those that hold most wait until others have finished or are gone; one of them is always read, so
        there is progress, and whoever sends little is not kept waiting by those who hold much.
        """
        before = self._parts.get(connection, 0)
        if part == before:
            return
        self.assembled += part - before
        if part:
            self._parts[connection] = part
            if self.assembled > self._assembly and connection not in self._waiting:
                self._hold_back()
        else:
            del self._parts[connection]
            self._waiting.discard(connection)
            self._admit()
        self._tell()

    def gone(self, connection: Readable) -> None:
        """The connection is closed."""
        self._producers.discard(connection)
        self.holds(connection, 0)

    def look(self) -> None:
        """To be called every second: while memory is short, end who is read and does not go on with its message.

        If nobody goes on, one of those that wait is read: so each of them finishes its message, or is ended, in time.
        """
        parts, before = self._parts, self._seen
        self._seen = {}
        if self.assembled <= self._assembly:
            return
        goes_on = False
        for connection in [connection for connection in parts if connection not in self._waiting]:
            part, looks = before.get(connection, (0, 0))
            looks = looks + 1 if part == parts[connection] else 0
            goes_on = goes_on or not looks
            self._seen[connection] = (parts[connection], looks)
        for connection in [one for one, (_, looks) in self._seen.items() if looks >= STALLED]:
            connection.give_up(parts[connection])
        if self._waiting and not goes_on:
            self._let_on()

    def _hold_back(self) -> None:
        reading = [connection for connection in self._parts if connection not in self._waiting]
        if len(reading) > 1:
            largest = max(reading, key=self._parts.__getitem__)
            self._waiting.add(largest)
            largest.pause(Pause.ASSEMBLY)

    def _admit(self) -> None:
        """Let on those that hold least, while there is room, or nobody else."""
        while self._waiting and (self.assembled <= self._assembly or len(self._parts) == len(self._waiting)):
            self._let_on()
            if self.assembled > self._assembly:
                return

    def _let_on(self) -> None:
        least = min(self._waiting, key=self._parts.__getitem__)
        self._waiting.discard(least)
        least.resume(Pause.ASSEMBLY)

    def _tell(self) -> None:
        """Say that memory gets short, or is not any more."""
        if self.short and self.assembled <= self._assembly // 4:
            self.short = False
            self.on_short(False)
        elif not self.short and self.assembled > self._assembly // 2:
            self.short = True
            self.on_short(True)


def _nothing(_: bool) -> None:
    """Nobody has to be told."""

"""The bounds on memory that peers can make the broker hold, kept by not reading their connections.

Two kinds are counted, for each session and for all: what waits for a force
(:mod:`txbroker.broker.sessions.accounts`), and parts of messages that are not whole, or wait for their turn. One rule
holds for both: a session that holds more than is free is not read (Choudhury and Hahne's dynamic thresholds, IEEE/ACM
Transactions on Networking 6(2), 1998). So a few sessions cannot take all, a session that holds little finds room, and
the number of sessions need not be known.

What waits for a force is released by itself. Parts of messages are not. So while some sessions wait for that memory,
the one that needs the fewest bytes to finish its message continues beyond the limit, and so do sessions that need few,
a few at a time. A session that is read has to bring :data:`PACE` a second, or is ended. Sessions that wait are read a
little, too, as many at a time as there is room for, so that it shows which ones do not continue.
"""

from __future__ import annotations

from collections.abc import Callable, Sized
from enum import IntFlag
from typing import Final, Protocol

from journal.constants import KIB, MIB

ASSEMBLY_BUDGET = 64 * MIB
"""Default bound of the bytes, over all connections, of messages that are not whole, or wait for their turn."""

PACE: Final = 32 * KIB
"""How much a message has to grow from one check to the next, a second later, while memory is short."""

STALLED: Final = 3
"""After so many checks in succession without that growth, a message is given up."""

SPARE: Final = 4
"""The fraction of either budget that may be used beyond it, by waiting sessions that are tried and by small ones."""

QUICK: Final = 32
"""A message that needs no more than this fraction of its budget continues while the spare fraction has room for it."""

LEAST_PEERS: Final = 128
"""Among fewer peers than this each may have as much accepted as among so many, however little is free."""


class Pause(IntFlag):
    """A reason why a connection is not read; it is read while there is none."""

    PENDING = 1
    ASSEMBLY = 2
    UNSENT = 4
    ENDING = 8
    TURN = 16
    HELD = 32
    HANDSHAKE = 64
    QUOTA = 128


class Holds(Protocol):
    """A counter of what waits for a force: a session, or the accounts of all."""

    @property
    def held(self) -> int:
        """Return the present count."""


class Readable(Protocol):
    """A connection that can be read or not."""

    @property
    def session(self) -> Holds:
        """Return its session, which counts what waits for a force."""

    def pause(self, reason: Pause) -> None:
        """Do not read, for this reason."""

    def resume(self, reason: Pause) -> None:
        """End this reason not to read."""

    def give_up(self, held: int) -> bool:
        """End a message of ``held`` bytes that does not grow, because others need the memory.

        Returns False if it cannot be blamed, because it is not read for another reason.
        """


class _Part:
    """The sent part of a connection's message: ``bytes``, of which ``left`` are to come, 0 if it waits for its turn.

    ``seen`` is its size at the check numbered ``look``, ``slow`` the number of checks at which it had not grown. It may
    have ``allowed`` bytes whatever is free.
    """

    __slots__ = ("allowed", "bytes", "left", "look", "seen", "slow")

    def __init__(self) -> None:
        self.bytes = self.left = self.allowed = self.seen = self.slow = 0
        self.look = -1


class Intake:
    """Pauses connections while they hold too much of either kind, and resumes them."""

    def __init__(self, accounts: Holds, pending: int, assembly: int = ASSEMBLY_BUDGET) -> None:
        self._accounts = accounts
        self.pending = pending
        self._assembly = assembly
        self.connections: Sized = ()
        """All connections with parts of messages."""
        self._producers: dict[Readable, None] = {}
        self._parts: dict[Readable, _Part] = {}
        self._waiting: dict[Readable, None] = {}
        self._quick: dict[Readable, None] = {}
        """Connections that continue to the end of a message without room, because they need little."""
        self._first: Readable | None = None
        """The connection that continues without room, because it needs least. If any waits, there is one."""
        self._look = 0
        self.assembled = 0
        self.on_short: Callable[[bool], None] = _nothing
        """Called with True when half of the budget is used, with False when most of that is free again."""
        self.short = False

    # -- what waits for a force ------------------------------------------------------------------------

    def produced(self, connection: Readable) -> None:
        """Check a connection that had more waiting for a force than was free: read it only if it holds little."""
        if connection.session.held > self._share() and connection not in self._producers:
            self._producers[connection] = None
            connection.pause(Pause.PENDING)

    def published(self) -> None:
        """Resume connections after a force that hold no more than half of what is free."""
        if self._producers:
            share = self._share(2)
            for connection in [one for one in self._producers if one.session.held <= share]:
                del self._producers[connection]
                connection.resume(Pause.PENDING)

    def _share(self, part: int = 1) -> int:
        little = self.pending // (SPARE * max(len(self.connections), LEAST_PEERS))
        return max((self.pending - self._accounts.held) // part, little)

    # -- parts of messages -------------------------------------------------------------------------------

    @property
    def room(self) -> int:
        """The bytes that are free for parts of messages, less what was accepted beyond its own budget."""
        return self._assembly - self.assembled - max(self._accounts.held - self.pending, 0)

    def holds(self, connection: Readable, part: int, left: int = 0) -> None:
        """Note that ``part`` bytes have come of a message that needs ``left`` more, or wait for their turn (0:
        none do).
        """
        known = self._parts.get(connection)
        if known is None:
            if not part:
                return
            known = self._parts[connection] = _Part()
        grown = part - known.bytes
        self.assembled += grown
        known.bytes, known.left = part, left
        if part and left and grown >= 0:
            if part > known.allowed and part > self.room and not self._goes_beyond(connection):
                self._hold_back(connection)
        else:
            self._ends(connection, known)
        self._tell()

    def gone(self, connection: Readable) -> None:
        """Note that the connection is closed."""
        self._producers.pop(connection, None)
        self.holds(connection, 0)

    def look(self) -> None:
        """Call this every second: while sessions wait for memory, end those that are read and do not continue."""
        self._look += 1
        if not self._waiting:
            self._look += 1  # earlier sizes are not judged
            return
        given_up: list[tuple[Readable, _Part]] = []
        for connection, part in self._parts.items():
            was_read = connection not in self._waiting or part.bytes >= part.allowed > 0
            if part.left and was_read and part.look == self._look - 1:
                part.slow = part.slow + 1 if part.bytes - part.seen < PACE else 0
                if part.slow >= STALLED:
                    given_up.append((connection, part))
            part.allowed, part.seen, part.look = 0, part.bytes, self._look
        for connection, part in given_up:
            if not connection.give_up(part.bytes):
                part.slow = 0
        self._try_some()

    def _goes_beyond(self, connection: Readable) -> bool:
        """Return whether it is read without room; one that needs little is, from now on, if the spare has that much."""
        if connection is self._first or connection in self._quick:
            return True
        first, left = self._first, self._lacks(connection)
        if left > self._assembly // QUICK:
            return False
        others = self._parts[first].bytes if first is not None else 0
        taken = sum(map(self._lacks, self._quick)) - self.room - others
        if taken + left > self._assembly // SPARE:
            return False
        self._quick[connection] = None
        return True

    def _hold_back(self, connection: Readable) -> None:
        """Do not read it, or not the first one if that needs more."""
        first = self._first
        if first is None or self._parts[connection].left < self._parts[first].left:
            self._waiting.pop(connection, None)
            self._first = connection
            connection.resume(Pause.ASSEMBLY)
            if first is None:
                return
            connection = first
        self._waiting[connection] = None
        connection.pause(Pause.ASSEMBLY)

    def _ends(self, connection: Readable, part: _Part) -> None:
        """Continue others after a message is whole or gone: those with room, or the one that needs least."""
        part.allowed, part.look, part.slow = 0, -1, 0
        if not part.bytes:
            del self._parts[connection]
        self._quick.pop(connection, None)
        if self._first is connection:
            self._first = None
        if connection in self._waiting:
            self._let_on(connection)
        if not self._waiting:
            return
        room = self.room
        for one in [one for one in self._waiting if self._parts[one].bytes <= room]:
            self._let_on(one)
        if self._waiting and self._first is None:
            self._first = min(self._waiting, key=self._lacks)
            self._let_on(self._first)

    def _try_some(self) -> None:
        spare = self._assembly // SPARE + min(self.room, 0)
        for connection in list(self._waiting)[: max(spare, 0) // PACE]:
            part = self._parts[connection]
            part.allowed = part.bytes + PACE
            self._let_on(connection)

    def _let_on(self, connection: Readable) -> None:
        del self._waiting[connection]
        connection.resume(Pause.ASSEMBLY)

    def _lacks(self, connection: Readable) -> int:
        return self._parts[connection].left

    def _tell(self) -> None:
        """Report that memory gets short, or is not short any more."""
        if self.short and self.assembled <= self._assembly // 4:
            self.short = False
            self.on_short(False)
        elif not self.short and self.assembled > self._assembly // 2:
            self.short = True
            self.on_short(True)


def _nothing(_: bool) -> None:
    """Do nothing."""

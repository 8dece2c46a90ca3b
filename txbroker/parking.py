"""Requests that must wait: while a large commit is applied in slices, and while memory is short.

They wait in the order in which they came, over all sessions; what a session sends after a request that waits,
waits too, so that no session's requests overtake each other.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

from journal.applying import is_small
from journal.transaction import TransactionNumber
from txbroker.codec import encode
from txbroker.commands import (
    Add,
    AddOffsets,
    AskStatus,
    Cancel,
    Commit,
    DescribeTopics,
    Fetch,
    OffsetsForTime,
    PinFiles,
    Ping,
    Prepare,
    Request,
    Send,
    Timed,
    UnpinFiles,
)
from txbroker.errors import MemoryExhausted
from txbroker.fetch_try import CallLater
from txbroker.scheduler import STINT
from txbroker.session import Session

if TYPE_CHECKING:
    from journal.engine import Engine

READING: Final = frozenset(
    {Ping, Fetch, Cancel, DescribeTopics, OffsetsForTime, AskStatus, PinFiles, UnpinFiles}
)
"""Requests that decide nothing and ask about nothing that a commit under way is changing."""

NEEDS_MEMORY: Final = frozenset({Send, Add, Timed})

TRIES: Final = 3
"""A request at the head of the line that finds no memory so often, each time after a flush, is refused."""

SLICE: Final = 1000
"""Requests carried out in one turn when the line moves, in no more than a stint, so that the reactor is not held up."""

WEIGHT: Final = 200
"""Bytes that a request counts for beside its head and data."""

HEAD_WEIGHT: Final = 8
"""Bytes that each byte of a head counts for: decoded it takes up to so many times its size."""

CarryOut = Callable[[Session, Any, memoryview], None]
GiveUp = Callable[[Session, Any, MemoryExhausted], None]


class Disconnected:
    """Stands in line for a session that has ended while its requests wait."""

    correlation = 0  # of the refusal that nobody gets, after the engine has failed


class _Waiting:
    __slots__ = ("command", "data", "session", "tries", "weight")

    def __init__(self, session: Session, command: Any, data: memoryview, tries: int) -> None:
        self.session = session
        self.command = command
        self.data = data
        self.tries = tries
        head = len(encode(command)) if isinstance(command, Request) else 0
        self.weight = WEIGHT + HEAD_WEIGHT * head + len(data)


class Parking:
    """The line. ``carry_out`` may raise ``MemoryExhausted``; ``give_up`` refuses a request for want of memory.

    ``bytes`` is what the waiting requests hold: the service counts it with what is accepted and not yet
    forced.
    """

    def __init__(
        self, engine: Engine, carry_out: CarryOut, give_up: GiveUp, call_later: CallLater | None
    ) -> None:
        self._engine = engine
        self._transactions = engine.transactions
        self._carry_out = carry_out
        self._give_up = give_up
        self._call_later = call_later
        self._moving = self._woken = False
        self.line: deque[_Waiting] = deque()
        self.bytes = 0

    def must_wait(self, session: Session, command: Any) -> bool:
        """Whether a request has to get in line now."""
        if session.parked:
            return True
        applying, kind = self._transactions.applies.current, type(command)
        if applying is None:
            return bool(self.line) and kind in NEEDS_MEMORY
        if kind in READING:
            return False
        return (applying.short_of_memory and kind in NEEDS_MEMORY) or not self._passes(session, command)

    def _passes(self, session: Session, command: Any) -> bool:
        """Whether neither it nor its answer has to do with the logs that a large commit is being put into."""
        table = self._transactions
        if isinstance(command, Send):
            return command.partition not in table.applies.promised
        if isinstance(command, Commit):
            known = table.live.get(TransactionNumber(command.session or session.number, command.serial))
            if known is None or command.operator or not is_small(known, table.small_bytes):
                return False  # one after the other: a large one that passes would be passed for ever
            return table.applies.promised.isdisjoint(known.partitions)
        return isinstance(command, Add | AddOffsets | Prepare)

    def park(self, session: Session, command: Any, data: memoryview, tries: int = 0) -> None:
        """Put a request at the end of the line."""
        waiting = _Waiting(session, command, data, tries)
        self.line.append(waiting)
        session.parked += 1
        self.bytes += waiting.weight

    def drop(self, session: Session) -> None:
        """Let go of a session's requests, unanswered, as if they had been lost on their way."""
        for waiting in [waiting for waiting in self.line if waiting.session is session]:
            self.line.remove(waiting)
            session.parked -= 1
            self.bytes -= waiting.weight

    def short_of_memory(self, session: Session, command: Any, data: memoryview) -> None:
        """Put a request in line that found no memory, and ask for a flush."""
        self.park(session, command, data, 1)
        self._engine.want_flush()

    def move(self) -> None:
        """The engine is idle, or memory has come back: carry out what waits, in order, as far as it goes.

        After a failure nothing is: it would only be refused, and what has nothing to do with it be logged as its cause.
        """
        self._woken = True
        if self._moving:
            return
        self._moving = True
        try:
            while self._woken:
                self._woken = False
                self._move()
        finally:
            self._moving = False

    def _move(self) -> None:
        line, left, clock = self.line, SLICE, self._engine.clock
        end = clock.seconds() + STINT
        while line and not self._engine.busy and not self._engine.failed:
            if (not left or clock.seconds() >= end) and self._call_later is not None:
                self._call_later(0, self.move)
                return
            left -= 1
            waiting = line[0]
            try:
                self._carry_out(waiting.session, waiting.command, waiting.data)
            except MemoryExhausted as error:
                waiting.tries += 1
                if waiting.tries < TRIES:
                    self._engine.want_flush()
                    return
                self._give_up(waiting.session, waiting.command, error)
            line.popleft()
            waiting.session.parked -= 1
            self.bytes -= waiting.weight

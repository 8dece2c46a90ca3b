"""Requests that must wait: while a large commit is applied in slices, memory is short or the journal is behind.

They wait in one line, in the order in which they came, over all sessions. Later requests of a session that waits wait
too, so that no session's requests overtake each other. Requests with few bytes do not wait for memory behind others:
when there is none for many bytes, there mostly is for few.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final

from journal.constants import GROUP_BYTES, MIB
from journal.transaction_states import TransactionNumber
from journal.transactions.commit_application import is_small
from txbroker.broker.fetches.fetch_attempt import CallLater
from txbroker.broker.sessions.accounts import Accounts
from txbroker.broker.sessions.scheduler import QUANTUM, STINT
from txbroker.broker.sessions.session import Session
from txbroker.errors import MemoryExhausted
from txbroker.wire.codec import encode
from txbroker.wire.messages import (
    Add,
    AddOffsets,
    AskOutcome,
    AskStatus,
    Cancel,
    ClaimPartitions,
    CloseSession,
    Commit,
    CommitOffsets,
    DescribeTopics,
    Fetch,
    FetchOffsets,
    FindMessages,
    ListExchanges,
    ListQueues,
    ListSessions,
    Login,
    OffsetsForTime,
    OpenProducer,
    PinFiles,
    Ping,
    Prepare,
    Request,
    Rollback,
    Send,
    TakeMessages,
    UnpinFiles,
)

if TYPE_CHECKING:
    from journal.engine.engine import Engine

READING: Final = frozenset(
    {Ping, Fetch, Cancel, DescribeTopics, OffsetsForTime, FindMessages, AskStatus, PinFiles, UnpinFiles}
    | {ListSessions, CloseSession, TakeMessages, ListQueues, ListExchanges}
)
"""Requests that decide nothing and do not depend on what a commit under way is changing."""

TRIES: Final = 3
"""A request at the head of the line that has found no memory so often, each time when all logs were flushed, is
refused.
"""

SMALL: Final = QUANTUM
"""Requests with up to this many bytes of messages do not wait behind those of other sessions that found no memory."""

LARGE: Final = MIB
"""Requests with this many bytes of messages or more have to leave some memory free, for small ones."""

AHEAD: Final = 2 * GROUP_BYTES
"""Such a request may bring the unforced bytes up to this: one group is written and forced, another one fills."""

LITTLE: Final = MIB
"""If no more bytes than this are unforced, it is carried out whatever its size."""

KEPT: Final = 64
"""It leaves this fraction of all memory for messages free."""

PASSING: Final = MIB
"""Most bytes of passing requests from one move of the line to the next, so that the line gets its turn."""

SLICE: Final = 1000
"""Most requests carried out in one turn when the line moves, within a stint, so that the reactor is not held up."""

WEIGHT: Final = 200
"""Bytes that a request counts for beside its head and data."""

HEAD_WEIGHT: Final = 8
"""How many bytes each byte of a head counts for: decoded it takes up to so many times its size."""

CarryOut = Callable[[Session, Any, memoryview], None]
GiveUp = Callable[[Session, Any, MemoryExhausted], None]


class Disconnected:
    """Stands in line for a session that has ended while its requests wait."""

    correlation = 0  # of the refusal that no client gets, after the engine has failed


class _Waiting:
    __slots__ = ("command", "data", "session", "tries", "until", "weight")

    def __init__(self, session: Session, command: Any, data: memoryview, tries: int, until: int) -> None:
        self.until = until
        """How many flushes must be over for the next try to count, if logs are flushed all the time."""
        self.session = session
        self.command = command
        self.data = data
        self.tries = tries
        head = len(encode(command)) if isinstance(command, Request) else 0
        self.weight = WEIGHT + HEAD_WEIGHT * head + len(data)


class ParkedRequests:
    """Parked requests, in one line.

    ``carry_out`` may raise ``MemoryExhausted``; ``give_up`` refuses a request for lack of memory.

    ``bytes`` is what the waiting requests hold: it is on their sessions' accounts, on which they stay until they are
    forced.
    """

    def __init__(
        self,
        engine: Engine,
        sessions: Mapping[int, Session],
        accounts: Accounts,
        carry_out: CarryOut,
        give_up: GiveUp,
        call_later: CallLater | None,
    ) -> None:
        self._engine = engine
        self._sessions = sessions
        self._accounts = accounts
        self._table, self._large_commits = engine.transactions.table, engine.large_commits
        self._carry_out = carry_out
        self._give_up = give_up
        self._call_later = call_later
        self._moving = self._woken = self._awaits = False
        self.line: deque[_Waiting] = deque()
        self.bytes = 0
        self._passed = 0

    def must_wait(self, session: Session, command: Any, size: int) -> bool:
        """Return whether a request with ``size`` bytes of messages has to get in line now."""
        applying, kind = self._large_commits.current, type(command)
        if kind is Login:
            return False  # a session that waits here must not end meanwhile because its token has
        if session.parked:
            return True
        if applying is None:
            return bool(self.line) and size > 0 and not self._is_small(size)
        if kind in READING:
            return False
        if not self._passes(session, command):
            return True
        return applying.short_of_memory and size > 0 and not self._is_small(size)

    def _is_small(self, size: int) -> bool:
        if size > SMALL or self._passed + size > PASSING:
            return False
        self._passed += size
        return True

    def _passes(self, session: Session, command: Any) -> bool:
        """Return whether neither the request nor its answer depends on what a large commit changes."""
        if isinstance(command, Send):
            return command.partition > 0 and command.partition not in self._large_commits.promised
        if isinstance(command, Commit):
            return self._may_commit(session, command)
        if isinstance(command, CommitOffsets | ClaimPartitions | FetchOffsets):
            return not self._large_commits.moves(command.group)
        if isinstance(command, AskOutcome | Rollback):
            return self._is_settled(session, command)
        return isinstance(command, Add | AddOffsets | Prepare | OpenProducer)

    def _may_commit(self, session: Session, command: Commit) -> bool:
        """Return whether a commit is for other partitions than the large ones, and is not large itself."""
        table = self._table
        applies, number = (
            self._large_commits,
            TransactionNumber(command.session or session.number, command.serial),
        )
        known, carries = table.live.get(number), bool(command.runs or command.positions or command.cancels)
        if command.operator or applies.ends(number) or (known is None and not carries):
            return False
        # Large commits go one after the other: otherwise they would be passed for ever.
        if known is not None and (carries or not is_small(known, table.application.small_bytes)):
            return False
        partitions = known.partitions if known is not None else [partition for partition, _ in command.runs]
        if any(partition < 0 for partition in partitions):
            return False  # an exchange may lead to any queue
        return applies.promised.isdisjoint(partitions) and not any(
            applies.moves(each.group) for each in command.positions
        )

    def _is_settled(self, session: Session, command: AskOutcome | Rollback) -> bool:
        """Return whether neither a commit under way nor a waiting request of its session decides about a
        transaction.
        """
        table = self._table
        number: TransactionNumber | None
        if command.serial:
            number = TransactionNumber(command.session or session.number, command.serial)
        elif command.xid is not None:
            number = table.live_xids.get(command.xid) or table.outcomes.by_xid.get(command.xid)
        else:
            number = None
        if number is None:
            return False  # its prepare may be in line
        if isinstance(command, Rollback) and number not in table.live:
            return False
        owner = self._sessions.get(number.session)
        return not (self._large_commits.ends(number) or (owner is not None and owner.parked))

    def park(self, session: Session, command: Any, data: memoryview, tries: int = 0) -> None:
        """Put a request at the end of the line."""
        waiting = _Waiting(session, command, data, tries, self._when_all_flushed())
        self.line.append(waiting)
        session.parked += 1
        self.bytes += waiting.weight
        self._accounts.add(session, waiting.weight)

    def drop(self, session: Session) -> None:
        """Drop a session's requests, unanswered, as if they had been lost on their way."""
        for waiting in [waiting for waiting in self.line if waiting.session is session]:
            self.line.remove(waiting)
            session.parked -= 1
            self.bytes -= waiting.weight
            self._accounts.add(session, -waiting.weight)

    def holds_back(self, session: Session, command: Any, data: memoryview) -> bool:
        """Put a request with :data:`LARGE` bytes of messages or more in line, if it has to wait; return whether
        it has.
        """
        if self._is_scarce(len(data)):
            self.short_of_memory(session, command, data)
            return True
        if self._is_behind(len(data)):
            self.park(session, command, data)
            self._await_force()
            return True
        return False

    def _is_scarce(self, size: int) -> bool:
        """Return whether the request would take the memory that is kept for small ones."""
        allocator = self._engine.allocator
        return allocator.available() - size < allocator.budget // KEPT

    def _is_behind(self, size: int) -> bool:
        """Return whether the journal has so many bytes to write that the next request would wait long."""
        pending = self._engine.pending_bytes
        return pending > LITTLE and pending + size > AHEAD

    def _await_force(self) -> None:
        if not self._awaits:
            self._awaits = True
            under_way, _ = self._engine.under_way()
            if under_way is None:
                self._engine.when_forced(self._written, None)
            else:
                under_way.waiters.append((self._written, None))

    def _written(self, _: None) -> None:
        self._awaits = False
        self.move()

    def short_of_memory(self, session: Session, command: Any, data: memoryview) -> None:
        """Put a request in line that found no memory, and ask for a flush."""
        self.park(session, command, data, 1)
        self._engine.want_flush()

    def _tried(self, waiting: _Waiting) -> None:
        """Count a try that has found no memory if all logs were flushed since the last one that counted. The end of a
        single flush may free nothing: large messages are in memory once for all logs.
        """
        housekeeping = self._engine.housekeeping
        if not housekeeping.is_flushing or housekeeping.flushed >= waiting.until:
            waiting.tries += 1
            waiting.until = self._when_all_flushed()

    def _when_all_flushed(self) -> int:
        """Return how many flushes are over when all logs are flushed that have something to flush now."""
        return self._engine.housekeeping.flushed + max(1, len(self._engine.dirty))

    def move(self) -> None:
        """Carry out waiting requests, in order, as far as possible: the engine is idle, or memory was freed.

        After a failure none is carried out: it would only be refused, and an unrelated request would be logged as the
        failure's cause.
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
        self._passed = 0
        line, left, clock = self.line, SLICE, self._engine.clock
        end = clock.seconds() + STINT
        while line and not self._engine.busy and not self._engine.failed:
            if (not left or clock.seconds() >= end) and self._call_later is not None:
                self._call_later(0, self.move)
                return
            left -= 1
            waiting = line[0]
            is_large = len(waiting.data) >= LARGE
            if is_large and self._is_behind(len(waiting.data)):
                self._await_force()
                return
            try:
                if is_large and waiting.tries + 1 < TRIES and self._is_scarce(len(waiting.data)):
                    raise MemoryExhausted(
                        f"{len(waiting.data)} bytes would take what is kept for small requests"
                    )
                self._carry_out(waiting.session, waiting.command, waiting.data)
            except MemoryExhausted as error:
                self._tried(waiting)
                if waiting.tries < TRIES:
                    self._engine.want_flush()
                    return
                self._give_up(waiting.session, waiting.command, error)
            line.popleft()
            waiting.session.parked -= 1
            self.bytes -= waiting.weight
            self._accounts.add(waiting.session, -waiting.weight)
            self._accounts.charge(waiting.session, waiting.weight)

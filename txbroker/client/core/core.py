"""The core of every client, without I/O: requests become bytes, bytes become answers, and losses have rules.

A front end (blocking, Twisted, asyncio) owns the socket and the alarm clock. It informs the core by
:meth:`Core.connecting`, :meth:`Core.connected`, :meth:`Core.received`, :meth:`Core.lost` and :meth:`Core.tick`. It
sends :meth:`Core.take_output`, wakes up at :meth:`Core.wakeup`, and calls the functions in ``Core.later`` (the
callbacks of users) outside of its locks. Only one thread at a time may use the core.
"""

from __future__ import annotations

import logging
import math
from collections import deque
from collections.abc import Callable
from typing import Any
from weakref import WeakKeyDictionary

from journal.constants import MAX_FRAME, MAX_REQUEST_DATA
from txbroker import errors
from txbroker.client.core.answers import Answers
from txbroker.client.core.attends import Attends
from txbroker.client.core.call import AnswerLost, AnswerType, Call, check, error_of, in_doubt, lost, name_of
from txbroker.client.core.login import Credentials, Entering, Step, replaced
from txbroker.client.core.options import Backoff, Lost, Options, repetition
from txbroker.client.core.parting import Parting, parting
from txbroker.client.core.phase import Phase
from txbroker.client.core.promise import ended, settled
from txbroker.client.core.schedule_time import ScheduleTime
from txbroker.client.core.waits import Waits
from txbroker.wire import messages
from txbroker.wire.codec import encode
from txbroker.wire.messages import AnyAnswer, Done, GoingAway, Ping, Refused, Request, Welcome

log = logging.getLogger("txbroker.client")

LEAVING = 2.0
"""Seconds that a client that closes waits at most until the broker knows that it leaves its groups."""

WRITTEN = 256 << 10
"""With this many bytes of output or fewer, a caller that waits for the output to be sent resumes."""

HELD = 0.002
"""Seconds for which a request that may be sent with the next one waits for that at most."""


class Core:
    """Connection, session, unanswered requests.

    ``clock`` gives seconds that only grow, ``wall`` µs since 1970 UTC, ``random`` 0 to 1. ``elapsed`` gives seconds
    that also grow while the machine sleeps; None is ``clock``.
    """

    session = 0
    abort = ""
    """If not empty, the front end must drop the connection, for this reason, and then call :meth:`lost`."""
    fatal: errors.TxBrokerError | None = None
    reason = "no connection has been made yet"
    asking = 0
    """The thread that calls the user's partitioner just now: it must not use the client meanwhile."""
    is_urgent = False
    """Whether output is to go out before the caller goes on."""
    held_until = math.inf
    """When output that waits for other requests must go out without them; infinity if none waits."""
    _parting: Parting | None = None
    """The broker's last words on this connection."""
    _held_bytes = 0
    _alone_since = math.inf
    """Since when the last request that may be held has met no other; infinity if it has."""
    _alone_for = 0.0
    """Seconds after which it met one."""

    def __init__(
        self,
        options: Options,
        clock: Callable[[], float],
        random: Callable[[], float],
        wall: Callable[[], int],
        credentials: Credentials | None = None,
        elapsed: Callable[[], float] | None = None,
    ) -> None:
        self.options = options.check()
        self.clock, self.wall, self.random = clock, wall, random
        self.phase = Phase.DOWN
        self.former: messages.FormerSession | None = None
        """The session that the next login shows: that of the last welcome, or one of another connection."""
        self.max_frame, self.max_request = MAX_FRAME, MAX_REQUEST_DATA
        self.max_fetch_positions = 1  # every broker takes one, until it reports its limit
        self.identity = ""
        self.later: deque[Callable[[], object]] = deque()
        self.on_changed: list[Callable[[str, bool], None]] = []
        """Told of topics that this client has altered or deleted: the name, and whether it is still there."""
        self.on_open: list[Callable[[], None]] = []
        self.on_lost: list[Callable[[], None]] = []
        self.on_tick: list[Callable[[float], float]] = []
        self.on_mend: list[Callable[[], None]] = []
        self.consumers: WeakKeyDictionary[Any, Any] = WeakKeyDictionary()
        """The consumers of the connection that have a group, each with its commits."""
        self.on_held: Callable[[], object] = lambda: None
        """Called when a consumer has begun to wait for an undecided transaction."""
        self.attending: dict[Attends, None] = {}
        """The memberships of groups, and what is to finish messages later."""
        self._output: list[bytes] = []
        self._sending: tuple[Call[Any], bytes] | None = None
        self._pending: dict[int, Call[Any]] = {}
        self._waiting: dict[int, Call[Any]] = {}
        self._backoff = Backoff(random, most=options.longest_pause)
        self._connect_at, self._next_expiry = 0.0, math.inf
        self.waits = Waits(clock)
        self.schedule_time = ScheduleTime(self, elapsed or clock)
        self.output_bytes, self._correlation, self._drain_by = 0, 0, math.inf
        self._drained = self.waits.line(lambda: self.output_bytes <= min(WRITTEN, self.options.max_buffered))
        self._opened = self.waits.line(lambda: self.phase in (Phase.OPEN, Phase.CLOSED))
        self.thread: Callable[[], int] = lambda: 1  # a front end with threads replaces this
        self._told, self._heard = False, 0.0
        self.answers = Answers(self)
        self.entering = Entering(self, credentials)
        self.on_tick.append(self.entering.tick)
        self.on_lost.append(self.entering.lost)

    # -- for the operations ------------------------------------------------------------------------

    def correlation(self) -> int:
        """Return a number for the next request."""
        self._correlation += 1
        return self._correlation

    def request(
        self,
        request: Request,
        expected: type[AnswerType],
        data: bytes = b"",
        timeout: float | None = None,
        rule: Lost | None = None,
        held: bool = False,
    ) -> Call[AnswerType]:
        """Send a request, now or once there is a connection; raises as :func:`check`. ``timeout`` None: the
        client's.

        With ``held`` it may wait for :data:`HELD` seconds, to be sent with the next request. It does if the last one
        would have met the next request by then.
        """
        check(request)
        seconds, now = self.options.timeout if timeout is None else timeout, self.clock()
        call = Call(request, expected, data, now + seconds)
        if self._alone_since <= now:
            self._alone_for, self._alone_since = now - self._alone_since, math.inf
        if rule is not None:
            call.rule = rule
        self.submit(call)
        if held and self.phase is Phase.OPEN:
            self._alone_since = now
            if self._alone_for <= HELD:
                self.held_until = min(self.held_until, now + HELD)
                self._held_bytes += len(self._output[-1])
        return call

    def submit(self, call: Call[Any]) -> None:
        """Send a call, or keep it until there is a connection."""
        if self.fatal is not None:
            call.abandoned(self.fatal)
            return
        if call.deadline < self._next_expiry:
            self._next_expiry = call.deadline
        if self.phase is Phase.OPEN:
            self.send(call)
        else:
            self._waiting[call.request.correlation] = call

    def send(self, call: Call[Any]) -> None:
        """Send a call on the present connection. One of which that broker does not know all that it asks for fails."""
        if call.request.since > self.entering.version:
            self.entering.refuse(call)
            return
        if call.attempts:
            call.request = repetition(call.request)
        message = self.packed(call.request, call.data)
        self._sending = call, message
        call.attempts += 1
        self._pending[call.request.correlation] = call
        self._output.append(message)
        self.output_bytes += len(message)
        self._sending = None

    def mend(self) -> None:
        """Repair after an interrupt: send what may be missing of a request."""
        if self._sending is not None:
            call, message = self._sending
            self._pending[call.request.correlation] = call
            if not (self._output and self._output[-1] is message):
                self._output.append(message)
            self._sending = None
        self.output_bytes = sum(map(len, self._output))
        self._held_bytes = 0
        self._opened.mend()
        self._drained.mend()
        for callback in self.on_mend:
            callback()
        for each in list(self.attending):
            each.mend()

    def has(self, call: Call[Any]) -> bool:
        """Return whether a call waits for its answer, or for a connection."""
        correlation = call.request.correlation
        return self._pending.get(correlation) is call or self._waiting.get(correlation) is call

    def post(self, request: Request, data: bytes | memoryview = b"") -> None:
        """Send a request on the present session, without expecting an answer."""
        self.put(self.packed(request, data))

    def put(self, message: bytes) -> None:
        """Send a message that :meth:`packed` has made."""
        self._output.append(message)
        self.output_bytes += len(message)

    def has_put(self, message: bytes) -> bool:
        """Return whether that message was put last, and not sent yet; for a caller that was interrupted in
        :meth:`put`.
        """
        return bool(self._output) and self._output[-1] is message

    def packed(self, request: Request, data: bytes | memoryview) -> bytes:
        """Return the bytes of a request, to be sent now."""
        return encode(request, data)

    def watch(self, call: Call[Any]) -> None:
        """Take an answer or refusal for a correlation that :meth:`post` uses; until :meth:`unwatch`."""
        self._pending[call.request.correlation] = call

    def unwatch(self, correlation: int) -> None:
        """Ignore later answers for a correlation."""
        self._pending.pop(correlation, None)

    def give_up(self, call: Call[Any]) -> bool:
        """Ignore later answers for a call; return whether it was sent."""
        self._waiting.pop(call.request.correlation, None)
        return self._pending.pop(call.request.correlation, None) is not None

    async def opened(self, deadline: float) -> int:
        """Wait for a session and return its number; raises ConnectionUnavailable after ``deadline``."""
        if self.phase is Phase.OPEN and self._opened.is_free:  # 15 calls less for each transaction
            return self.session
        with self._opened.turn() as turn:
            turn.join(deadline)
            has_come = await turn
        if self.fatal is not None:
            raise self.fatal
        if not has_come:
            raise errors.ConnectionUnavailable(
                f"no connection to the broker ({self.reason}); nothing was sent"
            )
        return self.session

    @property
    def busy(self) -> int:
        """Return how many requests have no answer yet."""
        return len(self._pending) + len(self._waiting)

    def check_open(self) -> None:
        """Raise the error that every request would meet, if there is one."""
        if self.fatal is not None:
            raise self.fatal

    # -- for the front end -------------------------------------------------------------------------

    def connection_due(self) -> bool:
        """Return whether the front end should connect now."""
        return self.phase is Phase.DOWN and self.clock() >= self._connect_at

    def connecting(self) -> None:
        """Note that the front end has begun to connect."""
        self.phase = Phase.CONNECTING

    def connected(self) -> None:
        """Say hello on a new connection."""
        self.phase = Phase.GREETING
        self.abort = ""
        self.take_output()
        self.answers.begin()
        self.entering.begin()

    def welcomed(self, welcome: Welcome) -> None:
        """Begin a session: send the waiting requests, in order."""
        if self.identity and welcome.identity != self.identity:
            error = replaced(welcome.identity, self.identity)
            self.stop(error)
            self.abort = str(error)
            return
        self.identity = welcome.identity
        self.phase = Phase.OPEN
        if self._told:
            log.warning("there is a connection to the broker again")
            self._told = False
        self.session = welcome.session
        self.schedule_time.told(welcome.schedule_time, self.entering.said_at)
        self.former = messages.FormerSession(welcome.session, welcome.start, welcome.secret)
        self.max_frame = welcome.max_frame
        self.max_request = welcome.max_request
        self.max_fetch_positions = welcome.max_fetch_positions
        self._backoff.reset()
        waiting, self._waiting = self._waiting, {}
        for call in waiting.values():
            self.send(call)
        for callback in self.on_open:
            callback()
        self._opened.move()

    def received(self, data: bytes) -> None:
        """Take bytes of the broker. If they break the protocol, this sets ``abort``."""
        self._heard = self.clock()
        self.answers.received(data)

    def give(self, head: AnyAnswer, body: memoryview) -> int:
        """Give an answer to its call; return how many waited for it. Raises PeerViolation for an answer of another
        kind.
        """
        call = self._pending.get(head.correlation)
        if call is None:
            if type(head) is GoingAway and self.phase is Phase.OPEN:
                self.phase, self._parting = Phase.LEFT, parting(head, self.options)
                self.reason = self._parting.reason
                self.release()
                self.expire_by(self._heard + self.options.timeout)
            return 0  # its caller ran out of time
        waiting = call.waiting
        if type(head) is Refused:
            call.refused(self._named(error_of(head), head.correlation))
        elif isinstance(head, call.expected):
            call.answered(head, body)
        else:
            raise errors.PeerViolation(f"{type(call.request).__name__} was answered by {type(head).__name__}")
        self._pending.pop(head.correlation, None)  # last: if interrupted before, it is asked again
        return waiting

    def _named(self, error: errors.TxBrokerError, correlation: int) -> errors.TxBrokerError:
        """Say of a refusal which request it was, as the broker's log (at level debug) does."""
        if self.session:
            error.request = f"{self.session}-{correlation}"
        return error

    def lost(self, reason: str) -> None:
        """Note that the connection is lost, or could not be made. Each unanswered request is treated by its rule."""
        if self.phase is Phase.CLOSED:
            return
        self.answers.drain()
        pause = self._backoff.next()
        if self._parting is not None:
            reason, pause = self._parting.reason, max(pause, self._parting.pause)
        self.phase, self.reason, self._parting = Phase.DOWN, reason, None
        self.abort = ""
        self.take_output()
        self._connect_at = self.clock() + pause
        pending, self._pending = self._pending, {}
        over = [call for call in pending.values() if call.is_over]
        pending = {number: call for number, call in pending.items() if not call.is_over}
        again = {number: call for number, call in pending.items() if call.rule is not Lost.ASK}
        self._waiting = again | self._waiting
        for call in pending.values():
            if call.rule is Lost.ASK:
                call.refused(
                    AnswerLost(f"the connection died ({reason}) before {name_of(call)} was answered")
                )
        for call in over:
            call.finish()  # an interrupt came between its answer and the callers that wait for it
        for callback in self.on_lost:
            callback()
        if self.fatal is None and not self.options.reconnect:
            self.stop(errors.ConnectionUnavailable(f"the connection died ({reason}) and reconnect is off"))
        if self.fatal is None and not self._told:
            self._told = True  # once, however long it lasts: callers that wait should know the reason
            log.warning("no connection to the broker (%s); trying again", reason)
        self._drained.move()

    def stop(self, error: errors.TxBrokerError) -> None:
        """Give up connecting: every present and later request fails, changes that were sent with OutcomeUnknown."""
        self.answers.drain()
        self.fatal = self.fatal or error
        self.phase = Phase.CLOSED
        calls = [*self._pending.values(), *self._waiting.values()]
        self._pending, self._waiting = {}, {}
        for call in calls:
            if not call.attempts:
                call.abandoned(error)
            elif isinstance(error, errors.BrokerReplaced):
                call.abandoned(lost(call, error))
            else:
                call.abandoned(in_doubt(call, str(error)))
        self.take_output()
        for callback in self.on_lost:
            callback()
        self._opened.move()
        self._drained.move()
        self.waits.end()

    def take_output(self) -> list[bytes]:
        """Return the bytes to send, and remove them here."""
        output, self._output = self._output, []
        self.output_bytes = self._held_bytes = 0
        self.held_until = math.inf
        self.is_urgent = False
        self._drain_by = math.inf
        if self.phase is Phase.OPEN and not self._drained.is_free:
            self._drained.move()
            self._drain_by = self.clock() + self.options.timeout
            self.expire_by(self._drain_by)
        return output

    @property
    def might_hold(self) -> bool:
        """Whether the next request that may be held might be: the last one met another in time, or none yet."""
        return self._alone_for <= HELD or self._alone_since < math.inf

    @property
    def only_holds(self) -> bool:
        """Whether all the output may wait for other requests."""
        return self.output_bytes == self._held_bytes

    def release(self) -> None:
        """Let no output wait any longer: the front end sends all of it."""
        self._held_bytes = 0
        self.held_until = math.inf

    async def drained(self) -> None:
        """Wait until the front end has taken output, or the connection has died, as it does if nothing is
        sent in time.
        """
        with self._drained.turn() as turn:
            turn.join()
            if not turn.done and self._drain_by == math.inf:
                self._drain_by = self.clock() + self.options.timeout
                self.expire_by(self._drain_by)
            await turn

    def wakeup(self) -> float:
        """Return when :meth:`tick` should be called next, by the clock; infinity if nothing is due."""
        at = min(self._next_expiry, self.waits.next, self.held_until)
        if self.phase is Phase.DOWN and self._connect_at < at:
            at = self._connect_at
        return at

    @property
    def expiring(self) -> bool:
        """Return whether :meth:`tick` will find something out of time; if so, receive first what has come."""
        return min(self._next_expiry, self.waits.next) <= self.clock()

    def tick(self) -> None:
        """Do what is due."""
        now = self.clock()
        if now >= self.held_until:
            self.release()
        self.waits.ring(now)
        if now >= self._next_expiry:
            self.answers.drain()
            self._expire(now)

    def _expire(self, now: float) -> None:
        calls = [*self._pending.values(), *self._waiting.values()]
        for call in [call for call in calls if call.deadline <= now]:
            error: errors.TxBrokerError = errors.ConnectionUnavailable(
                f"no connection to the broker in time ({self.reason}); {name_of(call)} was not sent"
            )
            if call.attempts:
                error = in_doubt(call, f"no answer to {name_of(call)} in {self.options.timeout} s")
                if type(call) is Step or now - self._heard >= self.options.timeout:
                    self.abort = f"the broker has not answered for {self.options.timeout} s"
            if call.expired(error):
                self._pending.pop(call.request.correlation, None)
                self._waiting.pop(call.request.correlation, None)
        if now >= self._drain_by and not self._drained.is_free:
            self.abort = f"the broker has taken no bytes for {self.options.timeout} s"
            self._drain_by = math.inf
        silent_at = self._heard + self.options.timeout if self.phase is Phase.LEFT else math.inf
        if now >= silent_at:  # nothing more is sent, so nothing else would find out
            self.abort, silent_at = "the connection that the broker leaves does not end", math.inf
        self._next_expiry = math.inf
        later = [callback(now) for callback in self.on_tick]  # which may begin new waits
        rest = [call.deadline for call in (*self._pending.values(), *self._waiting.values())]
        self._next_expiry = min([self._next_expiry, self._drain_by, silent_at, *rest, *later])

    def expire_by(self, deadline: float) -> None:
        """Have ``on_tick`` called at ``deadline`` at the latest."""
        if deadline < self._next_expiry:
            self._next_expiry = deadline

    async def leave_groups(self) -> None:
        """End all memberships of groups, and finish what is to be finished later; returns once the broker knows, at
        once without a connection.
        """
        leaving = [call for each in list(self.attending) if (call := each.leave()) is not None]
        if self.phase is Phase.OPEN:
            for call in leaving:
                await settled(call)

    async def heard(self) -> None:
        """Return once the broker has read all requests, at once without a connection."""
        if self.phase is Phase.OPEN:
            await ended(self.request(Ping(self.correlation()), Done))

    async def ping(self) -> None:
        """Return once the broker has answered."""
        await self.request(Ping(self.correlation()), Done)

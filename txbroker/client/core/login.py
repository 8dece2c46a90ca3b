"""The login of a client: from its hello to a session, and again before what it has shown ends.

A mechanism may call back the program, read files or compute for long. So its steps run apart (:attr:`Entering.apart`),
on a thread of their own, and what they return comes back as an event like any other.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple, Protocol, TypeVar

from journal.parties import ANONYMOUS
from txbroker import errors
from txbroker.client.core.call import AnswerLost, Call, name_of
from txbroker.client.core.options import REFUSED_FOR_GOOD, Options
from txbroker.client.core.phase import Phase
from txbroker.client.core.schedule_time import ScheduleTime
from txbroker.wire import messages
from txbroker.wire.messages import Answer, Challenge, Hello, Login, Offered, Request, Welcome

log = logging.getLogger("txbroker.client")

T = TypeVar("T")

Done = Callable[[Any, BaseException | None], None]
Apart = Callable[[Callable[[], Any], Done], None]
"""Runs work where it may block, then calls back with its result or its error, as an event of the client."""

RENEW_AFTER: Final = 0.8
"""The part of a login's time after which the client logs in anew."""
TRY_AGAIN_AFTER: Final = 5.0
"""Seconds after which that is tried again, if what gives the token has failed; sooner if there is little time left."""
LEAST_PAUSE: Final = 0.2


class Channel(NamedTuple):
    """What a front end knows of a connection. ``secure``: it has TLS or does not leave the machine; ``certificate`` is
    the one that the broker has shown (DER), None without TLS.
    """

    secure: bool = False
    certificate: bytes | None = None


class Exchange(Protocol):
    """The client's side of one login, of ``txbroker.client.login``. Every call may block."""

    mechanism: str

    def answer(self, challenge: bytes) -> bytes:
        """Return the response to a challenge."""

    def finish(self, final: bytes) -> None:
        """Verify what came with the broker's success."""


class Credentials(Protocol):
    """What a client has to show."""

    def begin(self, offered: Sequence[str], channel: Channel) -> tuple[Exchange, bytes]:
        """Choose one of the offered mechanisms; return the exchange and its first message. May block."""


def at_once(work: Callable[[], Any], done: Done) -> None:
    """Run work here and now: for a front end that may block."""
    try:
        result = work()
    except BaseException as error:  # noqa: BLE001  (it is told)
        done(None, error)
    else:
        done(result, None)


class Enters(Protocol):
    """The part of the core that a login needs."""

    options: Options
    phase: Phase
    abort: str
    session: int
    former: messages.FormerSession | None
    clock: Callable[[], float]
    schedule_time: ScheduleTime

    def correlation(self) -> int:
        """Return a number for the next request."""

    def send(self, call: Call[Any]) -> None:
        """Send a call on the present connection."""

    def welcomed(self, welcome: Welcome) -> None:
        """Begin the session."""

    def stop(self, error: errors.TxBrokerError) -> None:
        """End the client: there will be no session."""

    def expire_by(self, deadline: float) -> None:
        """Have the time looked at then."""


class Entering:
    """A client's logins, one for each connection and more before a token ends. ``credentials`` None: it has none.

    ``channel()`` returns what is known of the present connection, once something has come on it; the front end sets it
    before the hello.
    """

    def __init__(self, core: Enters, credentials: Credentials | None) -> None:
        self._core = core
        self.credentials = credentials
        self.channel: Callable[[], Channel] = Channel
        self.apart: Apart = at_once
        self._attempt = object()
        self._exchange: Exchange | None = None
        self._mechanisms: list[str] = []
        self.server = ""
        """The broker's program, as it calls itself."""
        self.version = min(messages.VERSIONS)
        """The version of the protocol that is spoken on the present connection."""
        self.said_at = 0
        """When the last message of the login was sent, by the client's own time that schedule time is counted with."""
        self._by = self._again_at = self._ends_at = math.inf
        self._is_refused = self._is_renewing = False

    @property
    def looks_at(self) -> float:
        """When the client has to be looked after for a login anew, by its clock: before now while that goes on,
        infinity if there will be none. A front end that nobody uses must do so by itself.
        """
        return -math.inf if self._is_renewing else self._again_at

    def refuse(self, call: Call[Any]) -> None:
        """Fail a call that asks for what only a newer broker knows."""
        call.refused(
            errors.VersionRefused(
                f"the broker, {self.server}, does not know all that this {name_of(call)} asks for: the client is newer "
                "than the broker. Nothing has changed. Upgrade the broker first, or do without what was asked for "
                "(docs/upgrading.md)"
            )
        )

    def begin(self) -> None:
        """Say hello on a new connection; without credentials log in with it, which costs no time for a round trip."""
        core = self._core
        self._is_refused = False
        self._by = core.clock() + core.options.timeout
        core.expire_by(self._by)
        hello = Hello(core.correlation(), messages.MAGIC, list(messages.VERSIONS), core.options.client)
        core.send(Step(self, hello, Offered, self._by))
        if self.credentials is None:
            self._say(ANONYMOUS.upper(), b"")

    def answered(self, head: Answer) -> None:
        """Take an answer, and go on."""
        match head:
            case Offered():
                self._mechanisms, self.server, self.version = head.mechanisms, head.server, head.version
                self._begin_exchange()
            case Challenge() if self._exchange is not None:
                self._run(self._exchange.answer, lambda data: self._say("", data), head.data)
            case Welcome() if self._exchange is not None:
                self._run(self._exchange.finish, lambda _: self._entered(head), head.data)
            case Welcome():
                self._entered(head)

    def _begin_exchange(self) -> None:
        if self.credentials is None:
            if ANONYMOUS.upper() not in self._mechanisms:
                self.refused(
                    errors.AuthenticationFailed(
                        f"the broker lets nobody in without a login, by {', '.join(self._mechanisms) or 'nothing'}; "
                        "nothing was done. Give user and password_file, token_file, or a certificate: or name them in "
                        "TXBROKER_USER and TXBROKER_PASSWORD_FILE, or TXBROKER_TOKEN_FILE"
                    )
                )
        else:
            self._run(
                self.credentials.begin,
                self._go_on,
                self._mechanisms,
                self.channel(),
                failed=self._has_not_begun,
            )

    def _go_on(self, begun: tuple[Exchange, bytes]) -> None:
        self._exchange, first = begun
        self._say(self._exchange.mechanism, first)

    def _say(self, mechanism: str, data: bytes) -> None:
        core = self._core
        self.said_at = core.schedule_time.moment()
        after = core.former if mechanism and core.phase is not Phase.OPEN else None
        core.send(
            Step(self, Login(core.correlation(), mechanism, data, after), (Challenge, Welcome), self._by)
        )

    def _run(
        self,
        work: Callable[..., T],
        then: Callable[[T], None],
        *args: Any,
        failed: Callable[[errors.TxBrokerError], None] | None = None,
    ) -> None:
        """Run work apart, then go on with its result, unless the connection is another one by then."""
        attempt = self._attempt

        def done(result: Any, error: BaseException | None) -> None:
            if attempt is self._attempt:
                if error is None:
                    then(result)
                else:
                    (failed or self._failed)(_told(error))

        self.apart(lambda: work(*args), done)

    def _failed(self, error: errors.TxBrokerError) -> None:
        """End the client or the connection, because a step of this side has failed."""
        self.refused(error, "the login failed")

    def _has_not_begun(self, error: errors.TxBrokerError) -> None:
        """Try later again if the session goes on without it: the broker knows nothing of this login yet."""
        core = self._core
        if not self._is_renewing:
            self._failed(error)
            return
        now = core.clock()
        self._attempt, self._by, self._is_renewing = object(), math.inf, False
        left = self._ends_at - now
        if left > 0:
            self._again_at = now + min(TRY_AGAIN_AFTER, max(LEAST_PAUSE, left / 4))
            core.expire_by(self._again_at)
        log.warning(
            "the client could not log in anew: %s; its session ends in %.0f s. Until then this is tried again",
            error, max(0.0, left),
        )  # fmt: skip

    def _entered(self, welcome: Welcome) -> None:
        core = self._core
        self._exchange, self._by, self._is_renewing = None, math.inf, False
        if welcome.valid_for:
            now, valid_for = core.clock(), welcome.valid_for / 1e6
            self._again_at, self._ends_at = now + RENEW_AFTER * valid_for, now + valid_for
            core.expire_by(self._again_at)
        if core.phase is not Phase.OPEN:
            core.welcomed(welcome)

    def refused(self, error: errors.TxBrokerError, what: str = "the broker refused the session") -> None:
        """End the client if another try would be refused, too, else the connection. The first reason counts."""
        core = self._core
        if self._is_refused:
            return
        self._is_refused = True
        self.lost()
        is_first = not core.session and isinstance(error, errors.AuthenticationFailed | errors.Misuse)
        if is_first or isinstance(error, REFUSED_FOR_GOOD):
            core.stop(error)
            core.abort = str(error)
        elif not isinstance(error, AnswerLost):
            core.abort = f"{what}: {error}"

    def lost(self) -> None:
        """Forget the login of a connection that is lost."""
        self._attempt, self._exchange = object(), None
        self._by = self._again_at = math.inf
        self._is_renewing = False
        self.channel = Channel  # it may hold the connection

    def tick(self, now: float) -> float:
        """Log in anew if it is time, or give up the connection on which the login takes too long; return when to look
        next.
        """
        core = self._core
        if now >= self._by:
            self._by = math.inf
            late = f"the login has not ended for {core.options.timeout} s"
            if self._is_renewing and self._exchange is None:
                self._has_not_begun(
                    errors.AuthenticationFailed(f"{late}; what gives the password or token hangs")
                )
            else:
                core.abort = late
        if now >= self._again_at:
            self._again_at = math.inf
            if core.phase is Phase.OPEN:
                self._by, self._is_renewing = now + core.options.timeout, True
                self._begin_exchange()
        return min(self._by, self._again_at)


class Step(Call[Any]):
    """A request of a login, which is sent on one connection and never again."""

    __slots__ = ("_entering",)

    def __init__(self, entering: Entering, request: Request, expected: Any, deadline: float) -> None:
        super().__init__(request, expected, b"", deadline)
        self._entering = entering

    def answered(self, head: Answer, data: memoryview) -> None:
        """Go on with the login."""
        super().answered(head, data)
        self._entering.answered(head)

    def refused(self, error: errors.TxBrokerError) -> None:
        """End the client or the connection."""
        self.fail(error)
        self._entering.refused(error)


def _told(error: BaseException) -> errors.TxBrokerError:
    """Return the error of a step: its own, or that a function of the program has failed."""
    if isinstance(error, errors.TxBrokerError):
        return error
    failed = errors.AuthenticationFailed(
        f"what gives the password or token failed ({type(error).__name__}: {error}); nothing was sent that tells "
        "it. See the program's function, or file"
    )
    failed.__cause__ = error
    return failed


def replaced(identity: str, known: str) -> errors.BrokerReplaced:
    """Return the error for another broker behind the address, where numbers and xids mean other transactions."""
    return errors.BrokerReplaced(
        f"the broker behind the address has other data ({identity}) than the one this connection was made to "
        f"({known}); nothing was sent to it. Open a new connection to work with it. What is undecided at the old one "
        "can be ended only there, when it is back"
    )

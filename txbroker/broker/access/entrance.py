"""The entrance: from the hello of a connection to its session, and the end of logins that end (decision 0053).

:mod:`txbroker.login` judges who somebody is; here is what that means for a session.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import msgspec
from twisted.logger import Logger

from journal.folds.access import AccessFold
from journal.parties import ADMINISTRATOR, ANONYMOUS
from txbroker.broker.sessions.session import (
    Session,
    SessionAction,
    SessionInput,
    SessionState,
    input_of,
    judge_hello,
    unheard,
)
from txbroker.broker.sessions.settings import SECOND, BrokerSettings
from txbroker.errors import (
    AuthenticationFailed,
    LimitExceeded,
    PeerViolation,
    StorageUnavailable,
    TxBrokerError,
)
from txbroker.login.facts import ConnectionFacts
from txbroker.login.outcomes import Challenge, Failure, Pending, Step, Success
from txbroker.wire import messages
from txbroker.wire.codec import encode
from txbroker.wire.messages import MAX_LOGIN_DATA, VERSIONS, Hello, Login, Offered
from txbroker.wire.refusals import refusal

if TYPE_CHECKING:
    from journal.engine.engine import Engine
    from txbroker.broker.access.quotas import QuotaBook
    from txbroker.broker.access.welcome import Greeting
    from txbroker.broker.fetches.fetch_attempt import CallLater
    from txbroker.broker.sessions.rights import Policy
    from txbroker.login.logins import Logins

SERVER: Final = "txbroker"


class _Attempt:
    """An attempt to log in. While it waits, nothing more is read of its connection."""

    def __init__(self, entrance: Entrance, session: Session, first: Login) -> None:
        self._entrance = entrance
        self._session = session
        self._first = self._last = first
        self._as_of = entrance.access.changed
        self._exchange = entrance.logins.begin(entrance.facts(session), first.mechanism, self._judged)
        self._is_held = False

    def step(self, command: Login) -> None:
        """Have the authenticator judge the next message."""
        self._last = command
        self._judged(self._exchange.step(command.data))

    def _judged(self, outcome: Step) -> None:
        entrance, session, last = self._entrance, self._session, self._last
        match outcome:
            case Challenge():
                session.deliver(encode(messages.Challenge(last.correlation, outcome.data)))
            case Pending():
                self._hold()
            case Success():
                self._end(outcome.delay, partial(self._succeeded, outcome))
            case Failure():
                if entrance.may_tell():
                    entrance.log.warn(
                        "refused a login of {client!r} from {peer}: {reason}",
                        client=session.client, peer=session.peer, reason=outcome.reason,
                    )  # fmt: skip
                self._end(outcome.delay, partial(entrance.has_failed, session, last, outcome))

    def _succeeded(self, outcome: Success) -> None:
        """Let the client in, if its user is as it was when it began: what was judged may be taken away by now."""
        if self._is_as_it_was(outcome.principal):
            self._entrance.has_succeeded(self._session, self._first, self._last, outcome)
        else:
            self._entrance.refuse(self._session, self._last, _CHANGED)

    def _is_as_it_was(self, principal: str) -> bool:
        entrance = self._entrance
        if principal == ADMINISTRATOR:
            return True
        if principal == ANONYMOUS:
            return not entrance.facts(self._session).login_required
        return entrance.access.is_as_of(principal, self._as_of)

    def _end(self, delay: float, then: Callable[[], None]) -> None:
        if delay:
            self._hold()
        self._entrance.after(delay, partial(self._over, then))

    def _over(self, then: Callable[[], None]) -> None:
        if self._session.login is self:  # else its connection is gone
            self._session.login = None
            then()
            if self._is_held:
                self._session.hold(False)

    def _hold(self) -> None:
        if not self._is_held:
            self._is_held = True
            self._session.hold(True)

    def abandon(self) -> None:
        """Forget the attempt: its connection is gone."""
        self._session.login = None
        self._exchange.abandon()


_CHANGED: Final = StorageUnavailable(
    "the user was changed while this login was judged; nothing was done. Log in again, as clients do by themselves"
)


class Entrance:
    """The meaning of Hello and Login, and of requests that come before them.

    ``supersede(session)`` ends the session of a client that has connected anew, ``end(session)`` whatever a closed one
    has left, ``finish(session, reason)`` an open one. ``may_tell`` says whether the log may have a line about one that
    has not logged in: strangers must not fill the disk.
    """

    log = Logger()

    def __init__(
        self,
        engine: Engine,
        settings: BrokerSettings,
        sessions: dict[int, Session],
        greeting: Greeting,
        access: AccessFold,
        logins: Logins,
        policy: Callable[[], Policy],
        quotas: QuotaBook,
        call_later: CallLater | None,
        supersede: Callable[[Session], None],
        end: Callable[[Session], None],
        finish: Callable[[Session, str], None],
    ) -> None:
        self._engine = engine
        self._settings = settings
        self._sessions = sessions
        self._greeting = greeting
        self.access = access
        self.logins = logins
        self._policy = policy
        self._quotas = quotas
        self._call_later = call_later
        self.may_tell: Callable[[], bool] = lambda: True
        self._supersede, self._end, self._finish = supersede, end, finish
        self._ending: dict[Session, None] = {}
        self.succeeded = self.failed = 0
        """Logins with a principal, and refused ones."""
        self.on_login: Callable[[Session], object] = bool
        self.on_refused: Callable[[Session, str, str], object] = unheard
        """Called with who the client said to be, if that can be a user, and with the reason."""

    def take(self, session: Session, command: Any, data: memoryview) -> None:  # noqa: ARG002
        """Take a hello, a login, or a request that comes before or after its time."""
        what, error = input_of(command), None
        if what is SessionInput.HELLO and session.state is SessionState.AWAITING_HELLO:
            error = judge_hello(command)
            what = SessionInput.REFUSED_HELLO if error else what
        before = session.state
        action = session.step(what)
        if action is SessionAction.OFFER:
            self._offer(session, command)
        elif action is SessionAction.EXAMINE:
            self._examine(session, command)
        elif action is SessionAction.REFUSE_AND_CLOSE:
            unexpected = PeerViolation(
                f"{type(command).__name__} is not possible: the session is {before.value}"
            )
            self._dismiss(session, command.correlation, error or unexpected)

    def _offer(self, session: Session, command: Hello) -> None:
        session.client, session.facts = command.client, session.learn()
        version = max(set(command.versions) & set(VERSIONS))
        mechanisms = self.logins.mechanisms(self.facts(session))
        session.deliver(encode(Offered(command.correlation, version, SERVER, mechanisms)))

    # -- logins -----------------------------------------------------------------------------------

    def _examine(self, session: Session, command: Login) -> None:
        if len(command.data) > MAX_LOGIN_DATA:
            self.refuse(
                session,
                command,
                PeerViolation(f"{len(command.data)} bytes of a login, {MAX_LOGIN_DATA} are allowed"),
            )
            return
        if bool(command.mechanism) is (session.login is not None):
            said = "a second login begins" if command.mechanism else "a login goes on that has not begun"
            self.refuse(
                session, command, PeerViolation(f"{said}: a mechanism is named in its first message only")
            )
            return
        if command.mechanism:
            session.login = _Attempt(self, session, command)
        session.login.step(command)

    def facts(self, session: Session) -> ConnectionFacts:
        """Return what is known of a connection, with what is demanded just now."""
        assert session.facts is not None, "it has said hello"
        return msgspec.structs.replace(
            session.facts, login_required=self.access.demands_login or session.facts.is_exposed
        )

    def after(self, delay: float, call: Callable[[], None]) -> None:
        """Call later, or at once if there is no delay."""
        if delay and self._call_later is not None:
            self._call_later(delay, call)
        else:
            call()

    def has_failed(self, session: Session, command: Login, failure: Failure) -> None:
        """Refuse a login that has failed, and close."""
        self.failed += 1
        self.on_refused(session, failure.user, failure.reason)
        self.refuse(session, command, failure.error)

    def has_succeeded(self, session: Session, first: Login, command: Login, proven: Success) -> None:
        """Begin the session; or go on with it, if its client has only logged in anew."""
        is_new = session.state is not SessionState.OPEN
        error = self._obstacle(session, first, proven, is_new)
        if error is not None:
            self.refuse(session, command, error)
            return
        session.step(SessionInput.PROVEN)
        now, valid_for = self._engine.now(), self._valid_for(proven)
        session.valid_until = now + valid_for if valid_for else None
        self._ending.pop(session, None)
        if valid_for:
            self._ending[session] = None
        if is_new:
            former = self._greeting.former(first.after)
            if former is not None:
                self._supersede(former)
            self._greeting.begin(session, proven.principal, first.after)
            session.rights = self._policy().rights_of(session.principal)
            self._quotas.begin(session)
            self.succeeded += session.principal != ANONYMOUS
        if session.principal != ANONYMOUS:
            self.on_login(session)
        welcome = encode(self._greeting.welcome(session, command.correlation, proven.data, valid_for))
        if self._greeting.may_be_told:
            session.deliver(welcome)
        else:
            self._engine.when_forced(session.deliver, welcome)

    def _valid_for(self, proven: Success) -> int:
        """Return for how many µs a login is valid, at least one; 0 for without end."""
        if proven.valid_until is None:
            return 0
        return max(1, int(proven.valid_until * SECOND) - self._engine.clock.wall())

    def _obstacle(
        self, session: Session, first: Login, proven: Success, is_new: bool
    ) -> TxBrokerError | None:
        """Return why there can be no session though the client has proven who it is."""
        if not is_new:
            if proven.principal == session.principal:
                return None
            return PeerViolation(f"a session of {session.principal} logs in as {proven.principal}")
        error: TxBrokerError | None = None
        if self.facts(session).is_exposed and not self.access.is_on:
            error = AuthenticationFailed(
                "nobody gets in by an endpoint that others can reach while no login is demanded (txbroker access "
                "disable); nothing was done"
            )
        if error is None:
            error = self._greeting.judge(first.after, proven.principal)
        limit = self._settings.max_sessions
        goes_on = error is None and self._greeting.former(first.after) is not None
        is_bound = proven.principal != ADMINISTRATOR  # who must be able to come in and close some
        if error is None and is_bound and len(self._sessions) >= limit and not goes_on:
            error = LimitExceeded(f"there are {limit} sessions (max_sessions); try again later")
        if error is None and not goes_on:
            error = self._quotas.judge_session(proven.principal)
        return error

    def refuse(self, session: Session, command: Login, error: TxBrokerError) -> None:
        """Refuse a login that is not a failed one, and close."""
        if session.step(SessionInput.REFUSED_LOGIN) is SessionAction.REFUSE_AND_CLOSE:
            self._dismiss(session, command.correlation, error)

    def _dismiss(self, session: Session, correlation: int, error: TxBrokerError) -> None:
        """Send the peer the reason, and close."""
        session.deliver(encode(refusal(correlation, error)))
        session.close(str(error))
        self._end(session)

    # -- the end of a login -----------------------------------------------------------------------

    def forget(self, session: Session) -> None:
        """Note that a session has ended."""
        if session.login is not None:
            session.login.abandon()
        self._quotas.end(session)
        self._ending.pop(session, None)

    def look(self, now: int) -> None:
        """End the sessions whose logins have ended; every second or so."""
        for session in [each for each in self._ending if (each.valid_until or now) < now]:
            self._finish(
                session, "its login has ended (the token's exp), and the client has not logged in anew"
            )

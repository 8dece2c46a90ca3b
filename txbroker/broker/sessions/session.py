"""Sessions: the broker's state of one connection, and the table of what it may do in which state.

The documents' diagram and the test of every pair are made from the table. A session number is ``start number << 32 |
counter``, so none is given twice, over restarts too. A copy of the data gives its own starts' numbers out again, with
other nonces (:mod:`txbroker.broker.access.welcome`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from enum import Enum
from itertools import product
from typing import TYPE_CHECKING, Any, Final

from journal.offset_set import OffsetSet
from journal.parties import ANONYMOUS, MAX_CLIENT, Actor, Owner
from txbroker.broker.sessions.rights import Rights
from txbroker.errors import InvalidName, PeerViolation, TxBrokerError, VersionRefused
from txbroker.login.facts import ConnectionFacts
from txbroker.wire.messages import MAGIC, VERSIONS, Hello, Login
from txbroker.wire.secret import Secret

if TYPE_CHECKING:
    from txbroker.broker.sessions.allowance import Allowance


class SessionState(Enum):
    """The state of a session."""

    AWAITING_HELLO = "awaiting hello"
    LOGGING_IN = "logging in"
    OPEN = "open"
    CLOSED = "closed"


OPEN: Final = SessionState.OPEN
"""For the path of every request: finding a member through its class takes CPython 3.11 0.2 µs."""


class SessionInput(Enum):
    """An event that may happen to a session. ``PROVEN``: a login has shown who the peer is."""

    HELLO = "hello"
    REFUSED_HELLO = "refused hello"
    LOGIN = "login"
    PROVEN = "proven"
    REFUSED_LOGIN = "refused login"
    REQUEST = "request"
    DISCONNECT = "disconnect"


class SessionAction(Enum):
    """What the broker does after an input."""

    OFFER = "answer with the version and the mechanisms of a login"
    EXAMINE = "have the authenticator judge, and answer what it says"
    WELCOME = "answer with the session's number"
    HANDLE = "judge and answer the request"
    REFUSE_AND_CLOSE = "say why, then close the connection"
    END = "roll its active transactions back, forget its waiting fetches"
    IGNORE = "nothing"


_STATE, _INPUT, _ACTION = SessionState, SessionInput, SessionAction

TRANSITIONS: dict[tuple[SessionState, SessionInput], tuple[SessionState, SessionAction]] = {
    # whatever is not named below is a violation of the protocol
    **dict.fromkeys(product(SessionState, SessionInput), (_STATE.CLOSED, _ACTION.REFUSE_AND_CLOSE)),
    **{(state, _INPUT.DISCONNECT): (_STATE.CLOSED, _ACTION.END) for state in SessionState},
    (_STATE.AWAITING_HELLO, _INPUT.HELLO): (_STATE.LOGGING_IN, _ACTION.OFFER),
    (_STATE.LOGGING_IN, _INPUT.LOGIN): (_STATE.LOGGING_IN, _ACTION.EXAMINE),
    (_STATE.LOGGING_IN, _INPUT.PROVEN): (_STATE.OPEN, _ACTION.WELCOME),
    (_STATE.OPEN, _INPUT.REQUEST): (_STATE.OPEN, _ACTION.HANDLE),
    (_STATE.OPEN, _INPUT.LOGIN): (_STATE.OPEN, _ACTION.EXAMINE),
    (_STATE.OPEN, _INPUT.PROVEN): (_STATE.OPEN, _ACTION.WELCOME),
    **{(_STATE.CLOSED, what): (_STATE.CLOSED, _ACTION.IGNORE) for what in SessionInput},
}


class Session:
    """One connection. ``peer`` is its address, ``client`` what it calls itself, ``principal`` who it has proven to be.

    ``owner`` has all three: whose its transactions are. ``rights`` is what its principal may do, looked up once (None:
    everything).

    ``facts`` are what ``learn()`` has found out of its connection when it said hello, ``login`` is the exchange
    that goes on, ``valid_until`` is when it ends unless the client logs in anew (journal time, None: never). Its
    ``number`` is 0 until its client has logged in. ``secret`` is told to its client alone: who shows it with a
    later login had this session, and has it again in the new one; ``producer_owner`` is its hash, which the
    client's producers have as theirs. ``deliver`` takes the bytes of answers, ``close`` ends the connection for a
    reason. ``last_serial`` is the highest transaction serial seen. ``held`` is what it has waiting for a force
    (:mod:`txbroker.broker.sessions.accounts`), ``uncounted`` is to be added to that, ``parked`` counts its requests
    that wait for the engine. ``fetches`` are its unanswered fetches, in the order in which they came; ``reading`` says
    that one of them is at the disk. ``work`` is what was done in the session's present turn beside its requests'
    bytes: the messages in them, and what fetches were answered with. ``due`` is what goes on in its next turns, and
    what is called for it: fetches, and answers that take several turns, of which ``making`` are under way. For
    these ``wake`` gets it in line; without a line (None) they go on at once. ``hold(True)`` keeps requests from
    coming until ``hold(False)``; ``throttle(True)`` has nothing read until ``throttle(False)``, for the sake of
    its ``allowance`` (None: its principal has no quotas). ``is_read()`` says whether requests that the peer has sent
    would be read now, ``unsent()`` how many bytes of answers it has not read. ``members`` are the members of groups
    that were heard of on it last. ``on_late(partition, offsets, timeout)`` is called with deliveries of a queue that it
    has not acknowledged within its timeout; it returns those that whoever speaks for the session returns by himself.
    """

    __slots__ = (
        "_congested", "allowance", "client", "close", "deliver", "due", "facts", "fetches", "held", "hold", "is_read",
        "last_serial", "learn", "login", "making", "members", "number", "on_drained", "on_late", "opened_at", "owner",
        "parked", "peer", "principal", "producer_owner", "reading", "rights", "secret", "state", "throttle",
        "uncounted",
        "unsent", "valid_until", "wake", "work",
    )  # fmt: skip

    def __init__(
        self,
        secret: Secret,
        peer: str,
        deliver: Callable[[bytes], None],
        close: Callable[[str], None],
        now: int,
        learn: Callable[[], ConnectionFacts],
    ) -> None:
        self.number = 0
        self.secret = secret
        self.producer_owner = secret.owner(ANONYMOUS)
        self.peer = peer
        self.learn = learn
        self.facts: ConnectionFacts | None = None
        self.login: Any = None
        self.valid_until: int | None = None
        self.client = ""
        self.principal = ANONYMOUS
        self.owner = Owner(ANONYMOUS, "", peer)
        self.rights: Rights | None = None
        self.allowance: Allowance | None = None
        self.deliver = deliver
        self.close = close
        self.opened_at = now
        self.state = SessionState.AWAITING_HELLO
        self.last_serial = 0
        self.parked = 0
        self.fetches: dict[Any, None] = {}
        self.due: dict[Any, Callable[[Any], None]] = {}
        self.making = 0
        self.work = 0
        self.held = 0
        self.uncounted = 0
        self.wake: Callable[[], object] | None = None
        self.hold: Callable[[bool], object] = bool
        self.throttle: Callable[[bool], object] = bool
        self.is_read: Callable[[], bool] = lambda: True
        self.unsent: Callable[[], int] = int
        self.members: dict[Any, None] = {}
        self.reading = False
        self.on_drained: Callable[[Session], None] | None = None
        self.on_late: Callable[[int, OffsetSet, int], OffsetSet] = _takes_no_notice
        self._congested = False

    @property
    def is_open(self) -> bool:
        """Whether the session's connection is there."""
        return self.state is OPEN

    @property
    def congested(self) -> bool:
        """Whether the peer has too many unread answers: then no fetch of it is carried out."""
        return self._congested

    @congested.setter
    def congested(self, congested: bool) -> None:
        self._congested = congested
        if not congested and self.on_drained is not None:
            self.on_drained(self)

    def begin(self, number: int, principal: str, secret: Secret | None) -> None:
        """Note who its client has proven to be. With a ``secret`` it is the session of one that had that before."""
        self.number, self.principal = number, principal
        self.owner = Owner(principal, self.client, self.peer)
        self.secret = secret or self.secret
        self.producer_owner = self.secret.owner(principal)

    def as_actor(self) -> Actor:
        """Return the actor that is recorded when this session decides what another one began."""
        return Actor(f"{self.client}@{self.peer}" if self.client else self.peer, self.principal)

    def go_on(self) -> None:
        """Go on with the first piece of due work."""
        work = next(iter(self.due))
        self.due.pop(work)(work)

    def step(self, what: SessionInput) -> SessionAction:
        """Take an input; return the action for it."""
        self.state, action = TRANSITIONS[self.state, what]
        return action


def _takes_no_notice(partition: int, offsets: OffsetSet, timeout: int) -> OffsetSet:  # noqa: ARG001
    """Let the broker return what is late."""
    return OffsetSet()


def unheard(*_: object) -> None:
    """Do nothing: what is called where nobody listens."""


INPUTS: Final[Mapping[type, SessionInput]] = {Hello: SessionInput.HELLO, Login: SessionInput.LOGIN}


def input_of(command: object) -> SessionInput:
    """Return the input for a command, before it has been examined."""
    return INPUTS.get(type(command), SessionInput.REQUEST)


def judge_hello(hello: Hello) -> TxBrokerError | None:
    """Return what is wrong with a hello; None if nothing is."""
    if hello.magic != MAGIC:
        return PeerViolation(f"a hello with magic {hello.magic[:40]!r}, it must be {MAGIC!r}")
    if not set(hello.versions) & set(VERSIONS):
        theirs = ", ".join(map(str, hello.versions[:20]))
        return VersionRefused(
            f"the client speaks protocol versions {theirs or 'none'}, the broker {VERSIONS}"
        )
    if len(hello.client) > MAX_CLIENT or not hello.client.isprintable():
        return InvalidName(
            f"a client name of {len(hello.client)} characters: at most {MAX_CLIENT} printable ones"
        )
    return None

"""All connections of a broker: their number, their time-outs, and the budgets that they share."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from twisted.internet.interfaces import IReactorTime
from twisted.logger import Logger

from journal.constants import KIB
from txbroker.broker.sessions.scheduler import Scheduler
from txbroker.broker.sessions.session_list import COME_AGAIN
from txbroker.broker.sessions.settings import SECOND, BrokerSettings
from txbroker.server.connections.line_limit import LineLimit
from txbroker.server.connections.read_limits import Intake, Pause, Readable
from txbroker.server.connections.send_buffer import SendBuffers
from txbroker.server.connections.strangers import Strangers
from txbroker.wire.codec import encode
from txbroker.wire.messages import GoingAway

if TYPE_CHECKING:
    from txbroker.broker.broker import Broker
    from txbroker.server.settings.config import ServiceSettings

LEAST_UNSENT = 64 * KIB
"""A connection with no more unsent bytes than this is read, however many connections there are."""


class Limits(NamedTuple):
    """Time-outs in seconds."""

    hello: float
    message: float
    unsent: float
    close: float
    idle: float | None

    @classmethod
    def of(cls, service: ServiceSettings, broker: BrokerSettings) -> Limits:
        """Return the limits of the settings."""
        idle = broker.idle_timeout
        times = (broker.hello_timeout, service.message_timeout, service.unsent_timeout, service.close_timeout)
        hello, message, unsent, close = (time / SECOND for time in times)
        return cls(hello, message, unsent, close, None if idle is None else idle / SECOND)


class Connected(Readable, Protocol):
    """A connection whose peer is served."""

    def read_less(self, less: bool) -> None:
        """Take little at a time from the socket, or as much as usual again."""

    def check(self, now: float) -> None:
        """Close the connection if its peer has used up its time."""

    def tell(self, message: bytes) -> None:
        """Send a message that answers nothing, if there is a session."""

    def close(self) -> None:
        """Read no more, send what is to be sent, then close."""

    def abort(self) -> None:
        """Close at once; what is unsent is lost."""


class Passing(Protocol):
    """A connection that is not served: it is told that there are too many, or its proxy has not said for whom it is."""

    def check(self, now: float) -> None:
        """Close it if its peer has had its time."""

    def abort(self) -> None:
        """Close it at once."""


class Connections:
    """All connections of a broker, from whatever endpoint, and what they share. ``served`` are those within the limit.

    ``over_limit`` are those that are told that there are too many, ``refused`` counts these and more, until the next
    :meth:`sweep`. ``arriving`` are those of proxies that have not said for whom.
    """

    log = Logger()

    def __init__(
        self,
        broker: Broker,
        intake: Intake,
        send_buffers: SendBuffers,
        settings: ServiceSettings,
        clock: IReactorTime,
    ) -> None:
        self.broker = broker
        self.intake = intake
        intake.on_short = self._read_less
        self.send_buffers = send_buffers
        self.limits = Limits.of(settings, broker.settings)
        self.clock = clock
        self.scheduler = Scheduler(clock)
        broker.fetching.goes_on = broker.stepwise.goes_on = self.scheduler.goes_on
        self.max_connections = broker.settings.max_sessions
        self.served: set[Connected] = set()
        intake.connections = self.served
        self.over_limit: set[Passing] = set()
        self.arriving: set[Passing] = set()
        self.strangers = Strangers()
        self._stranger_lines, self._known_lines = LineLimit(), LineLimit()
        broker.entrance.may_tell = self.may_tell
        self.refused = self.refused_ever = 0
        self._unix_peers = 0
        self._on_empty: Callable[[], None] | None = None

    def name_of(self, peer: Any) -> str:
        """Return a peer's address for people."""
        if hasattr(peer, "port"):
            host = f"[{peer.host}]" if ":" in peer.host else peer.host
            return f"{host}:{peer.port}"
        self._unix_peers += 1
        return f"unix:{self._unix_peers}"

    def may_tell(self) -> bool:
        """Return whether the log may have a line about a connection that has not logged in; if not, it is counted."""
        return self._stranger_lines.allows(self.clock.seconds())

    def may_tell_of_known(self) -> bool:
        """The same about one that has: a program that does something wrong again and again must not fill the disk."""
        return self._known_lines.allows(self.clock.seconds())

    def _read_less(self, less: bool) -> None:
        for connection in self.served:
            connection.read_less(less)

    def unsent_share(self) -> int:
        """Unsent bytes above which one connection is not read: its share of the budget."""
        return max(self.send_buffers.budget // max(len(self.served), 1), LEAST_UNSENT)

    def sweep(self) -> None:
        """Close connections whose peers have used up their time; call it every second."""
        now = self.clock.seconds()
        self.intake.look()
        for connection in list(self.served):
            connection.check(now)
        for passing in [*self.over_limit, *self.arriving]:
            passing.check(now)
        if self.refused:
            self.log.warn(
                "refused {refused} connections: there are {served} of at most {limit} (max_sessions, or what the "
                "system allows), of which {strangers} have not logged in",
                refused=self.refused, served=len(self.served), limit=self.max_connections,
                strangers=len(self.strangers),
            )  # fmt: skip
            self.refused = 0
        for lines, had in ((self._stranger_lines, "had not logged in"), (self._known_lines, "had logged in")):
            if left_out := lines.left_out(now):
                self.log.warn(
                    "left out {left_out} lines about connections that {had}: there were too many",
                    left_out=left_out, had=had,
                )  # fmt: skip

    def stop_reading(self, reason: str) -> None:
        """Take no more requests, and tell all clients so; answers still go out."""
        going = encode(GoingAway(0, reason, COME_AGAIN))
        for connection in self.served:
            connection.tell(going)
            connection.pause(Pause.ENDING)

    def close_all(self, when_empty: Callable[[], None]) -> None:
        """Close every connection after its last answer, then call ``when_empty``."""
        self._on_empty = when_empty
        for connection in list(self.served):
            connection.close()
        for passing in [*self.over_limit, *self.arriving]:
            passing.abort()
        self.gone()

    def gone(self) -> None:
        """A connection that was served has ended."""
        if self._on_empty is not None and not self.served:
            when_empty, self._on_empty = self._on_empty, None
            when_empty()

    def abort_all(self) -> None:
        """Close every connection at once."""
        for connection in list(self.served):
            connection.abort()

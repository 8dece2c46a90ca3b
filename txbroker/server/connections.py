"""All connections of a broker: how many there may be, how long each may take, and what they share."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

from twisted.internet.interfaces import IAddress, IReactorTime
from twisted.internet.protocol import Protocol, ServerFactory
from twisted.logger import Logger

from txbroker.broker.scheduler import Scheduler
from txbroker.broker.settings import SECOND, BrokerSettings
from txbroker.server.protocol import LEAST_UNSENT, BrokerProtocol
from txbroker.server.read_limits import Intake, Pause
from txbroker.server.refused_connections import LINGER, MAX_REFUSED, RefusingProtocol
from txbroker.server.send_buffer import Outboxes

if TYPE_CHECKING:
    from txbroker.broker.broker import Broker
    from txbroker.server.config import ServiceSettings


class Limits(NamedTuple):
    """Time-outs in seconds."""

    hello: float
    message: float
    unsent: float
    close: float
    idle: float | None

    @classmethod
    def of(cls, service: ServiceSettings, broker: BrokerSettings) -> Limits:
        """Those of the settings."""
        idle = broker.idle_timeout
        times = (broker.hello_timeout, service.message_timeout, service.unsent_timeout, service.close_timeout)
        hello, message, unsent, close = (time / SECOND for time in times)
        return cls(hello, message, unsent, close, None if idle is None else idle / SECOND)


class BrokerFactory(ServerFactory):
    """All connections of a broker, from whatever endpoint."""

    noisy = False
    log = Logger()

    def __init__(
        self,
        broker: Broker,
        intake: Intake,
        outboxes: Outboxes,
        settings: ServiceSettings,
        clock: IReactorTime,
    ) -> None:
        self.broker = broker
        self.intake = intake
        intake.on_short = self._read_less
        self.outboxes = outboxes
        self.limits = Limits.of(settings, broker.settings)
        self.clock = clock
        self.scheduler = Scheduler(clock)
        broker.fetching.goes_on = broker.stepwise.goes_on = self.scheduler.goes_on
        self.max_connections = broker.settings.max_sessions
        self.connections: set[BrokerProtocol] = set()
        intake.connections = self.connections
        self.refusing: set[RefusingProtocol] = set()
        self._unix_peers = 0
        self._refused = 0
        self._on_empty: Callable[[], None] | None = None

    def buildProtocol(self, addr: IAddress | None) -> Protocol | None:  # noqa: ARG002
        """A connection, or one that only says that there are too many."""
        if len(self.connections) < self.max_connections:
            return self._made(BrokerProtocol())
        self._refused += 1
        if len(self.refusing) >= MAX_REFUSED:
            return None
        return self._made(RefusingProtocol())

    def _made(self, protocol: BrokerProtocol | RefusingProtocol) -> Protocol:
        protocol.factory = self
        return protocol

    def name_of(self, peer: Any) -> str:
        """A peer's address as people read it."""
        if hasattr(peer, "port"):
            host = f"[{peer.host}]" if ":" in peer.host else peer.host
            return f"{host}:{peer.port}"
        self._unix_peers += 1
        return f"unix:{self._unix_peers}"

    def _read_less(self, less: bool) -> None:
        for connection in self.connections:
            connection.read_less(less)

    def unsent_share(self) -> int:
        """Unsent bytes above which one connection is not read: its share of the budget."""
        return max(self.outboxes.budget // max(len(self.connections), 1), LEAST_UNSENT)

    def sweep(self) -> None:
        """Close connections whose peers have used up their time; call it every second."""
        now = self.clock.seconds()
        self.intake.look()
        for connection in list(self.connections):
            connection.check(now)
        for refusal in [one for one in self.refusing if now - one.since > LINGER]:
            refusal.abort()
        if self._refused:
            self.log.warn(
                "refused {refused} connections: there are {limit} (max_sessions, or what the system allows)",
                refused=self._refused, limit=self.max_connections,
            )  # fmt: skip
            self._refused = 0

    def stop_reading(self) -> None:
        """Take no more requests; answers still go out."""
        for connection in self.connections:
            connection.pause(Pause.ENDING)

    def close_all(self, when_empty: Callable[[], None]) -> None:
        """Close every connection after its last answer, then call ``when_empty``."""
        self._on_empty = when_empty
        for connection in list(self.connections):
            connection.close()
        for refusal in list(self.refusing):
            refusal.abort()
        self.connection_gone()

    def connection_gone(self) -> None:
        """A connection has ended."""
        if self._on_empty is not None and not self.connections:
            when_empty, self._on_empty = self._on_empty, None
            when_empty()

    def abort_all(self) -> None:
        """Close every connection at once."""
        for connection in list(self.connections):
            connection.abort()

"""Connections: a peer's bytes to the broker's commands, answers to bytes, and what hostile peers may not do.

Only time-outs and bounds are decided here; what a command means is :mod:`txbroker.broker`'s affair.
"""

from __future__ import annotations

from collections.abc import Callable
from math import inf
from typing import TYPE_CHECKING, Any, NamedTuple

from twisted.internet.abstract import FileDescriptor
from twisted.internet.interfaces import IAddress, IReactorTime
from twisted.internet.protocol import Protocol, ServerFactory
from twisted.logger import Logger
from twisted.python.failure import Failure

from journal.constants import KIB
from txbroker.codec import encode, request_decoder
from txbroker.commands import AnyRequest, Hello, Refused
from txbroker.errors import PeerViolation, TxBrokerError
from txbroker.intake import Intake, Pause
from txbroker.outbox import Outbox, Outboxes
from txbroker.parking import READING
from txbroker.refusing import LINGER, MAX_REFUSED, RefusingProtocol
from txbroker.settings import SECOND, BrokerSettings
from txbroker.wholes import BEGINNINGS

if TYPE_CHECKING:
    from txbroker.broker import Broker
    from txbroker.config import ServiceSettings

MAX_STRANGER = 64 * KIB
"""Most bytes of an unfinished message from a peer that has not sent a whole one yet."""

BULK_READ = 256 * KIB
"""What is read at a time from a peer that is amid a message; the others get Twisted's 64 KiB.

Batches of 64 KiB each came in two reads and were put together again: 158 instead of 260 µs of processor time each.
Not for all, because Twisted also lets this many bytes of answers wait before it says that a peer does not read.
"""

TURN = 0.02
"""Seconds after which a connection's requests wait until others had their turn: a read can hold thousands of them."""

_LEAST_UNSENT = 64 * KIB
Requests = list[tuple[AnyRequest, memoryview]]

_NOT_KEPT = READING | {Hello}
"""Requests that make nothing that would wait for the disk."""


class BrokerProtocol(Protocol):
    """One peer's connection."""

    factory: BrokerFactory
    log = Logger()

    def connectionMade(self) -> None:
        """Open a session."""
        factory, transport = self.factory, self.transport
        assert transport is not None
        _tune(transport)
        self.peer = factory.name_of(transport.getPeer())
        self._decoder = request_decoder(factory.broker.settings.max_request)
        self._pauses = Pause(0)
        self._greeted = self._ended = self._counted = self._bulk = False
        self._left: Requests = []
        self._active = True
        self._silent_since = 0.0
        self._since: float | None = factory.clock.seconds()
        self.outbox = Outbox(transport, factory.outboxes, factory.clock, self._on_congestion, self._on_fault)
        transport.registerProducer(self.outbox, True)  # type: ignore[attr-defined]
        self.session = factory.broker.opened(self.peer, self.outbox.deliver, self._on_close)
        factory.connections.add(self)

    def dataReceived(self, data: bytes, left: Requests | None = None) -> None:
        """Hand every whole message to the broker, then write all answers that this gave. ``left`` came before."""
        if self._ended:
            return
        outboxes = self.factory.outboxes
        outboxes.hold()
        self._active = True
        if outboxes.over:
            outboxes.congest(self.outbox)
        try:
            self._receive(data, left)
        except PeerViolation as error:
            self.drop(error)
        except Exception:  # noqa: BLE001  (a fault of ours must cost one connection at most)
            self.log.failure(
                "the broker failed on a request of {peer}; its connection is closed", peer=self.peer
            )
            self.abort()
        finally:
            outboxes.flush()

    def _receive(self, data: bytes, left: Requests | None) -> None:
        """Judge what fits into a turn; the rest in the next ones, and nothing is read before that."""
        factory, session, decoder = self.factory, self.session, self._decoder
        received, seconds = factory.broker.received, factory.clock.seconds
        messages = decoder.feed(data) if left is None else left
        if self._left:  # of a transport that gives what it has though it is paused: TLS
            self._left += messages
        count = 0 if self._left else len(messages)
        until = seconds() + TURN if count > 2 else inf  # most reads are a request, or a whole transaction
        kept = done = 0
        if count and type(messages[0][0]) in BEGINNINGS:
            kept = done = factory.broker.wholes.take(session, messages, seconds, until)
        while done < count:
            command, frames = messages[done]
            done += 1
            received(session, command, frames)
            kept += len(frames)
            if self._ended:
                return
            if done < count and seconds() > until:
                self._left = messages[done:]
                self.pause(Pause.TURN)
                factory.clock.callLater(0, self._go_on)
                break
        held = decoder.held
        if held:
            self._hold(held, bool(messages))
        elif messages:
            self._since = None
            self._greeted = True
            if self._counted:
                self._count(0)
            if self._bulk:
                self._read_bulk(False)
        if kept or session.parked or any(type(command) not in _NOT_KEPT for command, _ in messages):
            factory.intake.produced(self)
        if self.outbox.unsent > _LEAST_UNSENT:
            self._bound_unsent()

    def _go_on(self) -> None:
        """The next turn, unless requests are not taken any more, or the connection has ended."""
        left, self._left = self._left, []
        if not self._pauses & Pause.ENDING:
            self.dataReceived(b"", left)
        if not (self._left or self._ended):
            self.resume(Pause.TURN)

    def _hold(self, held: int, begun_now: bool) -> None:
        """Note that a message has begun, and that its bytes take memory."""
        self._greeted = self._greeted or begun_now
        if not self._greeted and held > MAX_STRANGER:
            raise PeerViolation(f"its first message is longer than {MAX_STRANGER} bytes")
        if self._greeted and (begun_now or self._since is None):
            self._since = self.factory.clock.seconds()
        if held > MAX_STRANGER or self._counted:
            self._count(held)
        if not self._bulk and self._greeted:
            self._read_bulk(True)

    def _read_bulk(self, bulk: bool) -> None:
        """Read more at a time, or as much as usual again. Only plain sockets can."""
        self._bulk = bulk
        transport: Any = self.transport
        if isinstance(transport, FileDescriptor):
            transport.bufferSize = BULK_READ if bulk else FileDescriptor.bufferSize

    def _count(self, held: int) -> None:
        self._counted = held > 0
        self.factory.intake.holds(self, held)

    # -- reading or not --------------------------------------------------------------------------------

    def pause(self, reason: Pause) -> None:
        """Do not read for this reason."""
        if not self._pauses and self.transport is not None:
            self.transport.pauseProducing()  # type: ignore[attr-defined]
        self._pauses |= reason

    def resume(self, reason: Pause) -> None:
        """This reason is gone.

        The time that it took is not held against the peer, but for ASSEMBLY: those who never finish their
        messages must not make others wait for ever.
        """
        before, self._pauses = self._pauses, self._pauses & ~reason
        if before and not self._pauses and self.transport is not None:
            if self._since is not None and before & ~Pause.ASSEMBLY:
                self._since = self.factory.clock.seconds()
            self.transport.resumeProducing()  # type: ignore[attr-defined]

    def _bound_unsent(self) -> None:
        if self.outbox.unsent > self.factory.unsent_share():
            self.pause(Pause.UNSENT)
            self.factory.outboxes.congest(self.outbox)  # so that it is told when enough has been read

    def _on_congestion(self, congested: bool) -> None:
        self.session.congested = congested
        if not congested:
            self.resume(Pause.UNSENT)

    def _on_fault(self) -> None:
        """Answers to this peer could not be written: it must not take those that would follow for the next ones."""
        self.log.failure(
            "the broker failed while it wrote answers to {peer}; its connection is closed", peer=self.peer
        )
        self.abort()

    # -- ending ----------------------------------------------------------------------------------------

    def check(self, now: float) -> None:
        """Close the connection if its peer has used up its time; called every second or so."""
        limits, since, blocked = self.factory.limits, self._since, self.outbox.blocked_since
        if self._ended:
            if since is not None and now - since > limits.close:
                self.abort()
        elif since is not None and not self._pauses & ~Pause.ASSEMBLY:
            if not self._greeted and now - since > limits.hello:
                self.drop(PeerViolation(f"it has not said hello within {limits.hello:g} s"))
            elif self._greeted and now - since > limits.message:
                held = self._decoder.held
                self.drop(
                    PeerViolation(f"{held} bytes of a message, and not the rest in {limits.message:g} s")
                )
        if blocked is not None and now - blocked > limits.unsent:
            self.log.warn(
                "dropping {peer}: it has read nothing for {seconds:g} s, {unsent} bytes are unsent",
                peer=self.peer, seconds=limits.unsent, unsent=self.outbox.unsent,
            )  # fmt: skip
            self.abort()
        if limits.idle is not None and not self._ended:
            self._check_idle(now, limits.idle)

    def _check_idle(self, now: float, idle: float) -> None:
        if self._active or self.outbox.unsent or self._pauses:
            self._active = False
            self._silent_since = now
        elif now - self._silent_since > idle:
            self.drop(PeerViolation(f"it has said nothing for {idle:g} s (idle_timeout)"))

    def drop(self, error: TxBrokerError) -> None:
        """Tell the peer what is wrong with it, in a line of the log too, and close."""
        if not self._ended:
            self.log.warn(
                "dropping {peer}: {reason}", peer=self.peer, reason=str(error), error=type(error).__name__
            )
            self.outbox.deliver(
                encode(Refused(0, type(error).__name__, f"{error}; the connection is closed"))
            )
            self.close()

    def _on_close(self, reason: str) -> None:
        if not self._ended:
            self.log.warn("closing {peer}: {reason}", peer=self.peer, reason=reason)
            self.close()

    def close(self) -> None:
        """Read no more, send what is to be sent, then close."""
        if not self._ended:
            self._ended = True
            self._since = self.factory.clock.seconds()
            self.pause(Pause.ENDING)
            self.outbox.flush()
            if self.transport is not None:
                self.transport.loseConnection()

    def abort(self) -> None:
        """Close at once; what is unsent is lost."""
        self._ended = True
        if self.transport is not None:
            self.transport.abortConnection()  # type: ignore[attr-defined]

    def connectionLost(self, reason: Failure | None = None) -> None:  # noqa: ARG002
        """Forget the session; its active transactions are rolled back by the broker."""
        self._ended = True
        self.outbox.stopProducing()
        factory = self.factory
        factory.connections.discard(self)
        factory.intake.gone(self)
        factory.broker.closed(self.session)
        factory.connection_gone()


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
        self.outboxes = outboxes
        self.limits = Limits.of(settings, broker.settings)
        self.clock = clock
        self.max_connections = broker.settings.max_sessions
        self.connections: set[BrokerProtocol] = set()
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

    def unsent_share(self) -> int:
        """Unsent bytes above which one connection is not read: its share of the budget."""
        return max(self.outboxes.budget // max(len(self.connections), 1), _LEAST_UNSENT)

    def sweep(self) -> None:
        """Close connections whose peers have used up their time; call it every second."""
        now = self.clock.seconds()
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


def _tune(transport: Any) -> None:
    """Answers must not wait for company in the kernel, and dead peers must be noticed some day."""
    for name in ("setTcpNoDelay", "setTcpKeepAlive"):
        if hasattr(transport, name):
            getattr(transport, name)(True)

"""The protocol of a connection: a peer's bytes become commands, answers become bytes, and hostile peers are bounded.

Only time-outs and bounds are decided here; :mod:`txbroker.broker.broker` defines what commands mean.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, cast

from twisted.internet.abstract import FileDescriptor
from twisted.internet.address import UNIXAddress
from twisted.internet.protocol import Protocol
from twisted.logger import Logger
from twisted.protocols.policies import ProtocolWrapper
from twisted.python.failure import Failure

from journal.constants import KIB
from txbroker.broker.sessions.accounts import UNCOUNTED
from txbroker.broker.sessions.scheduler import AT_ONCE, QUANTUM, REQUEST, Flow
from txbroker.errors import PeerViolation, TxBrokerError
from txbroker.login.facts import ConnectionFacts
from txbroker.server.connections.connections import LEAST_UNSENT, Connections
from txbroker.server.connections.languages import OwnLanguage, Speak
from txbroker.server.connections.peer_facts import facts_of
from txbroker.server.connections.read_limits import Pause
from txbroker.server.connections.send_buffer import SendBuffer
from txbroker.wire.codec import encode
from txbroker.wire.messages import Refused

MAX_HELLO = 8 * KIB
MAX_STRANGER = 24 * KIB
"""Most bytes of an unfinished message from a peer before its hello, and before it has logged in: a token has 20 KiB."""

BULK_READ = 256 * KIB
"""How many bytes are read at a time from a peer in the middle of a message; from others Twisted's 64 KiB.

Batches of 64 KiB each came in two reads and were put together again: 158 instead of 260 µs of processor time each. Not
for all, because Twisted also lets this many bytes of answers wait before it reports that a peer does not read.
"""

SHORT_READ = 4 * KIB
"""How many bytes are read at a time from any peer while the memory for parts of messages is short."""

Learn = Callable[[Any], ConnectionFacts]
"""Finds out the facts of a connection from its transport."""

Requests = Sequence[tuple[Any, memoryview]]


class BrokerProtocol(Protocol, Flow):
    """One peer's connection."""

    log = Logger()

    def __init__(self, connections: Connections, learn: Learn = facts_of, speak: Speak = OwnLanguage) -> None:
        self.connections = connections
        self._learn = learn
        self._speak = speak

    def connectionMade(self) -> None:
        """Open a session."""
        connections, transport = self.connections, self.transport
        assert transport is not None
        _tune(transport)
        self.peer = connections.name_of(transport.getPeer())
        self._pauses = Pause(0)
        self._takes = True
        self._greeted = self._ended = self._counted = self._bulk = False
        self._left: Requests = []
        self._active = True
        self._silent_since = 0.0
        self._since: float | None = connections.clock.seconds()
        self.send_buffer = SendBuffer(
            transport, connections.send_buffers, connections.clock, self._on_congestion, self._on_fault
        )
        transport.registerProducer(self.send_buffer, True)  # type: ignore[attr-defined]
        learn = partial(self._learn, transport)
        language = self.language = self._speak(
            connections.broker, self.send_buffer.deliver, self._on_end, connections.clock.callLater
        )
        self._decoder, self._received = language.decoder, language.received
        self.session = connections.broker.opened(self.peer, language.answered, self._on_close, learn)
        language.begin(self.session)
        self.session.wake = partial(connections.scheduler.add, self)
        self.session.hold = self._hold_requests
        self.session.throttle = self._throttle
        self.session.is_read = lambda: not self._pauses
        self.session.unsent = lambda: self.send_buffer.unsent
        self._accounts, self._pending = connections.broker.accounts, connections.intake.pending
        self._scheduler, self._send_buffers = connections.scheduler, connections.send_buffers
        connections.served.add(self)
        connections.strangers.add(self, transport.getPeer())
        if connections.intake.short:
            self.read_less(True)

    def dataReceived(self, data: bytes) -> None:
        """Carry out the requests in these bytes: at once if no session waits, else in the session's turn."""
        if self._ended:
            return
        self._active = True
        scheduler = self._scheduler
        if scheduler.busy or not self._takes:
            self._keep(data)
        else:
            scheduler.until = 0.0
            work = self._carry_out(AT_ONCE, data)
            session = self.session
            if session.work:
                work += session.work
                session.work = 0
            if (self._left or self._decoder.uncut or session.due) and not self._ended:
                scheduler.charge(self, work)
                scheduler.begun(self)
                self._wait()
            elif work > 2 * QUANTUM:  # smaller work is on no account: 3 % of the instructions of a request
                scheduler.charge(self, work)
            scheduler.at_once += work
            if scheduler.at_once > AT_ONCE:
                scheduler.have_the_reactor_go_round()

    # -- turns -----------------------------------------------------------------------------------------

    def take_turn(self, most: int) -> int:
        """Run what is due, then requests, within the turn's work and time; return the work done."""
        session, done = self.session, 0
        while not self._ended:
            if session.due:
                done += REQUEST
                self._go_on()
            elif self._takes and (self._left or self._decoder.uncut):
                done += self._carry_out(most - done)
            else:
                break
            done += session.work
            session.work = 0
            if done >= most or not self._scheduler.goes_on():
                break
        self.more = not self._ended and bool(
            session.due or (self._takes and (self._left or self._decoder.uncut))
        )
        return done

    def leaves(self) -> None:
        """Leave the line: everything kept has been carried out, and more may come."""
        if not self._ended:
            self.resume(Pause.TURN)

    def _carry_out(self, most: int, data: bytes = b"") -> int:  # noqa: C901  (apart it is 400 instructions a request)
        """Hand requests to the broker, and write the answers; return the work that this was.

        Requests that do not fit into the turn's time are left.
        """
        send_buffers, decoder = self._send_buffers, self._decoder
        send_buffers.hold()
        if send_buffers.over:
            send_buffers.congest(self.send_buffer)
        session, accounts = self.session, self._accounts
        work = 0
        try:
            messages = self._left
            if messages:
                self._left = []
            else:
                messages = decoder.feed(data, most, REQUEST) if data else decoder.take(most, REQUEST)
                work = decoder.taken + REQUEST * len(messages)
                if session.allowance is not None:
                    self.connections.broker.quotas.took(session.allowance, decoder.taken)
            if messages:
                self._judge(messages)
                session.uncounted += work
                if session.uncounted >= UNCOUNTED:
                    accounts.charge(session, session.uncounted)
                    session.uncounted = 0
            if self._ended:
                return work
            if decoder.held and not decoder.uncut:
                self._hold(decoder.held, bool(messages), decoder.missing)
            elif messages:
                if not self._greeted and session.number:
                    self._greet()
                if self._greeted:
                    self._since = None
                if self._counted:
                    self._count(0)
                if self._bulk:
                    self._read_bulk(False)
            if session.held and session.held + accounts.held > self._pending:
                self.connections.intake.produced(self)
            if self.send_buffer.unsent > LEAST_UNSENT:
                self._bound_unsent()
        except PeerViolation as error:
            self.drop(error)
        except Exception:  # noqa: BLE001  (a fault of ours must cost one connection at most)
            self._on_bug()
        finally:
            send_buffers.flush()
        return work

    def _go_on(self) -> None:
        send_buffers = self._send_buffers
        send_buffers.hold()
        try:
            self.session.go_on()
        except Exception:  # noqa: BLE001  (as above)
            self._on_bug()
        finally:
            send_buffers.flush()

    def _on_bug(self) -> None:
        self.log.failure("the broker failed on a request of {peer}; its connection is closed", peer=self.peer)
        self.abort()

    def _judge(self, messages: Requests) -> None:
        """Hand them to the broker, but for those that time is too short for."""
        session, goes_on, received = self.session, self._scheduler.goes_on, self._received
        count = len(messages)
        done = 0
        if count > 2:  # most reads are a request or two, which need no check of the time
            goes_on()
        while done < count:
            command, frames = messages[done]
            done += 1
            received(session, command, frames)
            if self._ended:
                return
            if done < count and (((count > 2 or session.work) and not goes_on()) or not self._takes):
                self._left = messages[done:]
                break
        self.language.turn_over()

    def _keep(self, data: bytes) -> None:
        """Keep bytes for the session's turn, because other sessions wait."""
        try:
            self._decoder.add(data)
        except PeerViolation as error:
            self.drop(error)
            return
        self._scheduler.add(self)
        self._wait()

    def _wait(self) -> None:
        """Read nothing until everything kept has been carried out, and count the kept bytes: the session is in line."""
        self.pause(Pause.TURN)
        self._count(self._decoder.uncut + self._decoder.held)

    def _hold(self, held: int, begun_now: bool, missing: int) -> None:
        """Note that a message has begun, and that its bytes take memory."""
        if not self._greeted and self.session.number:
            self._greet()
        most = MAX_HELLO if self.session.facts is None else MAX_STRANGER
        if not self._greeted and held > most:
            raise PeerViolation(f"a message of more than {most} bytes before it has logged in")
        if self._greeted and (begun_now or self._since is None):
            self._since = self.connections.clock.seconds()
        self._count(held, missing)
        if not self._bulk and self._greeted:
            self._read_bulk(True)

    def _greet(self) -> None:
        """Note that the peer has logged in."""
        self._greeted = True
        self.connections.strangers.discard(self)

    def _read_bulk(self, bulk: bool) -> None:
        """Read more at a time, or as much as usual again. Only sockets without TLS do this."""
        self._bulk = bulk
        self.read_less(self.connections.intake.short)

    def read_less(self, less: bool) -> None:
        """Read little at a time from the socket: many peers could have as much read of each before any is made
        to wait.
        """
        transport: Any = self.transport
        bulk = self._bulk
        while isinstance(transport, ProtocolWrapper):  # with TLS the socket is below
            transport, bulk = transport.transport, False
        if isinstance(transport, FileDescriptor):
            usual = BULK_READ if bulk else FileDescriptor.bufferSize
            transport.bufferSize = SHORT_READ if less else usual

    def _count(self, held: int, missing: int = 0) -> None:
        self._counted = held > 0
        self.connections.intake.holds(self, held, missing)

    # -- reading or not --------------------------------------------------------------------------------

    def pause(self, reason: Pause) -> None:
        """Do not read, for this reason."""
        if not self._pauses and self.transport is not None:
            self.transport.pauseProducing()  # type: ignore[attr-defined]
        self._pauses |= reason
        self._takes = self._takes and not reason & (Pause.ENDING | Pause.HELD)

    def resume(self, reason: Pause) -> None:
        """End this reason not to read.

        The time that it took is not counted against the peer, except for ASSEMBLY: peers that never finish their
        messages must not make others wait for ever. Of a peer that has not logged in a TURN counts, too, or beside a
        busy broker's others it could keep its place without end; while it is in line it is not dropped.
        """
        before, self._pauses = self._pauses, self._pauses & ~reason
        if before and not self._pauses and self.transport is not None:
            counted = Pause.ASSEMBLY if self._greeted else Pause.ASSEMBLY | Pause.TURN
            if self._since is not None and before & ~counted:
                self._since = self.connections.clock.seconds()
            self.transport.resumeProducing()  # type: ignore[attr-defined]

    def _hold_requests(self, held: bool) -> None:
        """Carry out no more requests until the disk read of the last one is done."""
        if held:
            self.pause(Pause.HELD)
        elif not self._ended:
            self._takes = True
            if self._left or self._decoder.uncut:
                self._wait()  # first: the peer may have ended behind it, and all is over once that is read
            self.resume(Pause.HELD)
            self._scheduler.add(self)

    def _throttle(self, throttled: bool) -> None:
        """Do not read while the principal has used up its quota. A long message comes to its end before that, so that
        its part takes no memory from others.
        """
        if not throttled:
            self.resume(Pause.QUOTA)
        elif self._decoder.held <= BULK_READ:
            self.pause(Pause.QUOTA)

    def _bound_unsent(self) -> None:
        if self.send_buffer.unsent > self.connections.unsent_share():
            self.pause(Pause.UNSENT)
            self.connections.send_buffers.congest(
                self.send_buffer
            )  # so that it is told when enough has been read

    def give_up(self, held: int) -> bool:
        """See :class:`Readable`."""
        if self._pauses & ~Pause.ASSEMBLY:
            return False
        self.drop(
            PeerViolation(
                f"{held} bytes of a message, which did not go on while the memory for parts of messages was short "
                "(assembly_bytes)"
            )
        )
        return True

    def _on_congestion(self, congested: bool) -> None:
        self.session.congested = congested
        if not congested:
            self.resume(Pause.UNSENT)

    def _on_fault(self) -> None:
        """End the connection, because answers could not be written: the peer must not take later answers for them."""
        self.log.failure(
            "the broker failed while it wrote answers to {peer}; its connection is closed", peer=self.peer
        )
        self.abort()

    # -- ending ----------------------------------------------------------------------------------------

    def check(self, now: float) -> None:
        """Close the connection if its peer has used up its time; called every second or so."""
        limits, since, blocked = self.connections.limits, self._since, self.send_buffer.blocked_since
        if self._ended:
            if since is not None and now - since > limits.close:
                self.abort()
        elif since is not None and not self._pauses & ~Pause.ASSEMBLY:
            if not self._greeted and now - since > limits.hello:
                self.drop(PeerViolation(f"it has not logged in within {limits.hello:g} s (hello_timeout)"))
            elif self._greeted and now - since > limits.message:
                held = self._decoder.held
                self.drop(
                    PeerViolation(f"{held} bytes of a message, and not the rest in {limits.message:g} s")
                )
        if blocked is not None and now - blocked > limits.unsent:
            if self._may_be_told():
                self.log.warn(
                    "dropping {peer}: it has read nothing for {seconds:g} s, {unsent} bytes are unsent",
                    peer=self.peer, seconds=limits.unsent, unsent=self.send_buffer.unsent,
                )  # fmt: skip
            self.abort()
        if limits.idle is not None and not self._ended:
            self._check_idle(now, limits.idle)
        if not self._ended and (reason := self.language.check(now, not self._pauses, limits.close)):
            self.drop(PeerViolation(reason))

    def _check_idle(self, now: float, idle: float) -> None:
        if self._active or self.send_buffer.unsent or self._pauses:
            self._active = False
            self._silent_since = now
        elif now - self._silent_since > idle:
            self.drop(PeerViolation(f"it has said nothing for {idle:g} s (idle_timeout)"))

    def drop(self, error: TxBrokerError) -> None:
        """Send the peer the error, log it, and close."""
        if not self._ended:
            if self._may_be_told():
                self.log.warn(
                    "dropping {peer}: {reason}", peer=self.peer, reason=str(error), error=type(error).__name__
                )
            self.language.answered(
                encode(Refused(0, type(error).__name__, f"{error}; the connection is closed"))
            )
            self.close()

    def _on_close(self, reason: str) -> None:
        if not self._ended:
            if self._may_be_told():
                self.log.warn("closing {peer}: {reason}", peer=self.peer, reason=reason)
            self.close()

    def _on_end(self, reason: str) -> None:
        """Close, because the language has come to its end; without a reason as its peer wanted."""
        if reason:
            self._on_close(reason)
        else:
            self.close()

    def _may_be_told(self) -> bool:
        """Return whether the log may have a line about this peer: one that has not logged in must not fill the disk."""
        if self._greeted or self.session.number > 0:
            return self.connections.may_tell_of_known()
        return self.connections.may_tell()

    def tell(self, message: bytes) -> None:
        """Send a message that answers nothing, if there is a session."""
        if self.session.is_open:
            self.language.answered(message)

    def close(self) -> None:
        """Read no more, send what is unsent, then close."""
        if not self._ended:
            self._ended = True
            self._since = self.connections.clock.seconds()
            self.pause(Pause.ENDING)
            self.send_buffer.flush()
            if self.transport is not None:
                self.transport.loseConnection()

    def abort(self) -> None:
        """Close at once; what is unsent is lost."""
        self._ended = True
        if self.transport is not None:
            self.transport.abortConnection()  # type: ignore[attr-defined]

    def connectionLost(self, reason: Failure | None = None) -> None:
        """Forget the session; its active transactions are rolled back by the broker."""
        self._ended = True
        is_of_tls = reason is not None and type(reason.value).__module__ == "OpenSSL.SSL"
        if reason is not None and is_of_tls and not self._greeted and self._may_be_told():
            said = _words(cast(Exception, reason.value))
            self.log.info("no TLS connection with {peer} was made: {said}", peer=self.peer, said=said)
        self.send_buffer.stopProducing()
        self.language.lost()
        connections = self.connections
        connections.served.discard(self)
        connections.strangers.discard(self)
        connections.intake.gone(self)
        connections.broker.closed(self.session)
        connections.gone()


def _words(error: Exception) -> str:
    """Return what OpenSSL says, which pyOpenSSL gives as tuples of library, function and reason."""
    found = error.args[0] if error.args else ()
    return "; ".join(each[-1] for each in found) if isinstance(found, list) and found else "it was cut off"


def _tune(transport: Any) -> None:
    """Set the socket's options: answers are not delayed in the kernel, and dead peers are noticed eventually."""
    if isinstance(transport.getPeer(), UNIXAddress):
        return  # up to Twisted 24 they have the methods, too, and fail
    for name in ("setTcpNoDelay", "setTcpKeepAlive"):
        if hasattr(transport, name):
            getattr(transport, name)(True)

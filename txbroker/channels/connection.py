"""One connection of a client that speaks AMQP 0-9-1: a session of the broker, whose requests come from channels."""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum
from functools import partial
from typing import TYPE_CHECKING, Any, Final, cast

from twisted.logger import Logger

from txbroker.amqp.connection_methods import (
    ChannelOpen,
    ChannelOpenOk,
    ConnectionClose,
    ConnectionCloseOk,
    ConnectionOpen,
    ConnectionOpenOk,
    ConnectionSecure,
    ConnectionSecureOk,
    ConnectionStart,
    ConnectionStartOk,
    ConnectionTune,
    ConnectionTuneOk,
    ConnectionUpdateSecret,
    ConnectionUpdateSecretOk,
    Method,
)
from txbroker.amqp.fields import Table
from txbroker.amqp.framing import (
    HEARTBEAT_FRAME,
    LEAST_FRAME,
    PROTOCOL_HEADER,
    AmqpDecoder,
    Arrived,
    method_frame,
)
from txbroker.amqp.reply_codes import AmqpError, Reply
from txbroker.broker.sessions.session import Session
from txbroker.channels.blocking import Blocking
from txbroker.channels.channel import Channel, late_on
from txbroker.channels.directory import Directory
from txbroker.channels.heartbeats import Heartbeats
from txbroker.channels.mechanisms import AMQPLAIN, mechanisms_told, plain_of
from txbroker.channels.pending import Uncommitted
from txbroker.channels.refusals import amqp_error
from txbroker.channels.requests import Refusal, Requests, Then
from txbroker.channels.server_properties import server_properties
from txbroker.wire.messages import (
    MAGIC,
    VERSIONS,
    Challenge,
    GoingAway,
    Hello,
    Login,
    Offered,
    Refused,
    Request,
    Welcome,
)

if TYPE_CHECKING:
    from txbroker.broker.broker import Broker

CHANNEL_MAX: Final = 2047
FRAME_MAX: Final = 131_072
HEARTBEAT: Final = 60
"""Seconds that the broker proposes; all three are RabbitMQ's."""
DELIVERED_AT_ONCE: Final = 256
"""Most deliveries in one turn of the reactor, unless they are of one request: 2 ms."""


class State(Enum):
    """The state of a connection."""

    AWAITING_HEADER = "awaiting the protocol's header"
    STARTING = "starting"
    LOGGING_IN = "logging in"
    TUNING = "tuning"
    OPENING = "opening"
    OPEN = "open"
    CLOSING = "closing"
    CLOSED = "closed"


_EXPECTED: Final[dict[State, tuple[type, ...]]] = {
    State.AWAITING_HEADER: (type(None),),
    State.STARTING: (ConnectionStartOk,),
    State.LOGGING_IN: (ConnectionSecureOk,),
    State.TUNING: (ConnectionTuneOk,),
    State.OPENING: (ConnectionOpen,),
    State.OPEN: (ConnectionClose, ConnectionUpdateSecret),
    State.CLOSING: (ConnectionClose, ConnectionCloseOk),
    State.CLOSED: (),
}
"""What may come on channel 0 in which state, beside ``connection.close`` once the client has begun."""


class AmqpConnection:
    """Takes what :class:`AmqpDecoder` finds, and answers of the broker; ``send`` takes the bytes for the client.

    ``end(reason)`` closes the connection behind what was sent, ``call_later(seconds, call)`` is the reactor's.
    """

    log = Logger()

    def __init__(
        self,
        broker: Broker,
        directory: Directory,
        send: Callable[[bytes], None],
        end: Callable[[str], None],
        call_later: Callable[[float, Callable[[], object]], object],
    ) -> None:
        self._broker, self.directory = broker, directory
        self.send, self._end, self._call_later = self._sending(send), end, call_later
        self.decoder = AmqpDecoder(broker.settings.max_frame)
        self.requests = Requests(broker, self._told, self.fail)
        self.answered = self.requests.answered
        """Takes answers of the broker."""
        self.state = State.AWAITING_HEADER
        self.frame_max, self._channel_max = LEAST_FRAME, CHANNEL_MAX
        self.user = ""
        """Who its client says to be."""
        self.wants_cancels = False
        self.uncommitted = Uncommitted()
        self.blocking = Blocking(partial(self.send_method, 0), self._hold)
        self._channels: dict[int, Channel] = {}
        self._dirty: dict[Channel, None] = {}
        self._mechanisms: list[str] = []
        self._last_consumer = self._last_serial = 0
        self._holding = 0
        """Requests whose answers are to come before anything more is read."""
        self._heartbeats = Heartbeats()
        self._in_turn = 0
        self._is_reading = False
        self._closing_at = 0.0
        self._handlers: dict[type, Callable[[Any], None]] = {
            type(None): self._greet,
            ConnectionStartOk: self._log_in,
            ConnectionSecureOk: self._go_on,
            ConnectionTuneOk: self._tuned,
            ConnectionOpen: self._open,
            ConnectionUpdateSecret: self._log_in_anew,
            ConnectionClose: self._close,
            ConnectionCloseOk: self._closed,
        }

    def _sending(self, send: Callable[[bytes], None]) -> Callable[[bytes], None]:
        def sending(data: bytes) -> None:
            self._heartbeats.has_sent = True
            if data:
                send(data)

        return sending

    @property
    def is_closed(self) -> bool:
        """Whether nothing more is asked for its client."""
        return self.state in (State.CLOSING, State.CLOSED)

    def begin(self, session: Session) -> None:
        """Say whose session it is."""
        self.requests.session = session
        session.on_late = partial(late_on, self._channels)

    # -- what comes --------------------------------------------------------------------------------

    def received(self, session: Session, arrived: Arrived, body: memoryview) -> None:  # noqa: ARG002
        """Take what has come; whatever is wrong with it ends the channel or the connection."""
        number, method, properties = arrived
        self._is_reading = True
        if self.state is State.CLOSED:
            return
        channel = self._channels.get(number)
        try:
            if isinstance(method, AmqpError):
                raise method
            if number and self.state is State.OPEN:
                self._on_channel(number, channel, cast(Method, method), properties, body)
            elif not number:
                self._own(method)
            elif not self.is_closed:
                raise AmqpError(Reply.UNEXPECTED_FRAME, f"channel {number} before the connection is open")
        except AmqpError as error:
            index = method.index if isinstance(method, Method) else (0, 0)
            if channel is not None and not error.reply.ends_connection:
                channel.fail(error, method if isinstance(method, Method) else None)
            else:
                self.fail(error, index)

    def _on_channel(
        self, number: int, channel: Channel | None, method: Method, properties: bytes, body: memoryview
    ) -> None:
        if channel is not None:
            channel.received(method, properties, body)
        elif isinstance(method, ChannelOpen):
            if len(self._channels) >= self._channel_max:
                raise AmqpError(
                    Reply.NOT_ALLOWED, f"number of channels opened is limited to {self._channel_max}"
                )
            self._channels[number] = Channel(self, number)
            self.send_method(number, ChannelOpenOk())
        else:
            raise AmqpError(Reply.CHANNEL_ERROR, "expected 'channel.open'")

    def _own(self, method: Method | None) -> None:
        """Take a method about the connection."""
        expected = _EXPECTED[self.state]
        has_begun = self.state not in (State.AWAITING_HEADER, State.STARTING)
        if isinstance(method, expected) or (isinstance(method, ConnectionClose) and has_begun):
            self._handlers[type(method)](method)
        else:
            name = type(method).__name__ if method is not None else "a protocol's header"
            raise AmqpError(
                Reply.CHANNEL_ERROR, f"{name} is not possible: the connection is {self.state.value}"
            )

    # -- the handshake -----------------------------------------------------------------------------

    def _greet(self, header: None) -> None:  # noqa: ARG002
        self.requests.ask(Hello, MAGIC, list(VERSIONS), "amqp", then=self._start, refused=self._not_let_in)

    def _start(self, offered: Offered, data: memoryview) -> None:  # noqa: ARG002
        self._mechanisms = offered.mechanisms
        self.state = State.STARTING
        names = " ".join(mechanisms_told(offered.mechanisms)).encode()
        self.send_method(0, ConnectionStart(0, 9, server_properties(), names, b"en_US"))

    def _log_in(self, method: ConnectionStartOk) -> None:
        properties = method.client_properties
        self._note_client(properties)
        mechanism, data = method.mechanism, method.response
        if mechanism == AMQPLAIN:
            mechanism, data = "PLAIN", plain_of(data)
        if mechanism == "PLAIN":
            self.user = data.split(b"\0")[1].decode(errors="replace") if data.count(b"\0") >= 2 else ""
            is_known = "PLAIN" in self._mechanisms and self.user in self._broker.access.users
            if "ANONYMOUS" in self._mechanisms and not is_known:
                mechanism, data = "ANONYMOUS", b""
        self.state = State.LOGGING_IN
        self.requests.ask(Login, mechanism, data, then=self._step, refused=self._not_let_in)

    def _note_client(self, properties: Table) -> None:
        """Note what the client says of itself, for operators, and which capabilities it has."""
        said = [properties.get(name) for name in ("connection_name", "product", "version")]
        words = [each for each in said if isinstance(each, str) and each.isprintable()]
        self.requests.session.client = " ".join(words)[:255] or "amqp"
        capabilities = properties.get("capabilities")
        found = capabilities if isinstance(capabilities, dict) else {}
        self.wants_cancels = found.get("consumer_cancel_notify") is True
        self.blocking.is_wanted = found.get("connection.blocked") is True

    def _step(self, answer: Challenge | Welcome, data: memoryview) -> None:  # noqa: ARG002
        if self.is_closed:
            return
        if isinstance(answer, Challenge):
            self.send_method(0, ConnectionSecure(answer.data))
            return
        if not self.user:
            self.user = self.requests.session.principal
        self.state = State.TUNING
        self.send_method(0, ConnectionTune(CHANNEL_MAX, FRAME_MAX, HEARTBEAT))

    def _go_on(self, method: ConnectionSecureOk) -> None:
        self.requests.ask(Login, "", method.response, then=self._step, refused=self._not_let_in)

    def _not_let_in(self, refused: Refused) -> None:
        """Say why; the broker closes the connection behind it."""
        if self.is_closed:
            return
        error = amqp_error(refused, self.requests.host)
        reply = Reply.ACCESS_REFUSED if refused.error == "AuthenticationFailed" else error.reply
        self._say_close(AmqpError(reply, refused.message), (10, 11))
        self.state = State.CLOSED

    def _tuned(self, method: ConnectionTuneOk) -> None:
        frame_max, channels = method.frame_max or FRAME_MAX, method.channel_max or CHANNEL_MAX
        if not LEAST_FRAME <= frame_max <= FRAME_MAX or channels > CHANNEL_MAX:
            raise AmqpError(
                Reply.NOT_ALLOWED,
                f"negotiated frame_max = {frame_max}, channel_max = {channels}; they must be {LEAST_FRAME} to "
                f"{FRAME_MAX}, and at most {CHANNEL_MAX}",
            )
        self.frame_max = self.decoder.frame_max = frame_max
        self._channel_max, self._heartbeats.interval = channels, method.heartbeat
        self.state = State.OPENING

    def _open(self, method: ConnectionOpen) -> None:
        self.requests.host = self.directory.host(method.virtual_host)
        self.state = State.OPEN
        self.send_method(0, ConnectionOpenOk())

    def _log_in_anew(self, method: ConnectionUpdateSecret) -> None:
        if self.requests.session.valid_until is None:
            self.send_method(0, ConnectionUpdateSecretOk())  # of a login that does not end, as RabbitMQ
            return
        self.requests.ask(
            Login, "OAUTHBEARER", b"n,,\1auth=Bearer " + method.new_secret + b"\1\1",
            then=lambda *_: self.send_method(0, ConnectionUpdateSecretOk()), refused=self._not_let_in,
        )  # fmt: skip

    # -- requests of channels ----------------------------------------------------------------------

    def ask_in_order(
        self,
        kind: Callable[..., Request],
        *fields: Any,
        then: Then,
        refused: Refusal,
        is_awaited: bool = False,
        **named: Any,
    ) -> None:
        """Send a request, and have nothing carried out before it is judged, or before its answer if ``is_awaited``."""
        session = self.requests.session
        is_held = is_answered = False

        def answered(call: Callable[..., None], *answer: Any) -> None:
            nonlocal is_answered
            is_answered = True
            call(*answer)
            if is_held:
                self._hold(-1)

        self.requests.ask(
            kind, *fields, then=partial(answered, then), refused=partial(answered, refused), **named
        )
        if (session.parked or is_awaited) and not is_answered:
            is_held = True
            self._hold(1)

    def _hold(self, more: int) -> None:
        """Have nothing read while there is a request for whose answer that waits."""
        before, self._holding = self._holding, self._holding + more
        if bool(before) is not bool(self._holding):
            self.requests.session.hold(self._holding > 0)

    def next_consumer(self) -> int:
        """Return a number for a consumer."""
        self._last_consumer += 1
        return self._last_consumer

    def next_serial(self) -> int:
        """Return a number for a transaction."""
        self._last_serial += 1
        return self._last_serial

    def now(self) -> int:
        """Return the time of the wall clock, in µs since 1970."""
        return self._broker.engine.clock.wall()

    def has_time_for(self, count: int) -> bool:
        """Return whether so many deliveries more may be made in this turn of the reactor; count them if so."""
        if not self._in_turn:
            self._call_later(0, self._turn_ended)
        elif self._in_turn + count > DELIVERED_AT_ONCE:
            return False
        self._in_turn += count
        return True

    def _turn_ended(self) -> None:
        self._in_turn = 0

    def in_turn(self, call: Callable[[], object]) -> None:
        """Call in one of the session's next turns, if the connection is there then."""
        session = self.requests.session
        if session.wake is None:
            self.call_later(0, call)
            return
        session.due[call] = self._go_on_with
        session.wake()

    def _go_on_with(self, call: Callable[[], object]) -> None:
        if self.state is State.OPEN:
            call()
            self.turn_over()

    def call_later(self, seconds: float, call: Callable[[], object]) -> None:
        """Call later, if the connection is there then."""

        def called() -> None:
            if self.state is State.OPEN:
                call()
                self.turn_over()

        self._call_later(seconds, called)

    def dirty(self, channel: Channel) -> None:
        """Have a channel flushed at the end of the turn; of the reactor's, if nothing of its client is carried out."""
        if not self._is_reading and not self._dirty:
            self.call_later(0, _nothing)
        self._dirty[channel] = None

    def turn_over(self) -> None:
        """Send the broker what the channels have gathered."""
        self._is_reading = False
        while self._dirty:
            dirty, self._dirty = self._dirty, {}
            for channel in dirty:
                channel.flush()

    # -- what is said ------------------------------------------------------------------------------

    def send_method(self, channel: int, method: Method) -> None:
        """Send a method."""
        self.send(method_frame(channel, method))

    def note(self, error: AmqpError, channel: int) -> None:
        """Tell operators who look for it why a channel was closed."""
        session = self.requests.session
        self.log.debug(
            "closed channel {channel} of {client!r} ({peer}): {error}",
            channel=channel, client=session.client, peer=session.peer, error=error.told,
        )  # fmt: skip

    def _told(self, answer: Any) -> None:
        """Take what answers nothing: the broker goes away, or ends the session."""
        if isinstance(answer, GoingAway):
            self.fail(AmqpError(Reply.CONNECTION_FORCED, answer.reason))
        elif isinstance(answer, Refused) and not self.is_closed:
            if self.state is not State.AWAITING_HEADER:  # else it may speak something else
                self._say_close(AmqpError(Reply.NOT_ALLOWED, answer.message), (0, 0))
            self.state = State.CLOSED

    # -- the end -----------------------------------------------------------------------------------

    def fail(self, error: AmqpError, index: tuple[int, int] = (0, 0)) -> None:
        """Close the connection for an error; its client may say that it knows."""
        if self.is_closed:
            return
        if self.state is State.AWAITING_HEADER:
            self.send(PROTOCOL_HEADER)
            self.state = State.CLOSED
            self._end(error.text)
            return
        self.turn_over()
        self._say_close(error, index)
        self.state = State.CLOSING
        self._lose_channels()
        if error.reply in (Reply.FRAME_ERROR, Reply.SYNTAX_ERROR, Reply.UNEXPECTED_FRAME):
            self._ends(error.told)  # nothing of what follows can be understood

    def _say_close(self, error: AmqpError, index: tuple[int, int]) -> None:
        self.send_method(0, ConnectionClose(error.reply, error.told, *index))

    def _close(self, method: ConnectionClose) -> None:  # noqa: ARG002
        self.turn_over()
        self.send_method(0, ConnectionCloseOk())
        self._ends("")

    def _closed(self, method: ConnectionCloseOk) -> None:  # noqa: ARG002
        self._ends("")

    def _ends(self, reason: str) -> None:
        self.state = State.CLOSED
        self._lose_channels()
        self._end(reason)

    def _lose_channels(self) -> None:
        self.blocking.stop()
        for channel in self._channels.values():
            channel.lost()

    def forget(self, number: int) -> None:
        """Forget a channel that is closed on both sides."""
        self._channels.pop(number, None)
        self.decoder.forget(number)

    def lost(self) -> None:
        """The connection is gone."""
        self.state = State.CLOSED
        self._lose_channels()

    # -- time passes -------------------------------------------------------------------------------

    def check(self, now: float, is_read: bool, patience: float) -> str:
        """Send a heartbeat if it is time; return why the connection is to be dropped, "" if it is not.

        Called every second with the reactor's time. Who is not read cannot be heard. A client has ``patience`` seconds
        to answer a close.
        """
        heartbeats = self._heartbeats
        heartbeats.look(now, self.decoder.came, is_read)
        if self.state is State.CLOSING:
            self._closing_at = self._closing_at or now
            return "it has not answered connection.close" if now - self._closing_at > patience else ""
        if self.state is not State.OPEN:
            return ""
        self.blocking.look(self._broker.engine.full)
        if heartbeats.is_due(now):
            self.send(HEARTBEAT_FRAME)
            heartbeats.has_sent = False
        return heartbeats.missed(now)


def _nothing() -> None:
    """Do nothing, but have the turn end."""

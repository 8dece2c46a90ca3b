"""The client pika for RabbitMQ, sending with publisher confirms and reading."""

from __future__ import annotations

from collections.abc import Callable

import pika
import pika.channel
import pika.frame
import pika.spec

from benchmarks.peers.programs import Said
from benchmarks.peers.python_clients import BODY, SaidBoth
from benchmarks.peers.python_tally import EACH, Reading, Sending


class WithRabbitmq:
    """A measurement of pika without threads: it publishes while fewer than so many are unconfirmed, then consumes."""

    WINDOW = 4096

    def __init__(self, address: str, sending: Callable[[], Sending]) -> None:
        self._make = sending
        self._connection = pika.SelectConnection(
            pika.ConnectionParameters("127.0.0.1", int(address)),
            on_open_callback=self._opened,
            on_open_error_callback=self._failed,
            on_close_callback=self._closed,
        )
        self._timers: dict[int, Callable[[], None]] = {}
        self._idle = False
        self._sent: Said | None = None

    def run(self) -> SaidBoth:
        """Send and read."""
        self._connection.ioloop.start()
        if self._sent is None:
            raise RuntimeError("the connection was closed")
        return SaidBoth(self._sent, self._reading.said())

    def _opened(self, connection: pika.SelectConnection) -> None:
        connection.channel(on_open_callback=self._ready)

    def _failed(self, _: object, error: str | BaseException) -> None:
        raise RuntimeError(f"the connection could not be opened, or the channel was closed: {error!r}")

    def _closed(self, connection: pika.SelectConnection, _: BaseException) -> None:
        connection.ioloop.stop()

    def _ready(self, channel: pika.channel.Channel) -> None:
        self._channel = channel
        channel.add_on_close_callback(self._channel_closed)
        arguments = {"x-queue-type": "quorum"}
        channel.queue_declare("python", durable=True, arguments=arguments, callback=self._declared)

    def _channel_closed(self, channel: pika.channel.Channel, error: Exception) -> None:
        if not channel.connection.is_closing:
            self._failed(channel, error)

    def _declared(self, _: pika.frame.Method) -> None:
        self._channel.confirm_delivery(self._confirmed, callback=self._start)

    def _start(self, _: pika.frame.Method) -> None:
        self.state = self._make()
        self._publish()

    def _publish(self) -> None:
        state, properties = self.state, pika.BasicProperties(delivery_mode=2)
        self._idle = state.sent - state.acknowledged > self.WINDOW - EACH
        if self._idle:
            return
        if not state.goes_on():
            self._idle = True
            self._finish()
            return
        self._timers[state.sent + 1] = state.timed()
        for _ in range(EACH):
            self._channel.basic_publish("", "python", BODY, properties)
        state.sent += EACH
        self._connection.ioloop.add_callback(self._publish)

    def _confirmed(self, frame: pika.frame.Method) -> None:
        if not isinstance(frame.method, pika.spec.Basic.Ack):
            raise RuntimeError(f"a message was refused: {frame.method}")
        tag, first = frame.method.delivery_tag, self.state.acknowledged + 1
        # Confirms come in any order but never twice, so their number is what has been confirmed.
        self.state.acknowledged += tag - first + 1 if frame.method.multiple else 1
        for timed in [at for at in self._timers if at <= tag]:
            self._timers.pop(timed)()
        if self._idle:
            self._publish()

    def _finish(self) -> None:
        if self.state.acknowledged == self.state.sent and self._sent is None:
            self._sent = self.state.said()
            self._reading = Reading(self._sent.acknowledged)
            self._channel.basic_consume("python", self._received, auto_ack=True)

    def _received(
        self, channel: pika.channel.Channel, _deliver: object, _properties: object, body: bytes
    ) -> None:
        self._reading.read += len(body) == len(BODY)
        if not self._reading.goes_on():
            self._found = self._reading.said()
            channel.queue_delete("python", callback=lambda _: self._connection.close())

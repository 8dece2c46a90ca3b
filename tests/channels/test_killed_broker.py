"""Test that what AMQP clients were told holds when the broker is killed: confirms, and acknowledgements that it saw."""

import contextlib
import threading
from collections import Counter

import pika
import pytest

from tests.support.broker_process import BrokerProcess
from txbroker.drill.broker.broker_process import free_port

pytestmark = pytest.mark.slow
KILLS = 6
CLOSED = (pika.exceptions.AMQPError, OSError)


class Client:
    """A thread that connects again and again, until it is told to stop."""

    def __init__(self, port, work):
        self._parameters = pika.ConnectionParameters("127.0.0.1", port, heartbeat=0)
        self._work, self.stops = work, threading.Event()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self):
        while not self.stops.is_set():
            with contextlib.suppress(*CLOSED), pika.BlockingConnection(self._parameters) as connection:
                self._work(self, connection.channel())
            self.stops.wait(0.02)

    def stop(self):
        self.stops.set()
        self._thread.join(60)
        assert not self._thread.is_alive()


def publisher(confirmed, tried):
    def work(client, channel):
        channel.queue_declare("tasks", durable=True)
        channel.confirm_delivery()
        while not client.stops.is_set():
            tried.append(name := f"{len(tried)}")
            channel.basic_publish("", "tasks", name.encode(), mandatory=True)
            confirmed.append(name)

    return work


def consumer(handled, settled):
    """Acknowledge each in a transaction, and note it as settled once its commit was answered."""

    def work(client, channel):
        channel.queue_declare("tasks", durable=True)
        channel.tx_select()
        for method, _, body in channel.consume("tasks", inactivity_timeout=0.1):
            if body is not None:
                handled.append((body.decode(), method.redelivered))
                channel.basic_ack(method.delivery_tag)
                channel.tx_commit()
                settled.append(body.decode())
            if client.stops.is_set():
                return

    return work


def test_nothing_confirmed_is_lost_and_nothing_comes_again_whose_commit_was_answered(tmp_path):
    port, pause = free_port(), threading.Event()
    confirmed, tried, handled, settled = [], [], [], []
    with BrokerProcess(tmp_path / "data", f"listen_amqp=tcp:{port}:interface=127.0.0.1") as process:
        clients = [Client(port, publisher(confirmed, tried)), Client(port, consumer(handled, settled))]
        try:
            for number in range(KILLS):
                pause.wait(0.3 + 0.07 * number)
                process.kill()
                process.start()
            pause.wait(0.3)
        finally:
            clients[0].stop()
        for _ in range(600):
            if set(confirmed) <= {name for name, _ in handled}:
                break
            pause.wait(0.1)
        clients[1].stop()
        with pika.BlockingConnection(pika.ConnectionParameters("127.0.0.1", port)) as connection:
            left = connection.channel().queue_declare("tasks", passive=True).method.message_count
    assert len(confirmed) > KILLS, "it was published between the kills"
    assert set(confirmed) <= {name for name, _ in handled} <= set(tried)
    assert left == 0
    deliveries: dict[str, list[bool]] = {}
    for name, redelivered in handled:
        deliveries.setdefault(name, []).append(redelivered)
    assert all(all(each[1:]) for each in deliveries.values()), "who has seen a message before is told so"
    assert [name for name, count in Counter(settled).items() if count > 1] == []

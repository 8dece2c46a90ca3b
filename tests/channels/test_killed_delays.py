"""Test with pika that what waits at a delayed exchange comes once and not early, though the broker is killed."""

import contextlib
import time
from collections import Counter

import pika
import pytest

from tests.support.broker_process import BrokerProcess
from txbroker.drill.broker.broker_process import free_port

pytestmark = pytest.mark.slow
CLOSED = (pika.exceptions.AMQPError, OSError)
PATIENCE = 20.0
MOST = 1.5
"""Seconds that a message waits at most."""


@pytest.mark.parametrize("kills", [2, pytest.param(20, marks=pytest.mark.deep)])
def test_confirmed_messages_come_once_and_not_early_whenever_the_broker_is_killed(tmp_path, kills):
    port, due, tried, came = free_port(), {}, set(), Counter()
    parameters = pika.ConnectionParameters("127.0.0.1", port, heartbeat=0)

    def publish(channel, count):
        for number in range(count):
            name, after = f"{len(tried)}", MOST * (number % 10) / 10
            tried.add(name)
            properties = pika.BasicProperties(headers={"x-delay": round(after * 1000)})
            begun = time.time()
            channel.basic_publish("delayed", "k", name.encode(), properties)
            due[name] = begun + after

    def take(channel):
        while True:
            method, properties, body = channel.basic_get("tasks", auto_ack=True)
            if method is None:
                return
            name = body.decode()
            came[name] += 1
            assert name not in due or time.time() >= due[name] - 0.01, "it came early"
            assert properties.headers["x-delay"] <= 0

    with BrokerProcess(tmp_path / "data", f"listen_amqp=tcp:{port}:interface=127.0.0.1") as process:
        with pika.BlockingConnection(parameters) as connection:
            channel = connection.channel()
            arguments = {"x-delayed-type": "direct"}
            channel.exchange_declare("delayed", "x-delayed-message", durable=True, arguments=arguments)
            channel.queue_declare("tasks", durable=True)
            channel.queue_bind("tasks", "delayed", "k")
        for number in range(kills):
            with contextlib.suppress(*CLOSED), pika.BlockingConnection(parameters) as connection:
                channel = connection.channel()
                channel.confirm_delivery()
                publish(channel, 20 + number % 7)
                process.kill()
            process.start()
        until = time.monotonic() + PATIENCE
        with pika.BlockingConnection(parameters) as connection:
            while not due.keys() <= came.keys():
                assert time.monotonic() < until, due.keys() - came.keys()
                take(connection.channel())
                time.sleep(0.02)
            connection.sleep(MOST / 5)
            take(connection.channel())
    assert len(due) >= 20 * kills
    assert max(came.values()) == 1
    assert came.keys() <= tried

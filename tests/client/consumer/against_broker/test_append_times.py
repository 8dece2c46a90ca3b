"""Test that messages say when the broker appended them, on every way to read them."""

import asyncio
import time

import pytest

from txbroker.client import asyncio as asyncio_client

pytestmark = pytest.mark.slow


@pytest.fixture
def topic(broker):
    name = f"t{time.monotonic_ns()}"
    broker.create_topic(name)
    return name


@pytest.fixture
def sent(broker, topic):
    """Three messages with times that no clock has, one sent and two of a transaction; and the time around that."""
    before = time.time_ns() // 1000
    broker.send(topic, b"sent", timestamp=10**15 + 1, key=b"k")
    with broker.transaction() as tx:
        tx.send(topic, b"first", timestamp=10**15 + 2)
        tx.send(topic, b"second", timestamp=10**15 + 3)
    return before, time.time_ns() // 1000


def read(broker, topic):
    return list(broker.consume(topic, partitions=[0], start="earliest", follow=False))


def test_every_reader_tells_when_a_message_was_appended(broker, topic, sent):
    messages = read(broker, topic)
    assert [message.timestamp for message in messages] == [10**15 + number for number in (1, 2, 3)]
    one, first, second = (message.appended for message in messages)
    before, after = sent
    assert before <= one < first == second <= after
    [found] = broker.find(topic, key=b"k")
    assert found.appended == one
    with broker.transaction() as tx:
        received = tx.receive(topic, group=topic, timeout=20)
        assert (received.value, received.appended) == (b"sent", one)


def test_a_message_that_comes_again_was_appended_once(broker, topic, sent):
    consumer = broker.consume(topic, group=topic, partitions=[0])
    given = next(consumer)
    consumer.retry(given, after=0)
    again = next(message for message in consumer if message.offset == given.offset)
    assert (again.attempts, again.appended) == (1, given.appended)


def test_a_client_on_a_loop_tells_it_too(process, broker, topic, sent):
    async def on_a_loop():
        async with await asyncio_client.connect(process.address) as other:
            consumer = other.consume(topic, partitions=[0], start="earliest", follow=False)
            return [message async for message in consumer]

    assert asyncio.run(on_a_loop()) == read(broker, topic)

"""Test that a caller waits on if the messages that it was woken for are put off before it takes them."""

import asyncio
import uuid

import pytest

from txbroker.client import asyncio as asyncio_client

pytestmark = pytest.mark.slow

SHORT = 0.3


@pytest.fixture
def topic(broker):
    name = f"t-{uuid.uuid4().hex[:12]}"
    broker.create_topic(name)
    with broker.transaction() as tx:
        tx.send_many(name, [b"first", b"second"])
    return name


class TestBlocking:
    """What another thread does between the wait and the taking is done here by the waiting thread itself."""

    @pytest.fixture
    def put_off(self, broker, monkeypatch):
        def put_off(consumer, message):
            wait = broker._driver.wait

            def wait_and_put_off(turn, timeout=None):
                found = wait(turn, timeout)
                monkeypatch.undo()
                consumer.retry(message, after=SHORT)
                return found

            monkeypatch.setattr(broker._driver, "wait", wait_and_put_off)

        return put_off

    def test_iteration_goes_on(self, broker, topic, put_off):
        with broker.consume(topic, topic) as consumer:
            [message] = consumer.poll(5.0, max_messages=1)
            put_off(consumer, message)
            assert [(each.value, each.attempts) for _, each in zip(range(2), consumer, strict=False)] == [
                (b"first", 1),
                (b"second", 0),
            ]

    def test_poll_waits_its_time(self, broker, topic, put_off):
        with broker.consume(topic, topic) as consumer:
            [message] = consumer.poll(5.0, max_messages=1)
            put_off(consumer, message)
            assert [each.value for each in consumer.poll(5.0)] == [b"first"]

    def test_poll_waits_no_longer(self, broker, topic, put_off):
        with broker.consume(topic, topic) as consumer:
            [message] = consumer.poll(5.0, max_messages=1)
            put_off(consumer, message)
            assert consumer.poll(SHORT / 10) == []

    def test_without_follow_the_end_is_the_end(self, broker, topic, put_off):
        with broker.consume(topic, topic, follow=False) as consumer:
            [message] = consumer.poll(5.0, max_messages=1)
            put_off(consumer, message)
            assert [each.value for each in consumer] == [b"first", b"second"]


def test_asyncio_iteration_goes_on(process, broker, topic):
    """The second message comes while a task waits, and another one puts it off before that one resumes."""
    seen = []

    async def main():
        async with await asyncio_client.connect(process.address) as connection:
            consumer = connection.consume(topic, topic)
            _, message = await consumer.poll(5.0)
            granted = connection._granted

            async def granted_and_put_off(turn):
                await granted(turn)
                connection._granted = granted
                seen.append(consumer._core.current or consumer._core._chunks[0])
                await consumer.retry(message, after=SHORT)
                assert consumer._core.current is None

            connection._granted = granted_and_put_off
            waiting = asyncio.ensure_future(anext(consumer))
            await connection.send(topic, b"third")
            return [(await waiting).value, (await anext(consumer)).value]

    assert asyncio.run(main()) == [b"second", b"third"]
    assert len(seen) == 1

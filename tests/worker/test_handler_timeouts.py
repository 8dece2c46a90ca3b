"""Test calls of the handler that take longer than the worker allows."""

import asyncio
import threading
import time

import pytest

from tests.worker.scene import PATIENCE, fill, position, reached, running, values
from txbroker import RetryPolicy, errors
from txbroker.client.asyncio import connect

pytestmark = pytest.mark.slow

LIMIT = 0.3
LATER = RetryPolicy(attempts=3, pause=60.0)


@pytest.fixture
def stuck():
    """An event that a stuck handler waits for: it is set in the end."""
    event = threading.Event()
    yield event
    event.set()


@pytest.mark.parametrize("transaction", [None, "broker"])
def test_a_thread_that_does_not_return_stops_the_worker_and_its_message_has_failed(
    broker, topic, stuck, transaction
):
    broker.create_topic(f"{topic}-out")
    fill(broker, topic, 12)
    ended = threading.Event()

    def handle(message, *tx):
        if transaction:
            tx[0].send(f"{topic}-out", message.value)
        if message.offset == 3:
            stuck.wait()
            ended.set()

    worker = broker.work(
        topic, topic, handle, concurrency=3, transaction=transaction, retry=LATER, handler_timeout=LIMIT
    )
    began = time.monotonic()
    with pytest.raises(errors.HandlerTimedOut, match=r"handler_timeout=0\.3 s"):
        worker.run()
    assert time.monotonic() - began < 10.0, "it waited for the call that never returns"
    [parked] = broker.parked(topic)
    assert (parked.offset, parked.attempts) == (3, 1)
    assert "HandlerTimedOut" in parked.why
    stuck.set()
    reached(ended)
    if transaction:
        threading.Event().wait(0.3)
        assert 3 not in values(broker, f"{topic}-out")
    else:
        assert [each.offset for each in broker.parked(topic)] == [3], "its end came too late"


def test_without_retries_it_ends_with_the_message_unfinished(broker, topic, stuck):
    fill(broker, topic, 4)
    worker = broker.work(
        topic, topic, lambda message: message.offset == 2 and stuck.wait(), retry=False, handler_timeout=LIMIT
    )
    with pytest.raises(errors.HandlerTimedOut):
        worker.run()
    assert worker.failed.offset == 2
    assert position(broker, topic) == 2
    assert broker.parked(topic) == []


def test_of_a_batch_all_have_failed_so_that_they_come_alone(broker, topic, stuck):
    fill(broker, topic, 4)
    worker = broker.work(
        topic, topic, lambda messages: stuck.wait(), batch=4, retry=LATER, handler_timeout=LIMIT
    )
    with pytest.raises(errors.HandlerTimedOut):
        worker.run()
    assert [(each.offset, each.attempts) for each in broker.parked(topic)] == [(n, 1) for n in range(4)]


def test_a_call_that_returns_in_time_and_a_pause_between_calls_are_not_too_long(broker, topic):
    fill(broker, topic, 3)
    worker = broker.work(topic, topic, lambda message: time.sleep(LIMIT / 2), handler_timeout=LIMIT)
    with running(worker) as raised:
        threading.Event().wait(3 * LIMIT)
        fill(broker, topic, 2)
        for _ in range(200):
            if position(broker, topic) == 5:
                break
            threading.Event().wait(0.05)
    assert raised == []
    assert position(broker, topic) == 5


def test_on_asyncio_it_is_cancelled_and_the_worker_goes_on(url, broker, topic):
    fill(broker, topic, 4)
    cancelled = []

    async def handle(message):
        if message.offset == 1:
            try:
                await asyncio.sleep(PATIENCE)
            except asyncio.CancelledError:
                cancelled.append(message.attempts)
                raise

    async def main():
        async with await connect(url) as connection:
            policy = RetryPolicy(attempts=2, pause=0.01, longest=0.01, ending="drop")
            await connection.work(
                topic, topic, handle, retry=policy, handler_timeout=LIMIT, follow=False
            ).run()

    asyncio.run(main())
    assert cancelled == [0, 1]
    assert position(broker, topic) == 4


def test_a_time_out_of_the_handler_itself_is_its_own_failure(url, broker, topic, caplog):
    fill(broker, topic, 1)

    async def handle(message):
        if not message.attempts:
            raise TimeoutError("the mail server")

    async def main():
        async with await connect(url) as connection:
            policy = RetryPolicy(attempts=2, pause=0.01, longest=0.01)
            await connection.work(topic, topic, handle, retry=policy, follow=False).run()

    asyncio.run(main())
    assert "TimeoutError: the mail server" in caplog.text


@pytest.mark.parametrize("value", [0, 0.0, -1])
def test_a_limit_of_nothing_is_refused(broker, topic, value):
    with pytest.raises(errors.WrongValue, match="handler_timeout"):
        broker.work(topic, topic, print, handler_timeout=value)

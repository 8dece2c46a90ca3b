"""Test delayed exchanges with the clients and a real broker."""

import asyncio
import time

import pytest

from tests.client.queues.faces import given
from txbroker import errors
from txbroker.client import asyncio as asyncio_client

pytestmark = pytest.mark.slow


@pytest.fixture
def name(free_name):
    return free_name


async def delayed(connection, name):
    await given(connection.declare_queue(name))
    await given(connection.declare_exchange(name, "topic", delayed=True))
    await given(connection.bind(name, name, "task.*"))
    begun = time.monotonic()
    await given(connection.publish(name, "task.a", b"later", headers={"x-delay": b"400"}))
    await given(connection.publish(name, "task.b", b"now"))
    queue = connection.queue(name)
    first, second = await given(queue.get(10.0)), await given(queue.get(10.0))
    assert time.monotonic() - begun >= 0.4
    assert [first.value, second.value] == [b"now", b"later"]
    assert dict(second.headers)["x-delay"] == b"-400"
    await given(queue.ack([first, second]))
    await given(queue.close())


def test_a_message_waits_as_its_header_says(broker, name):
    asyncio.run(delayed(broker, name))


def test_the_same_with_asyncio(process, name):
    async def work():
        async with await asyncio_client.connect(process.address) as connection:
            await delayed(connection, name)

    asyncio.run(work())


def waiting(broker, name, count):
    """Return the messages that wait at an exchange, once there are so many."""
    until = time.monotonic() + 10.0
    while len(found := broker.list_scheduled(exchange=name)) != count:
        assert time.monotonic() < until, found
    return found


def test_what_waits_is_listed_shown_and_taken_back(broker, name):
    broker.declare_queue(name)
    broker.declare_exchange(name, "fanout", delayed=True)
    broker.bind(name, name)
    for after in ("3600000", "300"):
        broker.publish(name, "k", b"after " + after.encode(), headers={"x-delay": after.encode()})
    soon, late = waiting(broker, name, 2)
    assert (late.topic, late.exchange, late.state, late.clock) == ("", name, "waits", "elapsed")
    assert 3590 < late.due_in <= 3600
    assert [each.waiting for each in broker.exchanges(name)] == [2]
    shown = broker.scheduled(late.id, with_message=True)
    assert (shown.exchange, shown.message.value, shown.message.key) == (name, b"after 3600000", b"k")
    assert broker.cancel(late.id) == [late.id] == broker.cancel(late.id)
    assert broker.queue(name).get(10.0).value == b"after 300"
    with pytest.raises(errors.AlreadySent, match=f"gone through exchange '{name}'"):
        broker.cancel(soon.id)
    assert broker.list_scheduled(exchange=name) == []
    with pytest.raises(errors.Misuse, match="not both"):
        broker.list_scheduled("orders", exchange=name)
    broker.delete_exchange(name)
    assert broker.scheduled(soon.id).exchange == ""


def test_a_transaction_brings_what_waits_with_its_commit(broker, name):
    broker.declare_queue(name)
    broker.declare_exchange(name, "direct", delayed=True)
    broker.bind(name, name, "k")
    broker.publish("", name, b"task")
    queue = broker.queue(name)
    task = queue.get(10.0)
    with broker.transaction() as tx:
        tx.ack(task)
        tx.publish(name, "k", b"again", headers={"x-delay": b"200"})
    assert queue.get(10.0).value == b"again"
    with pytest.raises(errors.DeclaredOtherwise, match="delayed True"):
        broker.declare_exchange(name, "direct")

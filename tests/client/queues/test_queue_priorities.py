"""Test priorities of messages with the clients and a real broker."""

import asyncio

import pytest

from tests.client.queues.faces import given
from txbroker import errors
from txbroker.client import asyncio as asyncio_client

pytestmark = pytest.mark.slow


@pytest.fixture
def name(free_name):
    return free_name


async def by_priority(connection, name):
    await given(connection.declare_queue(name, max_priority=9))
    for value, priority in ((b"low", 1), (b"none", 0), (b"high", 9), (b"higher", 200), (b"low too", 1)):
        await given(connection.publish("", name, value, priority=priority))
    queue = connection.queue(name, prefetch=2)
    found = [await given(queue.get(10.0)) for _ in range(5)]
    assert [each.value for each in found] == [b"high", b"higher", b"low", b"low too", b"none"]
    await given(queue.ack(found[:4]))
    await given(queue.close())
    [told] = await given(connection.queues(name))
    assert (told.messages, told.settings.max_priority) == (1, 9)
    again = await given(connection.queue(name).get(10.0))
    assert (again.value, again.redelivered) == (b"none", True)


def test_messages_come_by_their_priority(broker, name):
    asyncio.run(by_priority(broker, name))


def test_the_same_with_asyncio(process, name):
    async def work():
        async with await asyncio_client.connect(process.address) as connection:
            await by_priority(connection, name)

    asyncio.run(work())


def test_what_a_reader_has_of_several_priorities_is_given_back_and_counted_as_it_was_handed_out(broker, name):
    broker.declare_queue(name, max_priority=5)
    for number in range(6):
        broker.publish("", name, b"%d" % number, priority=number)
    queue = broker.queue(name, prefetch=1)
    handed = [queue.get(10.0) for _ in range(3)]
    queue.ack(handed[1])
    queue.close(failed=True)
    again = broker.queue(name)
    found = [again.get(10.0) for _ in range(5)]
    assert [(each.value, each.attempts) for each in found] == [
        (b"5", 1), (b"3", 1), (b"2", 0), (b"1", 0), (b"0", 0),
    ]  # fmt: skip
    assert again.get(0.3) is None


def test_a_transaction_publishes_with_priorities_and_acknowledges_of_several(broker, name):
    broker.declare_queue(name, max_priority=5)
    for priority in (1, 5):
        broker.publish("", name, b"task", priority=priority)
    queue = broker.queue(name, prefetch=2)
    taken = [queue.get(10.0), queue.get(10.0)]
    with broker.transaction() as tx:
        tx.ack(taken)
        tx.publish("", name, b"later", priority=2)
        tx.publish("", name, b"sooner", priority=3)
    assert [queue.get(10.0).value, queue.get(10.0).value] == [b"sooner", b"later"]
    [told] = broker.queues(name)
    assert told.messages == 2


@pytest.mark.parametrize("bad", [-1, 256, True, 1.0, "5", None])
def test_what_is_no_priority_is_refused_before_anything_is_sent(broker, name, bad):
    with pytest.raises(errors.TxBrokerError, match="max_priority"):
        broker.declare_queue(name, max_priority=bad)
    broker.declare_queue(name)
    with pytest.raises(errors.TxBrokerError, match="priority"):
        broker.publish("", name, b"x", priority=bad)
    with broker.transaction() as tx, pytest.raises(errors.TxBrokerError, match="priority"):
        tx.publish("", name, b"x", priority=bad)
    [told] = broker.queues(name)
    assert told.messages == 0


@pytest.mark.parametrize("levels", [0, 5])
def test_messages_are_acknowledged_together_or_not_at_all(broker, name, levels):
    broker.declare_queue(name, max_priority=levels)
    for priority in (5, 1):
        broker.publish("", name, b"%d" % priority, priority=priority)
    queue = broker.queue(name, prefetch=2)
    one, other = queue.get(10.0), queue.get(10.0)
    queue.nack(other)
    with pytest.raises(errors.DeliveryLost, match="nothing has changed") as caught:
        queue.ack([one, other])
    assert ("of priority 1 " in str(caught.value)) == (levels > 0)
    [info] = broker.queues(name)
    assert info.messages == 2
    queue.ack(one)
    again = queue.get(10.0)
    queue.nack([again])
    [info] = broker.queues(name)
    assert info.messages == 1

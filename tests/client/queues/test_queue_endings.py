"""Test messages and queues that end by themselves, on the faces of the clients, against a real broker's clocks."""

import asyncio
import json
import time
from datetime import timedelta

import pytest

import txbroker
from tests.client.queues.faces import given
from tests.support.waiting import eventually
from txbroker import errors
from txbroker.client import asyncio as asyncio_client

pytestmark = pytest.mark.slow


@pytest.fixture
def name(free_name):
    """Each test declares its queue in its own way."""
    return free_name


async def what_expires(connection, name):
    dead = f"{name}.dead"
    await given(connection.declare_queue(dead))
    await given(
        connection.declare_queue(
            name, message_ttl=timedelta(seconds=60), dead_letter_exchange="", dead_letter_key=dead
        )
    )
    await given(connection.publish("", name, b"soon", ttl=0.2))
    await given(connection.publish("", name, b"late", {"h": b"1"}))
    message = await given(connection.queue(dead).get(10.0))
    assert (message.value, message.key) == (b"soon", dead.encode())
    [[queue, cause, count, first, exchange, keys]] = json.loads(message.header("txbroker.deaths"))
    assert (queue, cause, count, exchange, keys) == (name, "expired", 1, "", [name])
    assert abs(first / 1e6 - time.time()) < 60
    left = await given(connection.queue(name).get(10.0))
    assert (left.value, left.headers) == (b"late", (("h", b"1"),))


def test_a_message_expires_and_goes_to_the_dead_letters(broker, name):
    asyncio.run(what_expires(broker, name))


def test_the_same_with_asyncio(process, name):
    async def work():
        async with await asyncio_client.connect(process.address) as connection:
            await what_expires(connection, name)

    asyncio.run(work())


def test_a_message_of_a_transaction_expires_from_its_commit_on(broker, name):
    broker.declare_queue(name)
    with broker.transaction() as tx:
        tx.publish("", name, b"soon", ttl=0.3)
        time.sleep(0.5)
    message = broker.queue(name).get(10.0)
    assert message.value == b"soon", "its time begins with the commit"
    with broker.transaction() as tx:
        tx.publish("", name, b"gone", ttl=0)
    assert broker.queue(name).get(0.3) is None


def test_expiries_survive_a_killed_broker(process, broker, name):
    broker.declare_queue(name)
    broker.publish("", name, b"soon", ttl=1.0)
    broker.publish("", name, b"late", ttl=3600)
    process.kill()
    time.sleep(1.0)
    process.start()
    assert broker.queue(name).get(10.0).value == b"late"


def test_lengths(broker, name):
    other = f"{name}.other"
    broker.declare_queue(name, max_length=2)
    broker.declare_queue(other, max_length=2, overflow="reject-publish")
    for number in range(4):
        broker.publish("", name, b"%d" % number)
    eventually(lambda: broker.queues(name)[0].messages == 2)
    assert [broker.queue(name).get(5.0).value for _ in range(2)] == [b"2", b"3"]
    for _ in range(2):
        broker.publish("", other, b"x")
    with pytest.raises(errors.QueueFull, match="may have 2 messages"):
        broker.publish("", other, b"x")
    tx = broker.transaction()
    tx.publish("", other, b"x")
    with pytest.raises(errors.QueueFull):
        tx.commit()


def test_lengths_in_bytes(broker, name):
    other = f"{name}.other"
    broker.declare_queue(name, max_length_bytes=4)
    broker.declare_queue(other, max_length_bytes=4, overflow="reject-publish")
    for value in (b"12", b"34", b"56"):
        broker.publish("", name, value, headers={"h": b"x" * 100})
    eventually(lambda: broker.queues(name)[0].ready_bytes == 4)
    assert [broker.queue(name).get(5.0).value for _ in range(2)] == [b"34", b"56"]
    broker.publish("", other, b"1234")
    with pytest.raises(errors.QueueFull, match="may have 4 bytes"):
        broker.publish("", other, b"5")
    with broker.queue(other) as queue:
        queue.get(5.0)
        assert broker.queues(other)[0].ready_bytes == 0
        broker.publish("", other, b"5")
    with pytest.raises(errors.DeclaredOtherwise, match="max_length_bytes 4, not None"):
        broker.declare_queue(other, overflow="reject-publish")


def test_what_is_not_acknowledged_in_time_is_somebody_elses(process, broker, name):
    broker.declare_queue(name, consumer_timeout=0.3)
    broker.publish("", name, b"x")
    with broker.queue(name) as queue, txbroker.connect(process.address, timeout=10.0) as other:
        late = queue.get(5.0)
        taken = other.queue(name).get(5.0)
        assert (taken.value, taken.attempts, taken.redelivered) == (b"x", 1, True)
        with pytest.raises(errors.DeliveryLost):
            queue.ack(late)
        tx = broker.transaction()
        tx.ack(late)
        with pytest.raises(errors.DeliveryLost):
            tx.commit()
        broker.publish("", name, b"y")
        assert queue.get(5.0).value == b"y", "the connection goes on"


def test_a_queue_that_nobody_uses_goes(broker, name):
    broker.declare_queue(name, expires=0.5)
    broker.publish("", name, b"x")

    def is_gone():
        try:
            broker.queues(name)
        except errors.UnknownQueue:
            return True
        return False

    eventually(is_gone)


def test_a_queue_of_one_session_goes_with_it(process, broker, name):
    with txbroker.connect(process.address, timeout=10.0) as other:
        other.declare_queue(name, exclusive=True)
        broker.publish("", name, b"reply")
        with pytest.raises(errors.QueueInUse, match="exclusive to another session"):
            broker.queue(name).get(1.0)
        assert other.queue(name).get(5.0).value == b"reply"

    def is_gone():
        try:
            broker.publish("", name, b"late")
        except errors.Unroutable:
            return True
        return False

    eventually(is_gone)


def test_exchanges_with_an_alternate_and_with_an_end(broker, name):
    broker.declare_queue(name)
    broker.declare_exchange(f"{name}.rest", "fanout")
    broker.declare_exchange(f"{name}.main", alternate=f"{name}.rest", auto_delete=True)
    broker.bind(f"{name}.main", name, "known")
    broker.bind(f"{name}.rest", name)
    broker.publish(f"{name}.main", "unknown", b"x")
    assert broker.queue(name).get(5.0).value == b"x"
    broker.unbind(f"{name}.main", name, "known")
    with pytest.raises(errors.UnknownExchange):
        broker.publish(f"{name}.main", "known", b"x")


@pytest.mark.parametrize(
    ("settings", "kind"),
    [
        ({"message_ttl": -1}, errors.WrongValue), ({"message_ttl": "1s"}, errors.WrongType),
        ({"max_length": -1}, errors.WrongValue), ({"max_length": 1.5}, errors.WrongType),
        ({"overflow": "drop"}, errors.WrongValue), ({"expires": float("nan")}, errors.WrongValue),
        ({"expires": timedelta(days=10_000)}, errors.WrongValue), ({"expires": 0}, errors.InvalidSetting),
        ({"delivery_limit": -1}, errors.WrongValue), ({"max_length_bytes": -1}, errors.WrongValue),
        ({"max_length_bytes": "1MiB"}, errors.WrongType), ({"consumer_timeout": -1}, errors.WrongValue),
        ({"consumer_timeout": 0}, errors.InvalidSetting), ({"consumer_timeout": "1s"}, errors.WrongType),
        ({"dead_letter_strategy": "often"}, errors.WrongValue),
        ({"dead_letter_strategy": "at-least-once"}, errors.InvalidSetting),
    ],
)  # fmt: skip
def test_settings_that_cannot_be_are_refused(broker, name, settings, kind):
    with pytest.raises(kind):
        broker.declare_queue(name, **settings)
    with pytest.raises(errors.UnknownQueue):
        broker.queues(name)


@pytest.mark.parametrize("ttl", [-1, float("inf"), "1s", True, timedelta(days=4000)])
def test_times_to_live_that_cannot_be_are_refused(broker, name, ttl):
    broker.declare_queue(name)
    with pytest.raises((errors.WrongValue, errors.WrongType)):
        broker.publish("", name, b"x", ttl=ttl)
    assert broker.queues(name)[0].messages == 0

"""Test that consumers and transactions give messages up, which go to the dead letters, with a real broker."""

import asyncio
import uuid

import pytest

from txbroker import errors
from txbroker.client import asyncio as asyncio_client

pytestmark = pytest.mark.slow


@pytest.fixture
def topic(broker):
    name = f"t-{uuid.uuid4().hex[:12]}"
    broker.create_topic(name)
    for number in range(6):
        broker.send(name, b"%d" % number, key=b"k%d" % number)
    return name


def dead(broker, topic, count):
    """Wait for so many dead letters; return their values and why they were given up."""
    until_made(broker, f"{topic}.dead")
    consumer = broker.consume(f"{topic}.dead")
    return sorted(
        (each.value, each.header("txbroker.dead.why"))
        for _, each in zip(range(count), consumer, strict=False)
    )


def until_made(broker, name):
    """Wait until the broker has made a topic: it does so with the first letter, after the answer."""
    waiter = broker.consume(pattern=name[: -len(".dead")] + "*", group=f"waits-{name}")
    while not broker.topics([name]):
        waiter.poll(0.05)


@pytest.mark.parametrize("order", ["partition", "key", None])
def test_a_message_that_is_given_up_does_not_come_again_and_others_do(broker, topic, order):
    consumer = broker.consume(topic, topic, order=order)
    first, second = next(consumer), next(consumer)
    consumer.dead_letter(first, why="poison")
    consumer.done(second)
    assert [next(consumer).offset for _ in range(4)] == [2, 3, 4, 5]
    assert dead(broker, topic, 1) == [(b"0", b"poison")]
    consumer.commit()
    assert [at.offset for at in broker.group_offsets(topic)] == [6]


def test_a_list_is_given_up_in_one_step(broker, topic):
    consumer = broker.consume(topic, topic)
    messages = [next(consumer) for _ in range(3)]
    consumer.dead_letter(messages)
    assert [value for value, _ in dead(broker, topic, 3)] == [b"0", b"1", b"2"]


@pytest.mark.parametrize("ends", ["commit", "rollback"])
def test_a_transaction_gives_up_what_it_has_received(broker, topic, ends):
    tx = broker.transaction()
    tx.dead_letter(tx.receive(topic, group=topic, timeout=5), "no use")
    getattr(tx, ends)()
    if ends == "commit":
        assert dead(broker, topic, 1) == [(b"0", b"no use")]
    with broker.transaction() as tx:
        assert tx.receive(topic, group=topic, timeout=2).offset == (1 if ends == "commit" else 0)


def test_what_a_transaction_tries_again_is_asked_for_at_once(broker, topic):
    with broker.transaction() as tx:
        tx.retry(tx.receive(topic, group=topic, timeout=5), after=0)
    with broker.transaction() as tx:
        assert tx.receive(topic, group=topic, timeout=2).attempts == 1


def test_a_transaction_gives_up_a_message_of_a_consumer(broker, topic):
    consumer = broker.consume(topic, topic)
    message = next(consumer)
    with broker.transaction() as tx:
        tx.dead_letter(message, consumer=consumer)
    assert [value for value, _ in dead(broker, topic, 1)] == [b"0"]
    assert next(consumer).offset == 1


def test_members_that_read_all_topics_do_not_read_dead_letters(broker, topic):
    consumer = broker.consume(pattern=f"{topic}*", group=topic)
    consumer.dead_letter(next(consumer))
    dead(broker, topic, 1)
    assert [next(consumer).topic for _ in range(5)] == [topic] * 5
    assert consumer.poll(0.3) == []
    named = broker.consume(f"{topic}.dead", f"{topic}-dead")
    with pytest.raises(errors.InvalidSetting, match="dead letters"):
        named.dead_letter(next(named))


def test_a_dead_letter_is_sent_again_for_its_group_alone(broker, topic):
    with broker.consume(topic, topic) as consumer:
        message = next(consumer)
        consumer.dead_letter(message, why="poison")
        dead(broker, topic, 1)
        assert [next(consumer).offset for _ in range(5)] == [1, 2, 3, 4, 5]
        consumer.commit()
    broker.resend(topic, topic, 0, [0])
    with broker.consume(topic, topic) as consumer:
        again = next(consumer)
        assert (again.offset, again.attempts, consumer.poll(0.2)) == (0, 0, [])


def test_an_operator_gives_up_what_waits(broker, topic):
    consumer = broker.consume(topic, topic)
    consumer.retry(next(consumer), after=3600, why="slow")
    broker.dead_letter(topic, topic, 0, [0, 1])
    assert dead(broker, topic, 1) == [(b"0", b"slow")]
    assert next(consumer).offset == 1


def test_without_a_group_nothing_is_given_up(broker, topic):
    consumer = broker.consume(topic)
    with pytest.raises(errors.Misuse):
        consumer.dead_letter(next(consumer))


def test_the_client_for_asyncio_gives_up_too(process, broker, topic):
    async def run():
        async with await asyncio_client.connect(process.address) as connection:
            consumer = connection.consume(topic, topic)
            await consumer.dead_letter(await anext(consumer), why="async")
            async with connection.transaction() as tx:
                await tx.dead_letter(await tx.receive(topic, group=f"{topic}2", timeout=5), "in it")

    asyncio.run(run())
    assert dead(broker, topic, 2) == [(b"0", b"async"), (b"0", b"in it")]

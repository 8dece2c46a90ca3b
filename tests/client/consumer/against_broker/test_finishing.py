"""Test that single messages are finished, by a consumer and in transactions, for a real broker's groups."""

import asyncio
import uuid

import pytest

import txbroker
from txbroker import errors
from txbroker.client import asyncio as asyncio_client

pytestmark = pytest.mark.slow


@pytest.fixture
def topic(broker):
    name = f"t-{uuid.uuid4().hex[:12]}"
    broker.create_topic(name)
    for number in range(6):
        broker.send(name, b"%d" % number)
    return name


def read(consumer, count):
    return [next(consumer) for _ in range(count)]


def again(broker, topic):
    """What the group is given by a consumer that begins now."""
    with broker.consume(topic, topic, partitions=[0], follow=False) as consumer:
        return [message.offset for message in consumer]


def position(broker, group):
    return [at.offset for at in broker.group_offsets(group)]


def test_the_position_goes_on_over_what_is_finished_without_a_gap(broker, topic):
    consumer = broker.consume(topic, topic, partitions=[0])
    messages = read(consumer, 5)
    consumer.done(messages[2])
    assert position(broker, topic) == [0]
    consumer.done([messages[0], messages[4]])
    assert position(broker, topic) == [1]
    consumer.done(messages[1])
    assert position(broker, topic) == [3]
    consumer.done(messages[1])
    consumer.done([])
    assert position(broker, topic) == [3]


def test_a_commit_is_still_all_up_to_its_message(broker, topic):
    consumer = broker.consume(topic, topic, partitions=[0])
    messages = read(consumer, 4)
    consumer.done(messages[3])
    consumer.commit(messages[1])
    assert position(broker, topic) == [2]
    consumer.commit(messages[2])
    assert position(broker, topic) == [4]


def test_another_consumers_claim_fences_it(broker, topic):
    consumer = broker.consume(topic, topic, partitions=[0])
    messages = read(consumer, 2)
    read(broker.consume(topic, topic, partitions=[0]), 1)
    with pytest.raises(errors.GenerationFenced):
        consumer.done(messages[1])
    assert position(broker, topic) == [None]


def test_without_a_group_it_is_misuse(broker, topic):
    consumer = broker.consume(topic)
    with pytest.raises(errors.Misuse, match="without a group"):
        consumer.done(read(consumer, 1))


def test_a_message_of_a_topic_that_the_consumer_does_not_read_is_refused(broker, topic):
    consumer = broker.consume(topic, topic, partitions=[0])
    (message,) = read(consumer, 1)
    other = txbroker.Message("other", 0, 1, 1, None, b"")
    with pytest.raises(errors.WrongValue, match="other-0"):
        consumer.done([message, other])
    assert position(broker, topic) == [None]


@pytest.mark.parametrize("ends", ["commit", "rollback"])
def test_a_transaction_finishes_its_messages_or_none(broker, topic, ends):
    consumer = broker.consume(topic, topic, partitions=[0])
    messages = read(consumer, 4)
    tx = broker.transaction()
    tx.done(messages[1])
    tx.done(messages[3], consumer)
    tx.done(messages[0])
    getattr(tx, ends)()
    assert position(broker, topic) == ([2] if ends == "commit" else [None])
    if ends == "commit":
        consumer.done(messages[2])
        assert position(broker, topic) == [4]


def test_a_transaction_finishes_each_of_a_list(broker, topic):
    consumer = broker.consume(topic, topic, partitions=[0])
    messages = read(consumer, 4)
    with broker.transaction() as tx:
        tx.done([messages[1], messages[0]])
        tx.done([messages[3]], consumer)
        tx.done([])
    assert position(broker, topic) == [2]
    consumer.done(messages[2])
    assert position(broker, topic) == [4]


def test_a_prepared_transaction_holds_only_what_it_finishes(broker, topic):
    consumer = broker.consume(topic, topic, partitions=[0])
    messages = read(consumer, 4)
    consumer.done(messages[0])
    tx = broker.transaction(broker.xid(1, uuid.uuid4().hex, "x"))
    tx.done(messages[2])
    tx.prepare()
    with pytest.raises(errors.OffsetPending):
        consumer.done(messages[2])
    consumer.done([messages[1], messages[3]])
    assert position(broker, topic) == [2]
    tx.commit()
    assert position(broker, topic) == [4]


def test_between_tpc_begin_and_its_end_it_joins_that_transaction(broker, topic):
    consumer = broker.consume(topic, topic, partitions=[0])
    messages = read(consumer, 2)
    broker.tpc_begin(broker.xid(1, uuid.uuid4().hex, "x"))
    consumer.done(messages)
    broker.tpc_prepare()
    assert position(broker, topic) == [None]
    broker.tpc_commit()
    assert position(broker, topic) == [2]


def test_thousands_of_messages_are_finished_in_one_transaction(broker, topic):
    with broker.transaction() as tx:
        for number in range(5000):
            tx.send(topic, b"%d" % number)
    consumer = broker.consume(topic, topic, partitions=[0])
    messages = read(consumer, 3000)
    with broker.transaction() as tx:
        for message in messages[1::2]:
            tx.done(message)
    assert position(broker, topic) == [0]
    consumer.done(messages[::2])
    assert position(broker, topic) == [3000]


class TestWhichConsumer:
    def test_none_is_told(self, broker, topic):
        message = txbroker.Message(topic, 0, 1, 1, None, b"")
        with pytest.raises(errors.Misuse, match="have the groups: none"):
            broker.transaction().done(message)

    def test_of_several_all_are_named(self, broker, topic):
        """Those without claims do not know whose message it is."""
        first, second = (broker.consume(topic, group, partitions=[0], claim=False) for group in ("ga", "gb"))
        (message,), _ = read(first, 1), read(second, 1)
        tx = broker.transaction()
        with pytest.raises(errors.Misuse, match="'ga', 'gb'"):
            tx.done(message)
        tx.done(message, second)
        tx.commit()
        assert (position(broker, "ga"), position(broker, "gb")) == ([], [1])

    def test_a_list_of_several_consumers_is_refused(self, broker, topic):
        first, second = broker.consume(topic, f"{topic}-a"), broker.consume(topic, f"{topic}-b")
        (message,), (other,) = read(first, 1), read(second, 1)
        with pytest.raises(errors.Misuse, match="different consumers"):
            broker.transaction().done([message, other])

    def test_of_several_the_one_that_has_handed_it_out_is_meant_and_no_other_takes_it(self, broker, topic):
        first, second = broker.consume(topic, f"{topic}-a"), broker.consume(topic, f"{topic}-b")
        (message,), (other,) = read(first, 1), read(second, 1)
        with pytest.raises(errors.GenerationFenced):
            second.done(message)
        with broker.transaction() as tx:
            tx.done(other)
        assert (position(broker, f"{topic}-a"), position(broker, f"{topic}-b")) == ([0], [1])

    def test_those_without_a_group_closed_ones_and_those_of_other_topics_do_not_count(self, broker, topic):
        closed, plain, mine = (
            broker.consume(topic, "closed"),
            broker.consume(topic),
            broker.consume(topic, topic, partitions=[0]),
        )
        for consumer in (closed, plain):
            read(consumer, 1)
        (message,) = read(mine, 1)
        closed.close()
        with broker.transaction() as tx:
            tx.done(message)
        assert position(broker, topic) == [1]


def test_on_a_loop_too(process, topic):
    async def run():
        async with await asyncio_client.connect(process.address) as broker:
            consumer = broker.consume(topic, topic, partitions=[0])
            messages = [await anext(consumer) for _ in range(4)]
            await consumer.done(messages[1])
            async with broker.transaction() as tx:
                await tx.done(messages[0])
                await tx.done(messages[2], consumer)
            found = await broker.group_offsets(topic)
            consumer.close()
            return [at.offset for at in found]

    assert asyncio.run(run()) == [3]

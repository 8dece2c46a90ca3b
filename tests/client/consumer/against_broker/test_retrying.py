"""Test that messages are tried again later, by a consumer and in transactions, for a real broker's groups."""

import asyncio
import time
import uuid
from datetime import timedelta

import pytest

import txbroker
from tests.support.broker_process import BrokerProcess
from txbroker import errors
from txbroker.client import asyncio as asyncio_client

pytestmark = pytest.mark.slow

LONG = 3600
SHORT = 0.2


@pytest.fixture
def topic(broker):
    """Ten messages; the keys of the even ones are a, of the odd ones b, and the last two have none."""
    name = f"t-{uuid.uuid4().hex[:12]}"
    broker.create_topic(name)
    for number in range(10):
        broker.send(name, b"%d" % number, key=None if number > 7 else (b"b" if number % 2 else b"a"))
    return name


def read(consumer, count):
    return [next(consumer) for _ in range(count)]


def told(messages):
    return [(message.offset, message.attempts) for message in messages]


def offsets(consumer, timeout=0.1):
    """What comes until nothing does for a while."""
    found = []
    while some := consumer.poll(timeout):
        found += [message.offset for message in some]
    return found


def position(broker, group):
    return [at.offset for at in broker.group_offsets(group)]


class TestOrders:
    def test_by_partition_nothing_behind_it_comes_before_it(self, broker, topic):
        consumer = broker.consume(topic, topic)
        messages = read(consumer, 3)
        assert told(messages) == [(0, 0), (1, 0), (2, 0)]
        consumer.retry(messages[2], after=SHORT, why="later")
        assert told(read(consumer, 3)) == [(2, 1), (3, 0), (4, 0)]
        consumer.commit()
        assert position(broker, topic) == [5]

    def test_by_partition_it_alone_comes_again_of_what_was_handed_out(self, broker, topic):
        consumer = broker.consume(topic, topic)
        messages = read(consumer, 5)
        consumer.retry([messages[3], messages[1]], after=SHORT)
        consumer.commit()
        assert position(broker, topic) == [1]
        assert told(read(consumer, 3)) == [(1, 1), (3, 1), (5, 0)]
        consumer.commit()
        assert position(broker, topic) == [6]

    def test_by_partition_one_that_is_due_waits_for_one_before_it(self, broker, topic):
        consumer = broker.consume(topic, topic)
        messages = read(consumer, 5)
        consumer.retry(messages[1], after=2 * SHORT)
        consumer.retry(messages[3], after=0)
        assert told(read(consumer, 3)) == [(1, 1), (3, 1), (5, 0)]

    def test_what_is_due_comes_before_what_was_read_ahead(self, broker):
        name = f"t-{uuid.uuid4().hex[:12]}"
        broker.create_topic(name)
        with txbroker.connect(broker.address.place, linger=5.0, batch_bytes=10_000) as sender:
            for _ in range(300):
                sender.send_async(name, bytes(50))  # all together, however busy the machine is
            sender.flush()
        consumer = broker.consume(name, name, order=None, prefetch=1, max_run=2)
        messages = read(consumer, 3)
        consumer.retry(messages[0], after=SHORT)
        time.sleep(4 * SHORT)
        assert told(read(consumer, 2)) == [(3, 0), (0, 1)]  # behind the rest of what is being handed out
        assert told(read(consumer, 296)) == [(offset, 0) for offset in range(4, 300)]

    def test_by_key_only_later_ones_of_its_key_wait(self, broker, topic):
        consumer = broker.consume(topic, topic, order="key")
        messages = read(consumer, 2)
        consumer.retry(messages[0], after=SHORT)
        assert told(read(consumer, 5)) == [(3, 0), (5, 0), (7, 0), (8, 0), (9, 0)]
        assert told(read(consumer, 4)) == [(0, 1), (2, 0), (4, 0), (6, 0)]
        consumer.commit()
        assert position(broker, topic) == [10]

    def test_without_an_order_all_others_come(self, broker, topic):
        consumer = broker.consume(topic, topic, order=None)
        messages = read(consumer, 2)
        consumer.retry(messages[0], after=SHORT)
        assert [each.offset for each in read(consumer, 9)] == [2, 3, 4, 5, 6, 7, 8, 9, 0]

    @pytest.mark.parametrize("order", ["partition", "key", None])
    def test_what_is_not_due_is_not_finished_by_a_commit(self, broker, topic, order):
        consumer = broker.consume(topic, topic, order=order)
        messages = read(consumer, 4)
        consumer.retry(messages[2], after=LONG)
        consumer.commit()
        assert position(broker, topic) == [2]
        assert offsets(consumer) == {"partition": [], "key": [5, 7, 8, 9], None: [4, 5, 6, 7, 8, 9]}[order]
        consumer.commit()
        assert position(broker, topic) == [2]
        consumer.close()
        later = broker.consume(topic, topic, order=order)
        assert 2 not in offsets(later)


def test_each_failure_is_counted_once(broker, topic):
    consumer = broker.consume(topic, topic)
    for attempts in range(4):
        (message,) = read(consumer, 1)
        assert told([message]) == [(0, attempts)]
        consumer.retry(message, after=timedelta(0))
        consumer.retry(message, after=0.0)
    (message,) = read(consumer, 1)
    consumer.done(message)
    assert position(broker, topic) == [1]


def test_another_group_sees_nothing_of_it(broker, topic):
    consumer = broker.consume(topic, topic)
    consumer.retry(read(consumer, 1), after=LONG)
    other = broker.consume(topic, f"{topic}-other")
    assert told(read(other, 2)) == [(0, 0), (1, 0)]


def test_without_a_pause_the_broker_chooses_one(broker, topic):
    consumer = broker.consume(topic, topic)
    consumer.retry(read(consumer, 1)[0])
    assert offsets(consumer) == []


def test_a_finished_message_is_not_tried_again(broker, topic):
    consumer = broker.consume(topic, topic)
    messages = read(consumer, 3)
    consumer.commit(messages[0])
    consumer.done(messages[2])
    for message in (messages[0], messages[2]):
        with pytest.raises(errors.AlreadyFinished, match=f"offset {message.offset} of"):
            consumer.retry(message, after=0)
    assert told(read(consumer, 2)) == [(3, 0), (4, 0)]
    consumer.done(messages[1])
    assert position(broker, topic) == [3]


def test_another_consumers_claim_fences_it(broker, topic):
    consumer = broker.consume(topic, topic, partitions=[0])
    messages = read(consumer, 2)
    read(broker.consume(topic, topic, partitions=[0]), 1)
    with pytest.raises(errors.GenerationFenced):
        consumer.retry(messages[1], after=1)


def test_after_a_refusal_the_message_stays_handed_out(tmp_path):
    with (
        BrokerProcess(tmp_path / "data", "max_parked=1") as process,
        txbroker.connect(process.address) as broker,
    ):
        broker.create_topic("t")
        for number in range(5):
            broker.send("t", b"%d" % number)
        consumer = broker.consume("t", "g", order=None)
        messages = read(consumer, 3)
        consumer.retry(messages[0], after=LONG, why="x" * 100_000)
        with pytest.raises(errors.TooManyParked, match="max_parked"):
            consumer.retry(messages[1], after=0)
        assert told(read(consumer, 2)) == [(3, 0), (4, 0)]
        assert offsets(consumer) == []
        consumer.done(messages[0])
        consumer.commit()
        assert position(broker, "g") == [5]


def test_it_comes_again_after_a_restart_with_its_attempts(tmp_path):
    with BrokerProcess(tmp_path / "data") as process:
        with txbroker.connect(process.address) as broker:
            broker.create_topic("t")
            for number in range(3):
                broker.send("t", b"%d" % number)
            consumer = broker.consume("t", "g")
            messages = read(consumer, 2)
            consumer.retry(messages[0], after=0)
            consumer.retry(messages[1], after=LONG)
        process.kill()
        process.start()
        with txbroker.connect(process.address) as broker:
            consumer = broker.consume("t", "g", order=None)
            assert sorted(told(read(consumer, 2))) == [(0, 1), (2, 0)]


class TestTransactions:
    def test_a_received_message_is_tried_again_and_the_others_are_finished(self, broker, topic):
        with broker.transaction() as tx:
            messages = [tx.receive(topic, group=topic) for _ in range(3)]
            tx.retry(messages[1], after=SHORT)
        assert position(broker, topic) == [1]
        with broker.transaction() as tx:
            assert told(tx.receive(topic, group=topic) for _ in range(2)) == [(1, 1), (3, 0)]
        assert position(broker, topic) == [4]

    def test_rolled_back_the_message_is_as_before(self, broker, topic):
        tx = broker.transaction()
        messages = [tx.receive(topic, group=topic) for _ in range(2)]
        tx.retry(messages[0], after=LONG)
        tx.rollback()
        with broker.transaction() as tx:
            assert told(tx.receive(topic, group=topic) for _ in range(2)) == [(0, 0), (1, 0)]
        assert position(broker, topic) == [2]

    @pytest.mark.parametrize("ends", ["commit", "rollback"])
    def test_a_message_of_a_consumer(self, broker, topic, ends):
        consumer = broker.consume(topic, topic)
        messages = read(consumer, 2)
        tx = broker.transaction()
        tx.done(messages[1])
        tx.retry(messages[0], after=0, why="again", consumer=consumer if ends == "commit" else None)
        getattr(tx, ends)()
        if ends == "commit":
            assert told(read(consumer, 2)) == [(0, 1), (2, 0)]
            consumer.commit()
            assert position(broker, topic) == [3]
        else:
            assert told(read(consumer, 1)) == [(2, 0)]

    @pytest.mark.parametrize("ends", ["commit", "rollback"])
    def test_committing_what_was_handed_out_leaves_out_what_the_transaction_tries_again(
        self, broker, topic, ends
    ):
        consumer = broker.consume(topic, topic)
        messages = read(consumer, 3)
        tx = broker.transaction()
        tx.retry(messages[1], after=0, consumer=consumer)
        tx.commit_offsets(consumer)
        getattr(tx, ends)()
        if ends == "commit":
            assert position(broker, topic) == [1]
            assert told(read(consumer, 2)) == [(1, 1), (3, 0)]
        consumer.commit()
        assert position(broker, topic) == [4 if ends == "commit" else 3]

    def test_what_is_said_last_of_a_message_counts(self, broker, topic):
        consumer = broker.consume(topic, topic, partitions=[0], order=None)
        messages = read(consumer, 3)
        with broker.transaction() as tx:
            tx.done(messages[0])
            tx.retry(messages[0], after=LONG)
            tx.retry(messages[1], after=LONG)
            tx.done(messages[1])
        consumer.done(messages[2])
        assert position(broker, topic) == [0]
        assert told(broker.consume(topic, topic, partitions=[0], order=None).poll(5.0))[:1] == [(3, 0)]

    def test_it_is_held_from_prepare_to_the_outcome(self, broker, topic):
        consumer = broker.consume(topic, topic)
        messages = read(consumer, 2)
        tx = broker.transaction(broker.xid(1, uuid.uuid4().hex, "x"))
        tx.retry(messages[0], after=0)
        tx.prepare()
        with pytest.raises(errors.OffsetPending):
            consumer.done(messages[0])
        with pytest.raises(errors.OffsetPending):
            consumer.retry(messages[0])
        tx.commit()
        assert told(read(consumer, 1)) == [(0, 1)]

    def test_a_message_that_was_finished_meanwhile_rolls_it_back(self, broker, topic):
        consumer = broker.consume(topic, topic)
        messages = read(consumer, 2)
        tx = broker.transaction()
        tx.retry(messages[0], after=0)
        consumer.done(messages[0])
        with pytest.raises(errors.AlreadyFinished):
            tx.commit()
        assert position(broker, topic) == [1]

    def test_it_must_be_clear_which_consumer_is_meant(self, broker, topic):
        other = txbroker.Message("other", 0, 1, 1, None, b"")
        tx = broker.transaction()
        with pytest.raises(errors.Misuse, match="Say consumer="):
            tx.retry(other)
        with pytest.raises(errors.Misuse, match="without a group"):
            tx.retry(other, consumer=broker.consume(topic))
        tx.rollback()

    def test_between_tpc_begin_and_its_end_it_joins_that_transaction(self, broker, topic):
        consumer = broker.consume(topic, topic)
        messages = read(consumer, 2)
        broker.tpc_begin(broker.xid(1, uuid.uuid4().hex, "x"))
        consumer.retry(messages[0], after=0)
        consumer.done(messages[1])
        broker.tpc_prepare()
        broker.tpc_commit()
        assert told(read(consumer, 1)) == [(0, 1)]


def test_without_a_group_it_is_misuse(broker, topic):
    consumer = broker.consume(topic)
    with pytest.raises(errors.Misuse, match="without a group"):
        consumer.retry(read(consumer, 1))


@pytest.mark.parametrize(
    ("after", "error"),
    [
        (-1, errors.WrongValue),
        (367 * 24 * 3600, errors.WrongValue),
        (timedelta(days=367), errors.WrongValue),
        (timedelta(seconds=-1), errors.WrongValue),
        (float("nan"), errors.WrongValue),
        ("1", errors.WrongType),
        (True, errors.WrongType),
    ],
)
def test_a_pause_is_at_most_a_year(broker, topic, after, error):
    consumer = broker.consume(topic, topic)
    (message,) = read(consumer, 1)
    with pytest.raises(error, match="after"):
        consumer.retry(message, after=after)
    assert told(read(consumer, 1)) == [(1, 0)]


def test_the_asyncio_client_tries_messages_again_and_a_cancelled_call_loses_none(process, topic):
    async def run():
        async with await asyncio_client.connect(process.address) as broker:
            consumer = broker.consume(topic, topic)
            first = await anext(consumer)
            call = asyncio.ensure_future(consumer.retry(first, after=0))
            await asyncio.sleep(0)
            call.cancel()
            again = await anext(consumer)
            assert again.offset == 0
            tx = broker.transaction()
            await tx.retry(again, after=0)
            await tx.commit()
            return told([await anext(consumer)])

    [(offset, attempts)] = asyncio.run(run())
    assert offset == 0
    assert 1 <= attempts <= 2

"""Test consumers of groups that filter by tags, against a real broker: what comes, what is finished, who may filter."""

import asyncio
import contextlib
import uuid

import pytest

import txbroker
from tests.support.waiting import eventually
from txbroker import errors
from txbroker.client import asyncio as asyncio_client

pytestmark = pytest.mark.slow

COUNT = 400
MATCHING = [number for number in range(COUNT) if number % 7 == 0]


@pytest.fixture
def topic(broker):
    """Of each seven messages one is for eu, of each three one for us."""
    name = f"t-{uuid.uuid4().hex[:12]}"
    broker.create_topic(name, partitions=3)
    for number in range(COUNT):
        tags = ["eu"] * (number % 7 == 0) + ["us"] * (number % 3 == 0)
        broker.send_async(name, b"%d" % number, key=b"%d" % (number % 20), tags=tags)
    broker.flush()
    return name


def lag(broker, group):
    return sum(lag for found in broker.groups() if found.name == group for *_, lag in found.positions)


def numbers(messages):
    return sorted(int(each.value) for each in messages)


@pytest.mark.parametrize("order", ["partition", "key", None])
def test_only_what_matches_comes_and_the_lag_is_gone_in_the_end(broker, topic, order):
    with broker.consume(topic, topic, tags="eu", order=order, follow=False) as consumer:
        found = list(consumer)
        consumer.commit()
    assert numbers(found) == MATCHING
    assert all("eu" in each.tags for each in found)
    assert lag(broker, topic) == 0
    assert broker.describe_group(topic).tags == ("eu",)


def test_without_an_end_it_waits_for_more_and_finishes_the_rest_meanwhile(broker, topic):
    with broker.consume(topic, topic, tags="eu", max_wait=0.2) as consumer:
        found = [next(consumer) for _ in MATCHING]
        assert numbers(found) == MATCHING
        consumer.commit()
        broker.send(topic, b"-1", tags="us")
        assert consumer.poll(0.5) == []
        eventually(lambda: lag(broker, topic) == 0)
        broker.send(topic, b"1000", tags=["eu", "new"])
        assert [each.value for each in consumer.poll(5)] == [b"1000"]


def test_the_members_of_a_group_share_what_matches(broker, other, topic):
    with broker.consume(topic, topic, tags="eu") as one, other.consume(topic, topic) as second:
        seen = []
        while len(seen) < len(MATCHING):
            for consumer in (one, second):
                seen += consumer.poll(0.05)
                consumer.commit()
        assert numbers(seen) == MATCHING
        eventually(lambda: lag(broker, topic) == 0)


def test_a_consumer_with_other_tags_is_refused_and_one_without_reads_as_the_group_says(broker, topic):
    with broker.consume(topic, topic, tags=["us", "eu"], follow=False) as consumer:
        consumer.poll(5)
    with pytest.raises(errors.GroupSettingsConflict, match="reads messages of other tags"):
        broker.consume(topic, topic, tags="eu").poll(1)
    with broker.consume(topic, topic, follow=False) as consumer:
        assert all({"us", "eu"} & set(each.tags) for each in consumer)


def test_a_group_that_was_read_without_a_filter_is_refused_one_that_an_operator_may_set(broker, topic):
    with broker.consume(topic, topic, follow=False) as consumer:
        first = consumer.poll(5, max_messages=1)
        consumer.commit()
    with pytest.raises(errors.GroupSettingsConflict):
        broker.consume(topic, topic, tags="eu").poll(1)
    broker.alter_group(topic, tags=["eu"])
    with broker.consume(topic, topic, tags="eu", follow=False) as consumer:
        found = list(consumer)
    assert set(numbers(found)) == set(MATCHING) - set(numbers(first))
    broker.alter_group(topic, tags=None)
    assert broker.describe_group(topic).tags == ()


def test_a_transaction_receives_what_matches_and_gets_it_again_after_a_rollback(broker, topic):
    seen = []
    for number in range(len(MATCHING) + 3):
        with contextlib.suppress(ZeroDivisionError), broker.transaction() as tx:
            message = tx.receive(topic, topic, timeout=5, tags="eu")
            assert number % 20 != 5 or 1 // 0
            seen.append(message)
    assert numbers(seen) == MATCHING


def test_the_others_of_a_partition_are_not_finished_by_done(broker, topic):
    with broker.consume(topic, topic, tags="eu", order=None, max_wait=0.2) as consumer:
        found = [next(consumer) for _ in MATCHING]
        for message in reversed(found):
            consumer.done(message)
        consumer.poll(0.5)
        eventually(lambda: lag(broker, topic) == 0)


def test_on_a_loop_it_is_the_same(process, topic):
    async def main():
        async with await asyncio_client.connect(process.address, timeout=10.0) as connection:
            consumer = connection.consume(topic, topic, tags=["eu"], follow=False)
            found = [message async for message in consumer]
            await consumer.commit()
            return found, await connection.groups()

    found, groups = asyncio.run(main())
    assert numbers(found) == MATCHING
    [group] = [each for each in groups if each.name == topic]
    assert sum(lag for *_, lag in group.positions) == 0


@pytest.mark.parametrize("transaction", [None, "broker"])
def test_a_worker_is_called_for_what_matches(broker, topic, transaction):
    seen = []

    def handle(message, *_):
        seen.append(message)

    broker.work(topic, topic, handle, tags="eu", concurrency=4, transaction=transaction, follow=False).run()
    assert numbers(seen) == MATCHING
    assert lag(broker, topic) == 0


def test_a_message_that_fails_comes_again(broker, topic):
    failed, seen = set(), []

    def handle(message):
        if message.offset % 2 and (message.partition, message.offset) not in failed:
            failed.add((message.partition, message.offset))
            raise ValueError
        seen.append(message)

    policy = txbroker.RetryPolicy(pause=0.01)
    broker.work(topic, topic, handle, tags="eu", concurrency=4, retry=policy, follow=False).run()
    assert failed
    assert numbers(seen) == MATCHING

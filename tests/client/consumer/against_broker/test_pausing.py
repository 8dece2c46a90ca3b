"""Test that consumers of all clients pause partitions and seek in them, against a real broker."""

import asyncio
import contextlib
import subprocess
import sys
import uuid

import pytest

from tests.client.test_interrupts import Interrupt, at_every_line
from tests.support.interrupted import INTERRUPTED
from tests.support.repository import PACKAGES, ROOT
from tests.support.waiting import eventually
from txbroker import errors
from txbroker.client import asyncio as asyncio_client

pytestmark = INTERRUPTED


@pytest.fixture
def topic(broker):
    """Two partitions; six messages in the first one, with the keys a and b in turns, and one in the second."""
    name = f"t-{uuid.uuid4().hex[:12]}"
    broker.create_topic(name, partitions=2)
    for number in range(6):
        broker.send(name, b"%d" % number, key=b"b" if number % 2 else b"a", partition=0)
    broker.send(name, b"other", partition=1)
    return name


def read(consumer, count):
    return [next(consumer).offset for _ in range(count)]


def offsets(consumer, timeout=0.3):
    """What comes until nothing does for a while."""
    found = []
    while some := consumer.poll(timeout):
        found += [message.offset for message in some]
    return found


def position(broker, group):
    """Where the group is in the first partition."""
    return {at.partition: at.offset for at in broker.group_offsets(group)}[0]


ORDERS = pytest.mark.parametrize("order", ["partition", "key", None])


class TestPause:
    @ORDERS
    @pytest.mark.parametrize(
        "choices", [{}, {"partitions": [0]}], ids=["a member", "with its own partitions"]
    )
    def test_a_paused_partition_goes_on_where_it_was(self, broker, topic, order, choices):
        consumer = broker.consume(topic, topic, order=order, **choices)
        messages = []
        while len(messages) < 2:
            messages += [message for message in consumer.poll(5.0, 1) if message.partition == 0]
        consumer.pause(topic, 0)
        assert consumer.paused == {(topic, 0)}
        broker.send(topic, b"6", partition=0)
        assert not [message for message in consumer.poll(0.3) if message.partition == 0]
        consumer.done(messages[0])
        consumer.commit()
        assert position(broker, topic) == 2
        consumer.resume(topic, 0)
        assert consumer.paused == frozenset()
        assert sorted(offsets(consumer))[-5:] == [2, 3, 4, 5, 6]

    def test_while_iterating(self, broker, topic):
        consumer, found = broker.consume(topic, partitions=[0], follow=False), []
        for message in consumer:
            found.append(message.offset)
            if message.offset == 2:
                consumer.pause(topic, 0)
                assert consumer.poll(0.2) == []
                consumer.resume(topic, 0)
        assert found == [0, 1, 2, 3, 4, 5]

    def test_the_other_partitions_go_on_without_it(self, broker, topic):
        with broker.consume(topic) as consumer:
            assert len(offsets(consumer)) == 7
            consumer.pause(topic, 0)
            broker.send(topic, b"6", partition=0)
            broker.send(topic, b"another", partition=1)
            assert [message.value for message in consumer.poll(5.0)] == [b"another"]
            assert not consumer.whole
            consumer.resume(topic, 0)
            assert [message.value for message in consumer.poll(5.0)][-1] == b"6"
            assert consumer.whole

    @ORDERS
    def test_a_message_that_is_tried_again_waits_for_its_partition(self, broker, topic, order):
        consumer = broker.consume(topic, topic, partitions=[0], order=order)
        message = next(consumer)
        consumer.retry(message, after=0)
        consumer.pause(topic, 0)
        assert consumer.poll(0.5) == []
        consumer.resume(topic, 0)
        assert offsets(consumer).count(0) == 1
        consumer.commit()
        assert position(broker, topic) == 6

    def test_one_that_comes_back_is_not_paused(self, broker, other, topic):
        consumer = broker.consume(topic, topic)
        consumer.poll(5.0)
        eventually(lambda: (consumer.poll(0.05), len(consumer._core.positions) == 2)[-1])
        for index in (0, 1):
            consumer.pause(topic, index)
        consumer.commit()
        with other.consume(topic, topic) as second:
            eventually(lambda: (second.poll(0.05), consumer.poll(0.05), len(consumer.paused) == 1)[-1])
            second.commit()
        eventually(lambda: (consumer.poll(0.05), len(consumer._core.positions) == 2)[-1])
        assert len(consumer.paused) == 1

    def test_before_it_reads_there_is_nothing_to_pause(self, broker, topic):
        with pytest.raises(errors.WrongValue, match="it must be one that this consumer reads now"):
            broker.consume(topic, topic).pause(topic, 0)


class TestSeek:
    @ORDERS
    @pytest.mark.parametrize(
        "choices", [{}, {"partitions": [0]}], ids=["a member", "with its own partitions"]
    )
    def test_back_all_from_there_on_comes_again(self, broker, other, topic, order, choices):
        consumer = broker.consume(topic, topic, order=order, **choices)
        while len(consumer._core.positions) < (1 if choices else 2):
            consumer.poll(0.1)
        offsets(consumer)
        consumer.commit()
        consumer.seek(topic, 0, 2)
        assert position(other, topic) == 2
        assert sorted(offsets(consumer)) == [2, 3, 4, 5]
        consumer.commit()
        assert position(other, topic) == 6

    def test_forward_all_below_is_finished_and_what_is_done_above_stays_so(self, broker, other, topic):
        consumer = broker.consume(topic, topic, partitions=[0])
        messages = [next(consumer) for _ in range(5)]
        consumer.done(messages[4])
        consumer.seek(topic, 0, 3)
        assert position(other, topic) == 3
        assert offsets(consumer) == [3, 5]

    def test_a_parked_message_comes_at_once_if_it_is_there_or_behind(self, broker, topic):
        consumer = broker.consume(topic, topic, partitions=[0])
        messages = [next(consumer) for _ in range(3)]
        consumer.done(messages[:2])
        consumer.retry(messages[2], after=3600)
        assert offsets(consumer) == []
        consumer.seek(topic, 0, 1)
        assert [(each.offset, each.attempts) for each in consumer.poll(5.0, 2)] == [(1, 0), (2, 0)]

    def test_outside_of_the_log_it_is_refused_and_nothing_has_changed(self, broker, other, topic):
        consumer = broker.consume(topic, topic, partitions=[0])
        assert read(consumer, 2) == [0, 1]
        with pytest.raises(errors.OffsetOutOfRange, match="nothing has changed"):
            consumer.seek(topic, 0, 7)
        assert position(other, topic) is None
        assert read(consumer, 1) == [2]
        consumer.commit()
        assert position(other, topic) == 3

    def test_by_a_consumer_that_was_fenced_it_is_refused(self, broker, other, topic):
        consumer = broker.consume(topic, topic, partitions=[0])
        read(consumer, 1)
        consumer.pause(topic, 0)  # so that no fetch tells it
        theirs = other.consume(topic, topic, partitions=[0])
        assert read(theirs, 1) == [0]
        with pytest.raises(errors.GenerationFenced):
            consumer.seek(topic, 0, 3)
        theirs.commit()
        assert position(other, topic) == 1

    def test_while_a_prepared_transaction_holds_a_message_it_is_refused(self, broker, other, topic):
        consumer = broker.consume(topic, topic, partitions=[0])
        messages = [next(consumer) for _ in range(2)]
        consumer.done(messages[0])
        tx = broker.transaction(broker.xid(1, topic, "b"))
        tx.done(messages[1], consumer)
        tx.prepare()
        with pytest.raises(errors.OffsetPending):
            consumer.seek(topic, 0, 4)
        assert read(consumer, 1) == [2]
        tx.commit()
        consumer.commit()
        assert position(other, topic) == 3

    def test_in_the_connections_own_transaction_it_is_misuse_and_the_transaction_goes_on(self, broker, topic):
        consumer = broker.consume(topic, topic, partitions=[0])
        message = next(consumer)
        broker.tpc_begin(broker.xid(1, topic, "b"))
        with pytest.raises(errors.Misuse, match="between tpc_begin and the end of that transaction"):
            consumer.seek(topic, 0, 4)
        consumer.commit(message)
        broker.tpc_commit()
        assert position(broker, topic) == 1
        assert read(consumer, 1) == [1]

    def test_without_a_group_an_offset_that_is_not_there_is_as_out_of_range_says(self, broker, topic):
        consumer = broker.consume(topic, partitions=[0], out_of_range="earliest")
        read(consumer, 1)
        consumer.seek(topic, 0, 100)
        assert read(consumer, 1) == [0]
        consumer.seek(topic, 0, "latest")
        broker.send(topic, b"6", partition=0)
        assert read(consumer, 1) == [6]


def read_on(consumer, count):
    """Read so many; a reading that was interrupted tells it once."""
    found = []
    while len(found) < count:
        with contextlib.suppress(Interrupt):
            found.append(next(consumer).offset)
    return found


def test_an_interrupted_pause_or_seek_loses_nothing_and_gives_nothing_twice(broker, other, topic):
    def case(at):
        group = uuid.uuid4().hex
        consumer = broker.consume(topic, group, partitions=[0], claim=False)
        assert read_on(consumer, 1) == [0]
        with at:
            consumer.pause(topic, 0)
        with at:
            consumer.resume(topic, 0)
        consumer.resume(topic, 0)
        assert read_on(consumer, 2) == [1, 2], at.raised
        with at:
            consumer.seek(topic, 0, 5)
        [following] = read_on(consumer, 1)
        assert following == 5 or (at.raised and following == 3), at.raised
        with contextlib.suppress(Interrupt):
            consumer.seek(topic, 0, 1)
        consumer.seek(topic, 0, 1)
        assert read_on(consumer, 5) == [1, 2, 3, 4, 5], at.raised
        consumer.commit()
        assert position(other, group) == 6, at.raised
        consumer.close()

    at_every_line(case, most=20_000, step=7)


def test_asyncio_has_the_same(process, broker, topic):
    async def main():
        async with await asyncio_client.connect(process.address) as connection:
            consumer = connection.consume(topic, topic, partitions=[0])
            found = [(await anext(consumer)).offset for _ in range(2)]
            consumer.pause(topic, 0)
            assert consumer.paused == {(topic, 0)}
            waiting = asyncio.ensure_future(consumer.poll(10.0))
            await asyncio.sleep(0.1)
            assert not waiting.done()
            consumer.resume(topic, 0)
            found += [message.offset for message in await waiting]
            await consumer.seek(topic, 0, 1)
            found.append((await anext(consumer)).offset)
            seeking = consumer.seek(topic, 0, 4)
            seeking.cancel()  # it goes on by itself
            found.append((await anext(consumer)).offset)
            await consumer.commit()
            return found

    assert asyncio.run(main()) == [0, 1, 2, 3, 4, 5, 1, 4]
    assert position(broker, topic) == 5


TWISTED = """
import sys
from twisted.internet.defer import ensureDeferred
from twisted.internet.task import react
from txbroker import errors
from txbroker.client.twisted import connect

async def everything(reactor, address, topic):
    connection = await connect(address, reactor=reactor)
    consumer = connection.consume(topic, topic, partitions=[0])
    print(*[(await consumer.__anext__()).offset for _ in range(2)])
    consumer.pause(topic, 0)
    assert consumer.paused == {(topic, 0)}
    waiting = consumer.poll(10.0)
    assert await consumer.poll(0.1) == []
    assert not waiting.called
    consumer.resume(topic, 0)
    print(*[message.offset for message in await waiting])
    await consumer.seek(topic, 0, 1)
    print((await consumer.__anext__()).offset)
    try:
        await consumer.seek(topic, 0, 100)
    except errors.OffsetOutOfRange:
        print((await consumer.__anext__()).offset)
    await consumer.seek(topic, 0, 4)
    print((await consumer.__anext__()).offset)
    await consumer.commit()
    await connection.close()

react(lambda reactor: ensureDeferred(everything(reactor, *sys.argv[1:])))
"""


def test_twisted_has_the_same(process, broker, topic, tmp_path):
    script = tmp_path / "pausing.py"
    script.write_text(TWISTED)
    ran = subprocess.run(
        [sys.executable, str(script), process.address, topic], cwd=ROOT, capture_output=True, text=True, timeout=60,
        check=False, env={"PYTHONPATH": PACKAGES},
    )  # fmt: skip
    assert ran.stdout.split() == ["0", "1", "2", "3", "4", "5", "1", "2", "4"], ran.stderr
    assert position(broker, topic) == 5

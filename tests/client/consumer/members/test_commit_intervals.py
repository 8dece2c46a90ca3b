"""Test that what a program is done with is finished within an interval, with a release, and at the end, and no more.

Seen to fail: without the thread that drives meanwhile, with what is being handled finished too, with what is released
not said, with the last commit sent after the member has left, with what was refused for now forgotten, and with a
refusal of one partition taken for all.
"""

import asyncio
import logging
import os
import random
import signal
import subprocess
import sys
import time

import pytest
from msgspec.structs import replace

import txbroker
from tests.client.consumer.members.scene import owners, send, shares
from tests.support.broker_process import BrokerProcess
from tests.support.repository import PACKAGES
from tests.support.waiting import eventually
from txbroker import errors
from txbroker.client.asyncio import connect as asyncio_connect

pytestmark = pytest.mark.slow

SOON, NEVER = 0.1, 3600.0


def finished(broker, group):
    """How many messages the group has finished in each partition, by its positions."""
    return {at.partition: at.offset or 0 for at in broker.group_offsets(group)}


def total(broker, group):
    return sum(finished(broker, group).values())


def read(consumer, count):
    return [next(consumer) for _ in range(count)]


NAMED = pytest.mark.parametrize("named", [{}, {"partitions": [0, 1, 2, 3]}], ids=["member", "named"])


class TestDone:
    @NAMED
    def test_it_is_finished_while_the_program_is_busy_with_something_else(
        self, broker, connections, topic, named
    ):
        send(broker, topic, 8)
        consumer = connections("one").consume(topic, topic, commit_interval=SOON, **named)
        messages = read(consumer, 4)
        consumer.done(messages[:3])
        eventually(lambda: total(broker, topic) == 3)
        consumer.done(messages[3])
        eventually(lambda: total(broker, topic) == 4)

    def test_it_does_not_wait_for_the_broker(self, broker, connections, topic):
        send(broker, topic, 4)
        consumer = connections("one").consume(topic, topic, commit_interval=NEVER)
        consumer.done(read(consumer, 4))
        assert total(broker, topic) == 0

    @NAMED
    @pytest.mark.parametrize("closed", ["consumer", "connection"])
    def test_what_is_left_is_finished_at_the_end(self, broker, connections, topic, named, closed):
        send(broker, topic, 8)
        connection = connections("one")
        consumer = connection.consume(topic, topic, commit_interval=NEVER, **named)
        consumer.done(read(consumer, 5))
        (consumer if closed == "consumer" else connection).close()
        eventually(lambda: total(broker, topic) == 5)
        second = connections("two").consume(topic, topic, **named)
        assert len({(each.partition, each.offset) for each in read(second, 3)}) == 3
        assert second.poll(SOON) == []

    def test_out_of_order_and_with_what_is_tried_again(self, broker, connections, topic):
        send(broker, topic, 20)
        consumer = connections("one").consume(topic, topic, commit_interval=SOON, order=None)
        messages = {(each.partition, each.offset): each for each in read(consumer, 20)}
        consumer.retry(messages[1, 2], after=3600)
        consumer.done([each for place, each in messages.items() if place not in ((1, 2), (3, 0))])
        eventually(lambda: finished(broker, topic) == {0: 5, 1: 2, 2: 5, 3: 0})
        consumer.done(messages[3, 0])
        eventually(lambda: finished(broker, topic) == {0: 5, 1: 2, 2: 5, 3: 5})
        broker.skip(topic, topic, 1, [2])
        eventually(lambda: finished(broker, topic)[1] == 5)

    def test_with_a_transaction_it_is_finished_by_that(self, broker, connections, topic):
        send(broker, topic, 4)
        connection = connections("one")
        consumer = connection.consume(topic, topic, commit_interval=SOON)
        messages = read(consumer, 4)
        with connection.transaction() as tx:
            tx.done(messages[0], consumer=consumer)
            time.sleep(3 * SOON)
            assert total(broker, topic) == 0
        assert total(broker, topic) == 1
        xid = connection.xid(1, "x", "b")
        connection.tpc_begin(xid)
        consumer.done(messages[1])
        time.sleep(3 * SOON)
        assert total(broker, topic) == 1
        connection.tpc_rollback()
        time.sleep(3 * SOON)
        assert total(broker, topic) == 1

    def test_what_a_prepared_transaction_holds_is_finished_after_it(self, broker, connections, topic):
        send(broker, topic, 4)
        connection = connections("one")
        consumer = connection.consume(topic, topic, commit_interval=SOON)
        messages = read(consumer, 4)
        tx = connection.transaction(connection.xid(1, f"held-{topic}", "b"))
        tx.done(messages[0], consumer=consumer)
        tx.prepare()
        consumer.done(messages)
        time.sleep(5 * SOON)
        assert total(broker, topic) == 0 or finished(broker, topic)[messages[0].partition] == 0
        tx.commit()
        eventually(lambda: total(broker, topic) == 4)

    def test_the_wrong_thing_is_refused_at_once(self, broker, connections, topic):
        send(broker, topic, 4)
        consumer = connections("one").consume(topic, topic, commit_interval=SOON)
        message = next(consumer)
        with pytest.raises(errors.WrongType):
            consumer.done(5)
        with pytest.raises(errors.WrongValue, match="does not read"):
            consumer.done(replace(message, topic="other"))
        consumer.done(message)
        eventually(lambda: total(broker, topic) == 1)


class TestByItself:
    @NAMED
    def test_what_is_in_hand_is_not_finished(self, broker, connections, topic, named):
        send(broker, topic, 8)
        consumer = connections("one").consume(topic, topic, commit_interval=SOON, auto_done=True, **named)
        for count, _ in enumerate(consumer):
            eventually(lambda: total(broker, topic) == count)  # noqa: B023
            time.sleep(SOON / 4)
            if count == 5:
                break
        time.sleep(3 * SOON)
        assert total(broker, topic) == 5

    def test_a_list_is_done_with_when_the_next_is_asked_for(self, broker, connections, topic):
        send(broker, topic, 40)
        consumer = connections("one").consume(topic, topic, commit_interval=SOON, auto_done=True)
        seen = 0
        for most in (3, 4, None, 2):
            some = consumer.poll(5.0, most)
            eventually(lambda: total(broker, topic) == seen)  # noqa: B023
            time.sleep(2 * SOON)
            assert total(broker, topic) == seen
            seen += len(some)
        assert consumer.poll(5.0, 1)
        eventually(lambda: total(broker, topic) == seen)

    @pytest.mark.parametrize("order", ["partition", "key", None])
    @pytest.mark.parametrize("way", ["iteration", "poll"])
    def test_closing_finishes_what_was_handed_out_before_of_what_is_being_read(
        self, broker, connections, topic, order, way
    ):
        for number in range(20):
            broker.send(topic, b"%d" % number, partition=0)
        consumer = connections("one").consume(
            topic, topic, commit_interval=NEVER, auto_done=True, order=order
        )
        for _ in range(8):
            assert next(consumer) if way == "iteration" else consumer.poll(5.0, 1)
        consumer.close()
        eventually(lambda: total(broker, topic) == 7)

    def test_what_is_tried_again_is_not_done(self, broker, connections, topic):
        broker.send(topic, b"a", partition=0)
        broker.send(topic, b"b", partition=0)
        consumer = connections("one").consume(topic, topic, commit_interval=SOON, auto_done=True, order=None)
        consumer.retry(next(consumer), after=0.5)
        assert next(consumer).value == b"b"
        again = next(consumer)
        assert (again.value, again.attempts) == (b"a", 1)
        time.sleep(3 * SOON)
        assert finished(broker, topic).get(0, 0) == 0
        assert consumer.poll(0.0) == []
        eventually(lambda: finished(broker, topic)[0] == 2)

    def test_it_is_no_part_of_transactions_which_may_be_rolled_back(self, broker, connections, topic):
        send(broker, topic, 4)
        connection = connections("one")
        consumer = connection.consume(topic, topic, commit_interval=SOON, auto_done=True)
        message = next(consumer)
        tx = connection.transaction()
        for use in (
            lambda: tx.done(message, consumer=consumer),
            lambda: tx.commit_offsets(consumer),
            lambda: tx.retry(message, consumer=consumer),
            lambda: tx.dead_letter(message, consumer=consumer),
        ):
            with pytest.raises(errors.Misuse, match="auto_done="):
                use()
        tx.rollback()
        connection.tpc_begin(connection.xid(1, topic, "b"))
        for use in (
            lambda: consumer.done(message),
            lambda: consumer.retry(message),
            lambda: consumer.dead_letter(message),
            consumer.commit,
        ):
            with pytest.raises(errors.Misuse, match="auto_done="):
                use()
        connection.tpc_rollback()
        assert total(broker, topic) == 0
        consumer.poll(0.0)
        eventually(lambda: total(broker, topic) == 1)

    def test_an_error_in_the_loop_leaves_its_message(self, broker, connections, topic):
        send(broker, topic, 8)
        connection = connections("one")
        consumer = connection.consume(topic, topic, commit_interval=SOON, auto_done=True)

        def fails_with_the_fourth():
            with connection:
                for count, _ in enumerate(consumer):
                    if count == 3:
                        raise ValueError("the fourth")

        with pytest.raises(ValueError, match="the fourth"):
            fails_with_the_fourth()
        eventually(lambda: total(broker, topic) == 3)
        time.sleep(2 * SOON)
        assert total(broker, topic) == 3

    def test_a_process_that_dies_has_finished_nothing_that_it_did_not_handle(
        self, process, broker, topic, tmp_path
    ):
        send(broker, topic, 400)
        program = (
            "import os, signal, sys, time, txbroker\n"
            "broker = txbroker.connect(sys.argv[1])\n"
            "log = os.open(sys.argv[3], os.O_WRONLY | os.O_APPEND | os.O_CREAT)\n"
            "for m in broker.consume(sys.argv[2], sys.argv[2], commit_interval=0.02, auto_done=True):\n"
            "    time.sleep(0.002)\n"
            "    os.write(log, b'%d %d\\n' % (m.partition, m.offset))\n"
        )
        path = str(tmp_path / "handled.log")
        running = subprocess.Popen(
            [sys.executable, "-c", program, process.address, topic, path],
            env={**os.environ, "PYTHONPATH": PACKAGES},
        )
        try:
            eventually(lambda: total(broker, topic) > 50, 30)
        finally:
            running.send_signal(signal.SIGKILL)
            running.wait()
        time.sleep(0.1)
        with open(path) as file:
            handled = {tuple(map(int, line.split())) for line in file}
        for partition, position in finished(broker, topic).items():
            assert {(partition, offset) for offset in range(position)} <= handled


class TestHandingOver:
    @pytest.mark.parametrize("interval", [NEVER, 0.02])
    def test_what_is_done_goes_along_with_the_release(self, broker, connections, topic, caplog, interval):
        one = connections("one").consume(topic, topic, commit_interval=interval)
        send(broker, topic, 40)
        seen = read(one, 40)
        one.done(seen)
        two = connections("two").consume(topic, topic, commit_interval=NEVER)
        eventually(lambda: (two.poll(0.01), one.poll(0.01), shares(broker, topic, 2, 2))[-1])
        moved = owners(broker, topic)["two"]
        positions = finished(broker, topic)
        assert {each: positions[each] for each in moved} == dict.fromkeys(moved, 10)
        assert interval < NEVER or sum(positions.values()) == 20
        assert two.poll(3 * SOON) == []
        assert "another's to handle" not in caplog.text

    def test_as_many_partitions_as_a_request_takes_are_given_back_at_once(self, broker, connections, topic):
        broker.alter_topic(topic, partitions=240)
        for partition in range(240):
            broker.send_async(topic, b"%d" % partition, partition=partition)
        broker.flush()
        one = connections("one").consume(topic, topic, commit_interval=NEVER)
        one.done(read(one, 240))
        two = connections("two").consume(topic, topic)
        eventually(lambda: (two.poll(0.01), one.poll(0.01), shares(broker, topic, 120, 120))[-1], 8)
        positions = finished(broker, topic)
        assert [positions[each] for each in owners(broker, topic)["two"]] == [1] * 120
        assert two.poll(3 * SOON) == []

    def test_a_partition_with_something_in_hand_waits_for_that(self, broker, connections, topic):
        one = connections("one").consume(topic, topic, commit_interval=NEVER)
        send(broker, topic, 40)
        seen = read(one, 40)
        one.done(seen[:-1])
        last = seen[-1]
        two = connections("two").consume(topic, topic)
        until = time.monotonic() + 1.0
        while time.monotonic() < until:
            assert two.poll(0.01) == []
            one.poll(0.01)
        assert last.partition not in owners(broker, topic)["two"]
        one.done(last)
        eventually(lambda: (two.poll(0.01), one.poll(0.01), shares(broker, topic, 2, 2))[-1])
        assert two.poll(3 * SOON) == []

    def test_nothing_is_handled_twice_when_members_come_and_go(self, broker, connections, topic):
        seen, consumers = [], {}
        for turn in range(8):
            send(broker, topic, 40, 40 * turn)
            name = f"m{turn}"
            consumers[name] = connections(name).consume(
                topic, topic, commit_interval=random.choice((SOON, NEVER)), auto_done=True
            )
            until = time.monotonic() + 1.0
            while time.monotonic() < until:
                for consumer in list(consumers.values()):
                    seen += [each.value for each in consumer.poll(0.01, 3)]
            if turn > 2:
                gone = consumers.pop(f"m{turn - 2}")
                seen += [each.value for each in gone.poll(0.0)]
                gone.poll(0.0)
                gone.close()
        eventually(
            lambda: (
                seen.extend(each.value for consumer in consumers.values() for each in consumer.poll(0.01)),
                len(set(seen)) == 320,
            )[-1],
            20,
        )
        # A member that leaves with a message in hand leaves it to be handled again.
        assert len(seen) - len(set(seen)) <= 40

    def test_it_is_said_before_the_member_leaves_and_another_has_its_partition(self, broker, connections):
        topic = f"t-{random.getrandbits(48):x}"
        broker.create_topic(topic)
        broker.send(topic, b"v")
        leaving = connections("one")
        one = leaving.consume(topic, topic, commit_interval=NEVER)
        one.done(next(one))
        two = connections("two").consume(topic, topic)
        two.poll(0.2)
        assert len(broker.describe_group(topic).members) == 2
        leaving.close()
        assert two.poll(1.0) == []
        assert owners(broker, topic) == {"two": [0]}

    def test_of_a_lost_partition_the_rest_is_finished(self, broker, connections, topic, caplog):
        one = connections("one").consume(topic, topic, commit_interval=0.5, partitions=[0, 1])
        for partition in (0, 1):
            broker.send(topic, b"v", partition=partition)
        messages = read(one, 2)
        thief = connections("two").consume(topic, topic, partitions=[0])
        assert thief.poll(5.0)
        with caplog.at_level(logging.WARNING, "txbroker.client"):
            one.done(messages)
            eventually(lambda: finished(broker, topic).get(1) == 1)
            eventually(lambda: "1 messages of" in caplog.text)
        assert finished(broker, topic)[0] == 0


@pytest.fixture(scope="module")
def strict(tmp_path_factory):
    settings = ("assignment_delay=50ms", "max_ahead=200")
    with BrokerProcess(tmp_path_factory.mktemp("broker") / "data", *settings) as running:
        yield running


def left(process, name, partition):
    """The offsets that a group has not finished in a partition of the topic of its name."""
    with txbroker.connect(process.address, timeout=10.0) as looking:
        messages = looking.consume(name, name, claim=False, order=None).poll(5.0)
    return [each.offset for each in messages if each.partition == partition]


class TestFarAhead:
    """With a broker that lets nobody finish more than 200 messages ahead of an unfinished one."""

    @pytest.fixture
    def near(self, strict):
        with txbroker.connect(strict.address, timeout=10.0) as connection:
            connection.create_topic("t", partitions=4, exist_ok=True)
            yield connection

    @pytest.mark.parametrize("order", ["partition", None])
    def test_any_number_in_order_is_finished(self, strict, near, order):
        group = f"g-{order}"
        send(near, "t", 4000)
        with txbroker.connect(strict.address, timeout=10.0) as connection:
            consumer = connection.consume("t", group, commit_interval=0.2, auto_done=True, order=order)
            read(consumer, 3000)
            eventually(lambda: total(near, group) >= 2900)
            consumer.close()
            eventually(lambda: total(near, group) >= 2999)

    def test_a_slow_message_holds_up_its_partition_alone_and_what_is_near_is_finished(self, strict, near):
        near.create_topic("slow", partitions=2)
        for number in range(1200):
            near.send_async("slow", b"%d" % number, partition=number % 2)
        near.flush()
        with txbroker.connect(strict.address, timeout=10.0) as connection:
            consumer = connection.consume("slow", "slow", commit_interval=SOON, order=None)
            messages = read(consumer, 1200)
            consumer.done([each for each in messages if (each.partition, each.offset) != (0, 0)])
            eventually(lambda: finished(near, "slow") == {0: 0, 1: 600})
            eventually(lambda: left(strict, "slow", partition=0)[1] > 100)  # what is near is finished
            assert left(strict, "slow", partition=0)[0] == 0
            consumer.done([each for each in messages if (each.partition, each.offset) == (0, 0)])
            eventually(lambda: finished(near, "slow") == {0: 600, 1: 600})


class TestLosses:
    def test_over_a_restart_of_the_broker(self, tmp_path):
        with BrokerProcess(tmp_path / "data", "assignment_delay=50ms", "reconnect_grace=300ms") as process:
            broker = txbroker.connect(process.address, timeout=20.0)
            broker.create_topic("t", partitions=4)
            send(broker, "t", 40)
            connection = txbroker.connect(process.address, timeout=20.0)
            consumer = connection.consume("t", "t", commit_interval=0.5)
            messages = read(consumer, 20)
            consumer.done(messages[:10])
            process.kill()
            consumer.done(messages[10:])
            process.start()
            eventually(lambda: total(broker, "t") == 20, 20)
            connection.close()
            broker.close()

    def test_with_asyncio(self, process, broker, topic):
        send(broker, topic, 12)

        async def run():
            async with await asyncio_connect(process.address) as connection:
                consumer = connection.consume(topic, topic, commit_interval=SOON)
                messages = [await anext(consumer) for _ in range(4)]
                await consumer.done(messages[:3])
                await asyncio.sleep(5 * SOON)
                assert await asyncio.to_thread(total, broker, topic) == 3
                await consumer.done(messages[3])
            assert total(broker, topic) == 4
            async with await asyncio_connect(process.address) as connection:
                consumer = connection.consume(topic, topic, commit_interval=SOON, auto_done=True)
                async for _ in consumer:
                    break
                await anext(consumer)
                assert len(await consumer.poll(5.0, 2)) in (1, 2)
                await asyncio.sleep(5 * SOON)
                assert await asyncio.to_thread(total, broker, topic) == 6

        asyncio.run(run())


class TestHandlerTimeout:
    def test_who_takes_too_long_leaves_the_group_and_is_told(self, broker, connections, topic):
        send(broker, topic, 4)
        lost = []
        one = connections("one").consume(topic, topic, handler_timeout=0.3, on_lost=lost.extend)
        message = next(one)
        two = connections("two").consume(topic, topic)
        handled = []
        eventually(lambda: (handled.extend(two.poll(0.05)), len(handled) == 4)[-1])
        assert owners(broker, topic) == {"two": [0, 1, 2, 3]}
        with pytest.raises(errors.GenerationFenced):
            one.done(message)
        with pytest.raises(errors.HandlerTimedOut, match=r"handler_timeout=0\.3 s"):
            next(one)
        two.commit()
        eventually(lambda: (one.poll(0.01), two.poll(0.01), shares(broker, topic, 2, 2))[-1])
        assert (topic, message.partition) in lost

    def test_who_comes_back_in_time_stays_however_long_it_reads(self, broker, connections, topic):
        send(broker, topic, 12)
        one = connections("one").consume(topic, topic, handler_timeout=0.6)
        for _ in range(6):
            next(one)
            time.sleep(0.2)
        one.commit()
        assert total(broker, topic) == 6

    def test_what_was_done_before_is_finished(self, broker, connections, topic):
        send(broker, topic, 8)
        one = connections("one").consume(topic, topic, commit_interval=NEVER, handler_timeout=0.3)
        one.done(read(one, 5))
        eventually(lambda: not broker.describe_group(topic).members)
        eventually(lambda: total(broker, topic) == 5)

    def test_nobody_who_has_nothing_in_hand_leaves(self, broker, connections, topic):
        one = connections("one").consume(topic, topic, handler_timeout=0.2)
        assert one.poll(1.0) == []
        [member] = broker.describe_group(topic).members
        time.sleep(1.0)
        assert [each.number for each in broker.describe_group(topic).members] == [member.number]

    def test_what_was_in_hand_is_an_attempt_with_a_policy(self, broker, connections, topic):
        broker.send(topic, b"poison", partition=0)
        policy = txbroker.RetryPolicy(attempts=3, pause=0.0, longest=0.0, ending="drop")
        one = connections("one").consume(topic, topic, handler_timeout=0.2, retry=policy)
        assert next(one).attempts == 0
        two = connections("two").consume(topic, topic)
        again = []
        eventually(lambda: (again.extend(two.poll(0.05)), again)[-1])
        assert [each.attempts for each in again] == [1]

    def test_with_asyncio(self, process, broker, topic):
        send(broker, topic, 4)

        async def run():
            async with await asyncio_connect(process.address) as connection:
                consumer = connection.consume(topic, topic, handler_timeout=0.2)
                await anext(consumer)
                await asyncio.sleep(1.0)
                assert (await connection.describe_group(topic)).members == []
                with pytest.raises(errors.HandlerTimedOut):
                    await anext(consumer)
                assert (await anext(consumer)).offset == 0

        asyncio.run(run())

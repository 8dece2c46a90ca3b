"""Test calls of the asyncio client that are cancelled at every await and between: docs/clients.md says what each
leaves.

Every case is run again and again, cancelled one turn of the loop later each time, until it is through before that.
"""

import asyncio
import os
import subprocess
import sys
import uuid

import pytest

from journal.transaction_states import State
from tests.support.broker_process import BrokerProcess
from tests.support.repository import PACKAGES, ROOT
from txbroker import errors
from txbroker.client.asyncio import connect
from txbroker.client.asyncio.reply import Reply
from txbroker.client.core.answers import MOST_AT_ONCE as ANSWERED_AT_ONCE
from txbroker.client.core.waits import MOST_AT_ONCE, Line
from txbroker.client.transactions.decision import Stage

pytestmark = pytest.mark.slow

MOST_TURNS = 60
"""Turns of the loop after which an operation is through, but for one that has to wait for the broker's disk."""


@pytest.fixture(scope="module")
def process(tmp_path_factory):
    with BrokerProcess(tmp_path_factory.mktemp("broker") / "data") as running:
        yield running


def through(process, work, **choices):
    async def main():
        async with await connect(process.address, timeout=20.0, **choices) as broker:
            name = f"t-{uuid.uuid4().hex[:12]}"
            await broker.create_topic(name)
            await work(broker, name)

    asyncio.run(main())


async def cancelled(operation, turns, times=1):
    """Run an operation in a task that is cancelled after so many turns; whether it was through before, its result."""
    task = asyncio.ensure_future(operation)
    for _ in range(turns):
        if task.done():
            break
        await asyncio.sleep(0)
    was_through = task.done()
    for _ in range(times):
        task.cancel()
        await asyncio.sleep(0)
    try:
        return was_through, await task
    except asyncio.CancelledError:
        return False, None


async def at_every_turn(case):
    """Run a case with 0, 1, 2, ... turns, cancelled once and twice, until it is through before it is cancelled."""
    for turns in range(MOST_TURNS):
        if await case(turns, 1) and await case(turns, 2):
            return


def test_a_cancelled_receive_hands_out_nothing_and_the_transaction_goes_on(process):
    async def work(broker, topic):
        got = []

        async def case(turns, times):
            await broker.send(topic, b"")
            async with broker.transaction() as tx:
                was_through, message = await cancelled(tx.receive(topic, group=topic), turns, times)
                if message is None:
                    message = await tx.receive(topic, group=topic, timeout=20.0)
                got.append(message.offset)
            return was_through

        await at_every_turn(case)
        assert got == list(range(len(got)))
        (at,) = await broker.group_offsets(topic)
        assert at.offset == len(got)

    through(process, work)


def test_a_receive_that_is_cancelled_while_it_waits_takes_no_later_message(process):
    async def work(broker, topic):
        got = []
        async with await connect(process.address) as other:
            for number in range(30):
                async with broker.transaction() as tx:
                    with pytest.raises(TimeoutError):  # noqa: PT012 - the block is what raises
                        if number % 2:
                            await asyncio.wait_for(tx.receive(topic, group=topic), 0.01)
                        else:
                            async with asyncio.timeout(0.01):
                                await tx.receive(topic, group=topic)
                    await other.send(topic, b"%d" % number)
                    got.append((await tx.receive(topic, group=topic, timeout=20.0)).value)
        assert got == [b"%d" % number for number in range(30)]

    through(process, work)


def test_a_receive_whose_message_is_here_when_its_caller_is_cancelled_leaves_it(process):
    """Cancelled after the result is set and before the caller goes on."""

    async def work(broker, topic):
        for number in range(20):
            async with broker.transaction() as tx:
                task = asyncio.ensure_future(tx.receive(topic, group=topic))
                while (receiver := next(iter(broker._receivers._found.values()), None)) is None:
                    await asyncio.sleep(0)
                turn = receiver.join(broker.core.clock() + 100.0)  # behind the task
                receiver._consumer.line.clear()
                turn.leave()
                task.cancel()
                await asyncio.wait([task])
                task = asyncio.ensure_future(tx.receive(topic, group=topic))
                await asyncio.sleep(0)
                (waiting,) = receiver._consumer.line._waiting
                waiting.then(task.cancel)  # in the very call that gives it the turn
                await broker.send(topic, b"%d" % number)
                await asyncio.wait([task])
                assert task.cancelled()
                assert (await tx.receive(topic, group=topic, timeout=20.0)).value == b"%d" % number

    through(process, work)


@pytest.mark.parametrize("way", ["anext", "poll", "poll some"])
def test_a_cancelled_consumer_hands_out_nothing(process, way):
    async def work(broker, topic):
        consumer = broker.consume(topic, group=topic, max_wait=1.0)
        got = []

        async def one():
            if way == "anext":
                return [await anext(consumer)]
            return await consumer.poll(20.0, None if way == "poll" else 2)

        async def case(turns, times):
            await asyncio.gather(*[broker.send(topic, b"") for _ in range(3 if way == "poll some" else 1)])
            was_through, messages = await cancelled(one(), turns, times)
            got.extend(message.offset for message in messages or [])
            return was_through

        await at_every_turn(case)
        await broker.send(topic, b"")
        end = (await broker.topics([topic]))[0].partitions[0].high_watermark
        while len(got) < end:
            got.extend(message.offset for message in await one())
        assert got == list(range(end))

    through(process, work)


def test_tasks_that_share_a_consumer_get_each_message_once_whoever_of_them_is_cancelled(process):
    async def work(broker, topic):
        consumer, got = broker.consume(topic, group=topic), []

        async def worker():
            async for message in consumer:
                got.append(message.offset)
                await asyncio.sleep(0)

        workers = [asyncio.create_task(worker()) for _ in range(10)]
        for number in range(300):
            await broker.send(topic, b"")
            if number % 7 == 0:
                workers[number % 10].cancel()
                workers[number % 10] = asyncio.create_task(worker())
        async with asyncio.timeout(20.0):
            while len(got) < 300:
                await asyncio.sleep(0.01)
        for each in workers:
            each.cancel()
        await asyncio.gather(*workers, return_exceptions=True)
        assert got == list(range(300))

    through(process, work)


def test_a_task_group_that_fails_beside_a_receive_loses_nothing(process):
    async def work(broker, topic):
        for number in range(10):
            await broker.send(topic, b"%d" % number)

            async def fails(number=number):
                for _ in range(number):
                    await asyncio.sleep(0)
                raise ZeroDivisionError

            taken = []

            async def receives(taken=taken):
                async with broker.transaction() as tx:
                    taken.append(await tx.receive(topic, group=topic))

            with pytest.raises(ExceptionGroup):  # noqa: PT012 - the group is what raises
                async with asyncio.TaskGroup() as group:
                    group.create_task(receives())
                    group.create_task(fails())
            async with broker.transaction() as tx:
                message = await tx.receive(topic, group=topic, timeout=0.5 if taken else 5.0)
            seen = [each.value for each in (*taken, message) if each is not None]
            assert b"%d" % number in seen

    through(process, work)


def test_a_send_that_is_cancelled_while_it_waits_for_room_is_not_sent(process):
    async def work(broker, topic):
        sends = [broker.send(topic, b"%3d" % number + bytes(2000)) for number in range(100)]
        waiting = [send for send in sends if not send.done()][10:]
        dropped = [send for number, send in enumerate(waiting) if number % 3 == 0]
        for send in dropped:
            send.cancel()
        await asyncio.gather(*sends, return_exceptions=True)
        gone = {number for number, send in enumerate(sends) if send.cancelled()}
        assert len(gone) == len(dropped) > 20
        values = [message.value[:3] for message in await broker.read(topic, 0, 0)]
        assert values == [b"%3d" % number for number in range(100) if number not in gone]
        assert len(broker.core.waits.alarms) == 0

    through(process, work, max_buffered=10_000)


def test_a_send_that_is_cancelled_once_it_is_taken_is_sent(process):
    async def work(broker, topic):
        await broker.send(topic, b"first")
        send = broker.send(topic, b"second")
        send.cancel()
        await broker.flush()
        assert [message.value for message in await broker.read(topic, 0, 0)] == [b"first", b"second"]

    through(process, work)


def test_a_failure_of_a_cancelled_send_is_told_by_the_flush_or_at_the_end(process):
    async def main(tell):
        broker = await connect(process.address)
        topic = f"t-{uuid.uuid4().hex[:12]}"
        await broker.create_topic(topic, max_message_bytes=1000)
        await broker.send(topic, b"")
        send = broker.send(topic, bytes(2000))
        send.cancel()
        with pytest.raises(errors.MessageTooLarge):
            await tell(broker)
        if tell is not type(broker).close:
            await broker.close()

    for tell in (lambda broker: broker.flush(), lambda broker: broker.close()):
        asyncio.run(main(tell))


def test_after_a_cancelled_send_a_transaction_can_only_be_rolled_back(process):
    async def work(broker, topic):
        async def case(turns, times):
            if not turns:
                return False  # it has not sent anything then
            broker._producer.forget_route(topic)
            with pytest.raises(errors.TransactionRolledBack) as caught:  # noqa: PT012 - the block is what raises
                async with broker.transaction() as tx:
                    was_through, _ = await cancelled(sends(tx), turns, times)
                    if was_through:
                        raise errors.TransactionRolledBack("it was through")
            return "was through" in str(caught.value)

        async def sends(tx):
            return await tx.send(topic, b"never")

        await at_every_turn(case)
        assert await broker.read(topic, 0, 0) == []

    through(process, work)


def test_a_cancelled_commit_goes_on_and_tells_how_it_ended_when_it_is_asked_again(process):
    async def work(broker, topic):
        committed = []

        async def case(turns, times):
            tx = broker.transaction()
            await tx.send(topic, b"%d" % len(committed))
            was_through, _ = await cancelled(commits(tx), turns, times)
            if turns:
                await tx.commit()
                committed.append(tx.runs[0].base_offset)
            else:
                await tx.rollback()  # the task never began
            return was_through

        async def commits(tx):
            await tx.commit()

        await at_every_turn(case)
        values = [message.value for message in await broker.read(topic, 0, 0)]
        assert values == [b"%d" % number for number in range(len(committed))]

    through(process, work)


def test_no_roll_back_follows_a_commit_that_is_cancelled_at_the_end_of_its_block(process):
    async def work(broker, topic):
        stages = []

        async def block():
            async with broker.transaction() as tx:
                stages.append(tx)
                await tx.send(topic, b"")

        async def case(turns, times):
            was_through, _ = await cancelled(block(), turns, times)
            return was_through

        await at_every_turn(case)
        for tx in stages:
            if tx._core._decision.under_way is not None:
                await tx.commit()
        count = sum(tx.stage is Stage.COMMITTED for tx in stages)
        assert {tx.stage for tx in stages} <= {Stage.COMMITTED, Stage.ROLLED_BACK}
        assert len(await broker.read(topic, 0, 0)) == count

    through(process, work)


def test_a_prepare_that_is_cancelled_in_its_block_is_followed_by_a_roll_back(process):
    async def work(broker, topic):
        told = []

        async def block():
            xid = broker.xid(1, uuid.uuid4().hex, "b")
            async with broker.transaction(xid) as tx:
                await tx.send(topic, b"never")
                await tx.prepare()
                told.append(xid)
                await asyncio.sleep(3600)

        async def case(turns, times):
            await cancelled(block(), turns, times)
            return turns >= 40

        await at_every_turn(case)
        prepared = await broker.transactions([State.PREPARED])
        assert [each.xid for each in prepared] == told, (
            "what the program knew to be prepared is its own to decide"
        )
        for xid in told:
            await broker.tpc_rollback(xid)
        assert await broker.read(topic, 0, 0) == []

    through(process, work)


def test_what_a_cancelled_block_had_received_comes_again_at_once(process):
    async def work(broker, topic):
        for number in range(3):
            await broker.send(topic, b"%d" % number)

        async def block():
            async with broker.transaction() as tx:
                await tx.receive(topic, group=topic)
                await tx.receive(topic, group=topic)
                await tx.send(topic, b"never")
                await asyncio.sleep(3600)

        for turns in (5, 50, 500):
            await cancelled(block(), turns)
            tx = broker.transaction()  # in the same turn: the roll-back was posted, and not waited for
            assert (await tx.receive(topic, group=topic, timeout=20.0)).value == b"0"
            await tx.rollback()

    through(process, work)


def test_positions_and_claims_may_have_happened_and_that_is_harmless(process):
    async def work(broker, topic):
        await broker.send(topic, b"0")
        consumer = broker.consume(topic, group=topic)
        await consumer.poll(20.0)

        async def case(turns, times):
            was_through, _ = await cancelled(commits(), turns, times)
            return was_through

        async def commits():
            await consumer.commit()

        await at_every_turn(case)
        await consumer.commit()
        (at,) = await broker.group_offsets(topic)
        assert at.offset == 1

    through(process, work)


def descriptors():
    return len(os.listdir("/proc/self/fd"))


def test_a_cancelled_connect_or_close_leaves_nothing(process):
    async def main():
        before = descriptors()

        async def opens():
            return await connect(process.address)

        async def case(turns, times):
            was_through, broker = await cancelled(opens(), turns, times)
            if broker is not None:
                await cancelled(closes(broker), turns, times)
            return was_through

        async def closes(broker):
            await broker.close()

        await at_every_turn(case)
        async with asyncio.timeout(20.0):
            while len(asyncio.all_tasks()) > 1 or descriptors() > before:
                await asyncio.sleep(0.01)
        async with await connect(process.address) as broker:
            async with asyncio.timeout(20.0):
                while (await broker.status())["sessions"] > 1:
                    await asyncio.sleep(0.01)

    asyncio.run(main())


def test_timers_go_with_those_who_wait(process):
    async def work(broker, topic):
        consumer = broker.consume(topic)
        for _ in range(50):
            polling = asyncio.ensure_future(consumer.poll(3600.0))
            await asyncio.sleep(0)
            polling.cancel()
        await asyncio.gather(
            *[cancelled(broker.wait_outcome("1-1", 3600.0), 3) for _ in range(50)], return_exceptions=True
        )
        assert len(broker.core.waits.alarms) == 0

    through(process, work)


def test_any_number_of_consumers_share_one_fetch(process):
    async def work(broker, topic):
        consumers = [broker.consume(topic, start="latest") for _ in range(500)]
        polls = [asyncio.ensure_future(each.poll(60.0)) for each in consumers]
        for each in consumers:
            while not each._core.positions:
                await asyncio.sleep(0.001)
        await broker.send(topic, b"to all")
        found = await asyncio.gather(*polls)
        assert [[message.value for message in messages] for messages in found] == [[b"to all"]] * 500
        for each in consumers:
            each.close()
        async with asyncio.timeout(20.0):
            while (await broker.status())["fetches_waiting"]:
                await asyncio.sleep(0.01)

    through(process, work)


def test_consumers_that_are_made_and_closed_leave_nothing(process):
    async def work(broker, topic):
        for _ in range(10_000):
            consumer = broker.consume(topic)
            await consumer.poll(0.0)
            consumer.close()
        await broker.ping()
        assert (await broker.status())["fetches_waiting"] == 0
        assert len(broker.core.waits.alarms) == 0

    through(process, work)


def test_many_who_wait_for_room_all_get_it_and_the_loop_is_theirs_meanwhile(process, monkeypatch):
    """Also while they wait to be told of their topic."""

    async def work(broker, topic):
        count = 8000
        at_once = []
        move = Line.move

        def counted(line):
            before = len(line)
            move(line)
            at_once.append(before - len(line))

        monkeypatch.setattr(Line, "move", counted)
        sends = [broker.send(topic, bytes(4000)) for _ in range(count)]
        assert len(broker._producer._questions) == 1
        receipts = await asyncio.gather(*sends)
        assert [receipt.offset for receipt in receipts] == list(range(count))
        assert max(at_once) <= MOST_AT_ONCE, "so many were woken in one turn of the loop"
        assert len(broker.core.waits.alarms) == 0

    through(process, work, max_buffered=1 << 20)


def test_many_whose_answers_come_together_go_on_some_in_each_turn_of_the_loop(process, monkeypatch):
    """Their batches have some 16 of them, and come to be answered while the loop is with its caller."""

    async def work(broker, topic):
        count = 8000
        at_once = [0]
        settle = Reply._settle

        def counted(reply):
            at_once[-1] += 1
            settle(reply)

        def turned():
            at_once.append(0)
            asyncio.get_running_loop().call_soon(turned)

        monkeypatch.setattr(Reply, "_settle", counted)
        await broker.send(topic, b"first")
        sends = [broker.send(topic, bytes(4000)) for _ in range(count)]
        turned()
        receipts = await asyncio.gather(*sends)
        assert [receipt.offset for receipt in receipts] == list(range(1, count + 1))
        assert max(at_once) <= 2 * ANSWERED_AT_ONCE, "so many were woken in one turn of the loop"

    through(process, work)


def test_what_is_raised_in_a_later_turn_ends_the_connection_in_that_turn(process):
    async def work(broker, topic):
        def broken():
            broker.core.abort = "torn"
            raise ValueError

        raised = []
        asyncio.get_running_loop().set_exception_handler(lambda _, context: raised.append(context))
        opened, session = asyncio.Event(), broker.core.session
        broker.core.on_open.append(opened.set)
        broker.core.waits.soon(broken)
        broker._settle()
        async with asyncio.timeout(20.0):
            await opened.wait()
        assert type(raised[0]["exception"]) is ValueError
        assert broker.core.session != session

    through(process, work)


def test_the_same_holds_on_twisted(process):
    """In a program of its own, for a reactor cannot be started twice."""
    ran = subprocess.run(
        [sys.executable, "-m", "tests.client.cancellation_program", process.address],
        cwd=ROOT, env={**os.environ, "PYTHONPATH": PACKAGES}, capture_output=True, text=True, timeout=120.0,
        check=False,
    )  # fmt: skip
    assert ran.stdout.split() == ["ok"], ran.stdout + ran.stderr

"""Test scheduled messages on every face of the clients, against a real broker: sent, shown, listed, taken back."""

import asyncio
import inspect
import subprocess
import sys
import time
import uuid
from datetime import UTC, datetime, timedelta

import pytest

import txbroker
from tests.client.test_interrupts import at_every_line
from tests.support.broker_process import BrokerProcess
from tests.support.interrupted import INTERRUPTED
from tests.support.repository import PACKAGES, ROOT
from txbroker import errors
from txbroker.client import asyncio as asyncio_client

pytestmark = INTERRUPTED


@pytest.fixture(scope="module")
def process(tmp_path_factory):
    with BrokerProcess(tmp_path_factory.mktemp("broker") / "data") as running:
        yield running


@pytest.fixture
def broker(process):
    with txbroker.connect(process.address, timeout=10.0) as connection:
        yield connection


@pytest.fixture
def topic(broker):
    name = f"t-{uuid.uuid4().hex[:12]}"
    broker.create_topic(name)
    return name


def values(connection, topic, count):
    """So many messages of a topic, as they come."""
    found = []
    with connection.consume(topic, start="earliest") as consumer:
        while len(found) < count:
            some = consumer.poll(20.0)
            assert some, found
            found += [message.value for message in some]
    return found


async def given(result):
    return await result if inspect.isawaitable(result) else result


async def through_everything(connection, topic):
    """Everything about scheduled messages, the same on each face; the blocking one gives results at once."""
    began = time.monotonic()
    receipt = await given(connection.send(topic, b"second", after=0.8, id="order-1"))
    assert (receipt.topic, receipt.offset, receipt.id) == (topic, None, b"order-1")
    soon = datetime.now(UTC) + timedelta(seconds=0.4)
    first = await given(connection.send(topic, b"first", at=soon))
    sent = connection.send_async(topic, b"never", after=timedelta(hours=1), id="order-2")
    never = sent.result() if hasattr(sent, "exception") and not inspect.isawaitable(sent) else await sent
    listed = await given(connection.list_scheduled(topic))
    assert [each.id for each in listed] == [first.scheduled, receipt.scheduled, never.scheduled]
    assert (await given(connection.scheduled(str(receipt.scheduled)))).state == "waits"
    assert await given(connection.cancel(message_id="order-2")) == [never.scheduled]
    assert await given(connection.cancel(never.scheduled)) == [never.scheduled]
    tx = connection.transaction()
    await given(tx.send(topic, b"third", after=1.2))
    await given(tx.send_many(topic, [b"fourth"], after=1.6))
    await given(tx.cancel(first.scheduled))
    await given(tx.send(topic, b"zeroth"))
    await given(tx.commit())
    assert [each.log for each in tx.scheduled] == [0, 0]
    while True:
        found = await given(connection.read(topic, 0, 0, 1 << 20, 20.0))
        if len(found) == 4:
            break
        await asyncio.sleep(0.02)
    assert [message.value for message in found] == [b"zeroth", b"second", b"third", b"fourth"]
    assert time.monotonic() - began >= 1.6
    assert found[1].appended - found[1].timestamp >= 790_000, "it was not early"
    with pytest.raises(errors.AlreadySent) as caught:
        await given(connection.cancel(receipt.scheduled))
    assert (caught.value.topic, caught.value.partition, caught.value.offset) == (topic, 0, 1)
    with pytest.raises(errors.NotScheduled):
        await given(connection.cancel(receipt.scheduled._replace(offset=99999)))
    with pytest.raises(errors.WrongValue):
        await given(connection.send(topic, b"v", after=-1))


def test_the_blocking_client_goes_through_everything(broker, topic):
    asyncio.run(through_everything(broker, topic))


def test_the_asyncio_client_goes_through_everything(process, topic):
    async def work():
        async with await asyncio_client.connect(process.address, timeout=10.0) as connection:
            await through_everything(connection, topic)

    asyncio.run(work())


TWISTED = """
import sys
from twisted.internet.task import react
from twisted.internet.defer import ensureDeferred
from tests.client.test_scheduled_messages import through_everything
from txbroker.client.twisted import connect

import asyncio

async def work(reactor):
    async with await connect(sys.argv[1], timeout=10.0) as connection:
        async def sleep(seconds):
            from twisted.internet.task import deferLater
            await deferLater(reactor, seconds)
        asyncio.sleep = sleep
        await through_everything(connection, sys.argv[2])

react(lambda reactor: ensureDeferred(work(reactor)))
"""


def test_the_twisted_client_goes_through_everything(process, topic):
    environment = {"PYTHONPATH": f"{ROOT}:{PACKAGES}"}
    program = [sys.executable, "-c", TWISTED, process.address, topic]
    ended = subprocess.run(program, env=environment, capture_output=True, text=True, timeout=60)
    assert ended.returncode == 0, ended.stderr


def test_what_is_sent_first_for_later_goes_out_though_nobody_waits(process, topic):
    with txbroker.connect(process.address) as fresh:
        fresh.send_async(topic, b"v", after=0.2)
        assert values(fresh, topic, 1) == [b"v"]


def test_in_two_phases_messages_are_scheduled_with_the_commit(broker, topic):
    broker.tpc_begin(broker.xid(1, uuid.uuid4().hex, "b"))
    assert broker.send(topic, b"v", after=0.1).scheduled is None
    with pytest.raises(errors.Misuse, match="use send"):
        broker.send_async(topic, b"v", after=0.1)
    broker.tpc_prepare()
    assert broker.list_scheduled(topic) == []
    broker.tpc_commit()
    assert values(broker, topic, 1) == [b"v"]


def test_over_a_killed_broker_messages_come_once_and_not_early(tmp_path):
    with BrokerProcess(tmp_path / "data") as own, txbroker.connect(own.address, timeout=60.0) as connection:
        connection.create_topic("t")
        connection.send("t", b"first", after=0.5)
        began, sends = time.monotonic(), []
        for number in range(300):
            sends.append(connection.send_async("t", b"%d" % number, after=4.0))
            if number == 150:
                own.kill()
                own.start()
        connection.flush()
        assert len({future.result().scheduled for future in sends}) == 300
        found = values(connection, "t", 301)
        assert time.monotonic() - began >= 4.0
        assert sorted(found[1:], key=int) == [b"%d" % number for number in range(300)]
        assert len(connection.read("t", 0, 0, 16 << 20)) == 301


def test_a_cancelled_send_of_a_transaction_leaves_only_the_rollback(process, topic):
    async def work():
        async with await asyncio_client.connect(process.address, timeout=10.0) as connection:
            with pytest.raises(errors.TransactionRolledBack):  # noqa: PT012 - the block is what raises
                async with connection.transaction() as tx:
                    sending = tx.send(topic, b"never", after=0.1)  # it asks for the schedule first
                    sending.cancel()
                    await asyncio.sleep(0)
            kept = await connection.send(topic, b"kept", after=3600)
            with pytest.raises(errors.TransactionRolledBack):  # noqa: PT012 - the block is what raises
                async with connection.transaction() as tx:
                    cancelling = tx.cancel(kept.scheduled)
                    cancelling.cancel()
                    await asyncio.sleep(0)
            assert (await connection.scheduled(kept.scheduled)).state == "waits"
            assert await connection.read(topic, 0, 0) == []

    asyncio.run(work())


def test_an_interrupted_send_is_scheduled_once_or_not_at_all_and_later_ones_follow(process, topic):
    answered = []
    with txbroker.connect(process.address, timeout=10.0) as connection:

        def case(at):
            number = len(answered)
            with at:
                connection.send(topic, b"%d" % number, after=3600)
            answered.append(not at.raised)
            connection.ping()
            connection.flush(10.0)
            assert connection._producer.buffered == 0, at.raised
            connection.send(topic, b"after %d" % number, after=3600)

        at_every_line(case)
        found = [
            connection.scheduled(each.id, with_message=True).message.value
            for each in connection.list_scheduled(topic)
        ]
    assert len(set(found)) == len(found)
    for number, was_answered in enumerate(answered):
        assert b"after %d" % number in found
        assert not was_answered or b"%d" % number in found


def test_interrupted_asynchronous_sends_are_scheduled_as_far_as_they_were_taken(process, topic):
    taken, tried = [], []
    with txbroker.connect(process.address, timeout=10.0, linger=0.001) as connection:

        def case(at):
            several = [b"%d" % (len(tried) + number) for number in range(3)]
            tried.extend(several)
            with at:
                for value in several:
                    connection.send_async(topic, value, after=3600)
                    taken.append(value)
            connection.ping()
            connection.flush(10.0)
            assert connection._producer.buffered == 0, at.raised

        at_every_line(case, step=3)
        found = [
            connection.scheduled(each.id, with_message=True).message.value
            for each in connection.list_scheduled(topic)
        ]
    assert sorted(found, key=int) == sorted(set(found), key=int)
    assert set(taken) <= set(found) <= set(tried)


def test_after_an_interrupted_call_a_transaction_is_rolled_back_or_goes_on_without_it(broker, topic):
    kept = []

    def case(at):
        waits = broker.send(topic, b"waits", after=3600).scheduled
        tx = broker.transaction()
        with at:
            tx.cancel(waits)
        try:
            tx.send(topic, b"later", after=3600)
            tx.commit()
        except errors.TransactionRolledBack:
            tx.rollback()
            state = "waits"
        else:
            kept.extend(tx.scheduled)
            state = "waits" if at.raised else "cancelled"
        broker.ping()
        assert broker.scheduled(waits).state == state, at.raised

    at_every_line(case)
    assert all(broker.scheduled(each).state == "waits" for each in kept)

"""Test queues on every face of the clients, against a real broker: published, taken, acknowledged, returned."""

import asyncio
import contextlib
import os
import signal
import sqlite3
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor

import pytest

import txbroker
from tests.client.queues.faces import given
from tests.client.test_interrupts import Interrupt, at_every_line
from tests.support.broker_process import BrokerProcess
from tests.support.interrupted import INTERRUPTED
from tests.support.repository import PACKAGES, ROOT
from tests.support.waiting import eventually
from txbroker import errors
from txbroker.client import asyncio as asyncio_client

pytestmark = INTERRUPTED


def counts(broker, name):
    [found] = broker.queues(name)
    return found.messages, found.ready, found.unacknowledged, found.held


async def through_everything(connection, name):
    """Everything about queues, the same on each face."""
    x, other = f"x-{name}", f"{name}.other"
    await publish(connection, name, x, other)
    queue, others = connection.queue(name), connection.queue(other, prefetch=10)
    message, dead, second = await take(queue, others)
    await commit(connection, x, [message, dead], second)
    await roll_back(connection, queue)
    await end(connection, x, queue, others)


async def publish(connection, name, x, other):
    await given(
        connection.declare_queue(other, delivery_limit=1, dead_letter_exchange="", dead_letter_key=name)
    )
    await given(connection.declare_exchange(x, "topic"))
    await given(connection.bind(x, name, "eu.*"))
    await given(connection.bind(x, other, "#"))
    receipt = await given(connection.publish(x, "eu.new", b"both", id="m-1"))
    assert (receipt.topic, receipt.offset, receipt.id) == (f"exchange:{x}", 0, b"m-1")
    await given(connection.publish(x, "us", b"other"))
    await given(connection.unbind(x, other, "#"))
    with pytest.raises(errors.Unroutable, match="routing key 'us'"):
        await given(connection.publish(x, "us", b"nowhere"))
    await given(connection.publish(x, "us", b"nowhere", mandatory=False))
    with pytest.raises(errors.UnknownExchange):
        await given(connection.publish("none", "us", b"nowhere"))
    with pytest.raises(errors.WrongType):
        await given(connection.publish(x, b"us", b"nowhere"))


async def take(queue, others):
    """Take, return and give up; return two messages of the first queue, and one of the second."""
    message = await given(queue.get(10.0))
    assert (message.topic, message.value, message.key, message.id) == (
        f"queue:{queue.name}",
        b"both",
        b"eu.new",
        b"m-1",
    )
    assert (message.attempts, message.redelivered) == (0, False)
    assert await given(queue.get(0.05)) is None
    await given(queue.nack(message, after=0.2, why="not now"))
    assert await given(queue.get(0.0)) is None
    message = await given(queue.get(10.0))
    assert (message.value, message.attempts, message.redelivered) == (b"both", 1, True)

    first, second = [await given(others.get(10.0)) for _ in range(2)]
    with pytest.raises(errors.Misuse, match="not one of queue"):
        await given(queue.ack(first))
    await given(others.nack(first))
    await given(others.nack(await given(others.get(10.0))))
    dead = await given(queue.get(10.0))
    assert (dead.value, dead.header("txbroker.dead.topic")) == (b"both", others.name.encode()), dead.headers
    return message, dead, second


async def commit(connection, x, acknowledged, second):
    (name, other) = (each.topic.removeprefix("queue:") for each in (acknowledged[0], second))
    tx = connection.transaction()
    await given(tx.publish(x, "eu.x", b"follow-up"))
    await given(tx.ack(acknowledged))
    await given(tx.ack(second))
    await given(tx.commit())
    [told] = await given(connection.queues(name))
    assert (told.messages, told.ready, told.unacknowledged) == (1, 1, 0)
    [told] = await given(connection.queues(other))
    assert told.messages == 0


async def roll_back(connection, queue):
    message = await given(queue.get(10.0))
    tx = connection.transaction()
    await given(tx.ack(message))
    await given(tx.rollback())
    message = await given(queue.get(10.0))
    assert (message.value, message.attempts) == (b"follow-up", 1), "it was returned with the rollback"
    await given(queue.ack(message))
    await given(queue.ack(message))  # a repetition
    with pytest.raises(errors.WrongType):
        await given(queue.ack("message"))


async def end(connection, x, queue, others):
    name, other = queue.name, others.name
    await given(connection.publish("", name, b"left"))
    await given(queue.get(10.0))
    queue.close()
    with pytest.raises(errors.Misuse, match="closed"):
        await given(queue.get(0.0))
    assert await given(connection.purge_queue(name)) == 1, "it was given back"
    with pytest.raises(errors.DeclaredOtherwise):
        await given(connection.declare_queue(other))
    assert await given(connection.delete_queue(other)) == 0
    with pytest.raises(errors.UnknownQueue):
        await given(others.get(1.0))
    await given(connection.delete_exchange(x))
    assert x not in [each.name for each in await given(connection.exchanges())]


def test_the_blocking_client_goes_through_everything(broker, name):
    asyncio.run(through_everything(broker, name))


def test_the_asyncio_client_goes_through_everything(process, name):
    async def work():
        async with await asyncio_client.connect(process.address, timeout=10.0) as connection:
            await through_everything(connection, name)

    asyncio.run(work())


TWISTED = """
import sys
from twisted.internet.task import react
from twisted.internet.defer import ensureDeferred
from tests.client.queues.test_queues import through_everything
from txbroker.client.twisted import connect

async def work(reactor):
    async with await connect(sys.argv[1], timeout=10.0) as connection:
        await through_everything(connection, sys.argv[2])

react(lambda reactor: ensureDeferred(work(reactor)))
"""


def test_the_twisted_client_goes_through_everything(process, name):
    environment = {"PYTHONPATH": f"{ROOT}:{PACKAGES}"}
    program = [sys.executable, "-c", TWISTED, process.address, name]
    ended = subprocess.run(program, env=environment, capture_output=True, text=True, timeout=60)
    assert ended.returncode == 0, ended.stderr


def test_iteration_gives_each_message_once_to_one_of_several(process, broker, name):
    for number in range(20):
        broker.publish("", name, b"%d" % number)
    found = []
    with txbroker.connect(process.address) as other:
        queues = [broker.queue(name, prefetch=3), other.queue(name, prefetch=3)]
        while len(found) < 20:
            for queue in queues:
                if (message := queue.get(0.5)) is not None:
                    found.append(message.value)
                    queue.ack(message)
    assert sorted(found, key=int) == [b"%d" % number for number in range(20)]
    assert counts(broker, name) == (0, 0, 0, 0)
    broker.publish("", name, b"last")
    with broker.queue(name) as queue:
        for message in queue:
            queue.ack(message)
            break
    assert counts(broker, name) == (0, 0, 0, 0)


def test_a_block_that_fails_returns_what_it_had_with_an_attempt_and_the_rest_without(broker, name):
    for value in (b"a", b"b"):
        broker.publish("", name, value)
    with pytest.raises(ZeroDivisionError), broker.queue(name, prefetch=10) as queue:  # noqa: PT012  (it holds it)
        assert queue.get(10.0).value == b"a"
        raise ZeroDivisionError
    with broker.queue(name, prefetch=10) as queue:
        found = [queue.get(10.0) for _ in range(2)]
    assert [(each.value, each.attempts, each.redelivered) for each in found] == [
        (b"a", 1, True),
        (b"b", 0, True),
    ]


def test_what_a_lost_session_had_cannot_be_acknowledged(tmp_path):
    with BrokerProcess(tmp_path / "data") as own, txbroker.connect(own.address, timeout=30.0) as connection:
        connection.declare_queue("q")
        connection.publish("", "q", b"task")
        queue = connection.queue("q")
        message = queue.get(10.0)
        own.kill()
        own.start()
        again = queue.get(20.0)
        assert (again.value, again.redelivered, again.attempts) == (b"task", True, 0)
        with pytest.raises(errors.DeliveryLost):
            queue.ack(message)
        with pytest.raises(errors.DeliveryLost), connection.transaction() as tx:  # noqa: PT012  (its commit raises)
            tx.publish("", "q", b"follow-up")
            tx.ack(message)
        assert [each.messages for each in connection.queues("q")] == [1]
        queue.ack(again)
        assert [each.messages for each in connection.queues("q")] == [0]


@pytest.mark.parametrize("fails", [False, True])
def test_the_row_what_is_sent_on_and_the_acknowledgement_are_one(broker, name, tmp_path, fails):
    with contextlib.closing(sqlite3.connect(tmp_path / "rows")) as database:
        txbroker.create_decision_table(database)
        database.execute("CREATE TABLE done (id INTEGER)")
        database.commit()
        broker.publish("", name, b"7")
        queue = broker.queue(name)
        message = queue.get(10.0)
        with (
            contextlib.suppress(ZeroDivisionError),
            txbroker.atomic(database, broker) as tx,
        ):
            database.execute("INSERT INTO done VALUES (?)", (int(message.value),))
            tx.publish("", name, b"8")
            tx.ack(message)
            if fails:
                raise ZeroDivisionError
        rows = [number for (number,) in database.execute("SELECT id FROM done")]
        left = queue.get(10.0)
        assert (rows, left.value) == (([], b"7") if fails else ([7], b"8"))
        assert counts(broker, name) == (1, 0, 1, 0)


def test_a_cancelled_get_takes_nothing_along(process, broker, name):
    async def work():
        async with await asyncio_client.connect(process.address, timeout=10.0) as connection:
            queue = connection.queue(name)
            for _ in range(20):
                getting = asyncio.ensure_future(queue.get())
                await asyncio.sleep(0.001)
                getting.cancel()
            await connection.publish("", name, b"v")
            with txbroker.connect(process.address) as other:
                message = await asyncio.to_thread(other.queue(name).get, 10.0)
                assert message is not None, "it is nobody's"
                assert message.value == b"v"

    asyncio.run(work())


def test_a_get_that_waits_when_its_client_goes_leaves_the_message_to_others(process, broker, name):
    other = txbroker.connect(process.address)
    assert other.queue(name).get(0.01) is None
    broker.publish("", name, b"v")
    began = time.monotonic()
    assert broker.queue(name).get(10.0).value == b"v"
    assert time.monotonic() - began < 5.0
    other.close()


def test_a_second_thread_that_waits_at_the_same_queue_is_told(broker, name):
    queue = broker.queue(name)
    with ThreadPoolExecutor(1) as pool:
        waits = pool.submit(queue.get, 10.0)
        eventually(lambda: queue._inside)
        with pytest.raises(errors.Misuse, match="Give each thread a queue of its own"):
            queue.get(1.0)
        broker.publish("", name, b"x")
        assert waits.result().value == b"x"
    broker.publish("", name, b"y")
    assert queue.get(5.0).value == b"y"


@pytest.mark.parametrize("step", [43, pytest.param(3, marks=pytest.mark.deep)])
def test_an_interrupt_at_any_line_loses_no_message(process, broker, name, step):
    """It ends the call; after it the same queue, or when that is closed another one, has every message, none twice."""
    number = 0

    def case(at):
        nonlocal number
        number += 1
        broker.publish("", name, b"%d" % number)
        queue, got = broker.queue(name, prefetch=2), None
        began = time.monotonic()
        with contextlib.suppress(Interrupt), at:
            got = queue.get(5.0)
        assert time.monotonic() - began < 4.0, f"it waited on, interrupted at {at.raised}"
        if got is None:
            got = queue.get(0.2)
        if got is None:  # it was handed out to nobody
            queue.close()
            queue = broker.queue(name)
            got = queue.get(5.0)
        assert got is not None, f"lost, interrupted at {at.raised}"
        assert got.value == b"%d" % number
        queue.ack(got)
        queue.close()

    at_every_line(case, step=step)
    assert counts(broker, name) == (0, 0, 0, 0)


def test_what_a_block_left_in_its_database_waits_for_its_queue(broker, name, tmp_path):
    with contextlib.closing(sqlite3.connect(tmp_path / "rows")) as database:
        txbroker.create_decision_table(database)
        late = f"{name}.late"
        with txbroker.atomic(database, broker, mode="outbox") as tx:
            tx.publish("", late, b"first")
        with txbroker.atomic(database, broker, mode="outbox") as tx:
            tx.publish("", name, b"second")
        with broker.queue(name) as queue:
            assert queue.get(1.0) is None, "it is behind the first"
            broker.declare_queue(late)
            with broker.queue(late) as other:
                assert other.get(20.0).value == b"first"
            assert queue.get(20.0).value == b"second"


def test_a_reader_that_is_closed_gives_back_nothing_that_another_of_its_connection_has(process, broker, name):
    broker.publish("", name, b"task")
    first, second = broker.queue(name), broker.queue(name)
    first.nack(first.get(10.0))
    message = second.get(10.0)
    assert (message.value, message.attempts) == (b"task", 1)
    first.close(failed=True)
    with txbroker.connect(process.address) as other, other.queue(name) as third:
        assert third.get(0.2) is None
    second.ack(message)
    second.close()
    assert counts(broker, name) == (0, 0, 0, 0)


def test_an_acknowledgement_whose_answer_is_lost_is_not_said_again(tmp_path):
    with BrokerProcess(tmp_path / "data") as own, txbroker.connect(own.address, timeout=30.0) as connection:
        connection.declare_queue("q")
        connection.publish("", "q", b"task")
        queue = connection.queue("q")
        message = queue.get(10.0)
        os.kill(own.pid, signal.SIGSTOP)  # it takes the request and answers nothing
        with ThreadPoolExecutor(1) as threads:
            acknowledging = threads.submit(queue.ack, message)
            time.sleep(0.3)
            own.kill()
            own.start()
            with pytest.raises((errors.OutcomeUnknown, errors.DeliveryLost)):
                acknowledging.result(20.0)


def test_what_a_queue_cannot_do_is_said_before_anything_is_sent(broker, name):
    for send in (broker.send, lambda *given, **when: broker.transaction().send(*given, **when)):
        with pytest.raises(errors.Misuse, match="a message for later has a topic"):
            send("exchange:", b"later", name.encode(), after=5.0)
    with pytest.raises(errors.WrongValue, match=r"prefetch is 4097.* it must be from 1 to 4096"):
        broker.queue(name, prefetch=4097)
    assert counts(broker, name) == (0, 0, 0, 0)

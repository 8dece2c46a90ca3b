"""Test who iterates over a queue as its consumer, on the faces of the clients, against a real broker.

Seen to fail: without a consumer made known, without its end at close, with that of a lost session used on.
"""

from __future__ import annotations

import asyncio
import contextlib
import subprocess
import sys
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


@pytest.fixture
def name(free_name):
    """Each test declares its queue in its own way."""
    return free_name


def consumers(broker, name):
    [found] = broker.queues(name)
    return found.consumers


def is_gone(broker, name):
    try:
        broker.queues(name)
    except errors.UnknownQueue:
        return True
    return False


async def consume(connection, name):
    """Iterate with an event loop's client."""
    await connection.declare_queue(name, auto_delete=True, durable=False, single_active=True)
    await connection.publish("", name, b"task")
    async with connection.queue(name, prefetch=5) as queue:
        async for message in queue:
            assert message.value == b"task"
            assert [each.consumers for each in await connection.queues(name)] == [1]
            await queue.ack(message)
            break
        assert [each.consumers for each in await connection.queues(name)] == [1], "it may go on"
    with pytest.raises(errors.UnknownQueue):
        await given(connection.queues(name))


def test_who_iterates_is_a_consumer_until_it_is_closed(broker, name):
    broker.declare_queue(name)
    broker.publish("", name, b"task")
    with broker.queue(name) as queue:
        assert queue.get(5.0).value == b"task"
        assert consumers(broker, name) == 0, "who gets is none"
        queue.close()
    broker.publish("", name, b"more")
    with broker.queue(name) as queue:
        for message in queue:
            assert consumers(broker, name) == 1
            queue.ack(message)
            if message.value == b"more":
                break
        assert consumers(broker, name) == 1
    eventually(lambda: consumers(broker, name) == 0)


def test_the_same_with_asyncio(process, name):
    async def work():
        async with await asyncio_client.connect(process.address, timeout=10.0) as connection:
            await consume(connection, name)

    asyncio.run(work())


TWISTED = """
import sys
from twisted.internet.task import react
from twisted.internet.defer import ensureDeferred
from tests.client.queues.test_queue_consumers import consume
from txbroker.client.twisted import connect

async def work(reactor):
    async with await connect(sys.argv[1], timeout=10.0) as connection:
        await consume(connection, sys.argv[2])

react(lambda reactor: ensureDeferred(work(reactor)))
"""


def test_the_same_with_twisted(process, name):
    environment = {"PYTHONPATH": f"{ROOT}:{PACKAGES}"}
    program = [sys.executable, "-c", TWISTED, process.address, name]
    ended = subprocess.run(program, env=environment, capture_output=True, text=True, timeout=60)
    assert ended.returncode == 0, ended.stderr


def test_a_queue_goes_with_the_connection_of_its_last_consumer(process, broker, name):
    broker.declare_queue(name, auto_delete=True)
    broker.publish("", name, b"task")
    with txbroker.connect(process.address) as other:
        assert next(iter(other.queue(name))).value == b"task"
        assert not is_gone(broker, name)
    eventually(lambda: is_gone(broker, name))


def test_an_exclusive_consumer_is_the_only_one_whether_it_gets_or_iterates(process, broker, name):
    broker.declare_queue(name)
    for number in range(3):
        broker.publish("", name, b"%d" % number)
    with txbroker.connect(process.address) as other:
        first = broker.queue(name, exclusive=True)
        assert first.get(5.0).value == b"0"
        with pytest.raises(errors.QueueInUse, match="has an exclusive consumer"):
            next(iter(other.queue(name)))
        with pytest.raises(errors.QueueInUse):
            other.queue(name, exclusive=True).get(1.0)
        first.close()
        assert next(iter(other.queue(name))).value == b"0"


def test_one_consumer_is_active_and_then_the_next_one(process, broker, name):
    broker.declare_queue(name, single_active=True)
    with txbroker.connect(process.address) as other, ThreadPoolExecutor(1) as threads:
        first, second = broker.queue(name, priority=1), other.queue(name, priority=1)
        assert first.get(0.3) is None, "it is known from then on"
        waits = threads.submit(second.get, 20.0)
        eventually(lambda: consumers(broker, name) == 2)
        broker.publish("", name, b"0")
        assert first.get(5.0).value == b"0"
        broker.publish("", name, b"1")
        first.close()
        assert waits.result(10.0).value == b"0"


def test_those_of_a_higher_priority_are_served_first(process, broker, name):
    broker.declare_queue(name)
    with txbroker.connect(process.address) as other, ThreadPoolExecutor(2) as threads:
        low, high = broker.queue(name, priority=-1), other.queue(name, priority=7)
        waits = [threads.submit(low.get, 20.0)]
        eventually(lambda: broker.queues(name)[0].waiting == 1)
        waits.append(threads.submit(high.get, 20.0))
        eventually(lambda: broker.queues(name)[0].waiting == 2)
        broker.publish("", name, b"0")
        assert waits[1].result(10.0).value == b"0"
        broker.publish("", name, b"1")
        assert waits[0].result(10.0).value == b"1"


def test_after_a_start_of_the_broker_it_is_known_again(tmp_path):
    with (
        BrokerProcess(tmp_path / "data") as own,
        txbroker.connect(own.address, timeout=30.0) as connection,
        txbroker.connect(own.address, timeout=30.0) as other,
        ThreadPoolExecutor(1) as threads,
    ):
        connection.declare_queue("q", single_active=True)
        connection.declare_queue("passing", durable=False)
        connection.declare_exchange("passing", durable=False)
        queue = connection.queue("q")
        waits = threads.submit(next, iter(queue))
        eventually(lambda: consumers(other, "q") == 1)
        own.kill()
        own.start()
        eventually(lambda: consumers(other, "q") == 1)
        other.publish("", "q", b"task")
        message = waits.result(20.0)
        assert message.value == b"task"
        queue.ack(message)
        assert is_gone(other, "passing")
        with pytest.raises(errors.UnknownExchange):
            other.exchanges("passing")
        queue.close()
        eventually(lambda: consumers(other, "q") == 0)


def test_a_consumer_of_a_queue_that_was_deleted_is_one_of_the_next_of_its_name(broker, name):
    broker.declare_queue(name)
    queue = broker.queue(name, priority=1)
    assert queue.get(0.0) is None
    broker.delete_queue(name)
    with pytest.raises(errors.UnknownQueue):
        queue.get(1.0)
    broker.declare_queue(name)
    broker.publish("", name, b"task")
    assert queue.get(5.0).value == b"task"
    assert consumers(broker, name) == 1


@pytest.mark.parametrize("step", [47, pytest.param(3, marks=pytest.mark.deep)])
def test_an_interrupt_at_any_line_leaves_no_consumer_behind(broker, name, step):
    broker.declare_queue(name)
    broker.publish("", name, b"task")

    def case(at):
        queue, got = broker.queue(name, priority=1), None
        with contextlib.suppress(Interrupt), at:
            got = queue.get(5.0)
        if got is None:
            got = queue.get(0.2)
        assert got is None or got.value == b"task", f"interrupted at {at.raised}"
        queue.close()
        broker.queues()
        assert consumers(broker, name) == 0, f"interrupted at {at.raised}"

    at_every_line(case, step=step)


@pytest.mark.parametrize(
    ("given", "kind"),
    [
        ({"priority": "1"}, errors.WrongType), ({"priority": 1 << 31}, errors.WrongValue),
        ({"priority": -(1 << 31) - 1}, errors.WrongValue), ({"exclusive": 1}, errors.WrongType),
    ],
)  # fmt: skip
def test_what_no_consumer_can_be_is_refused(broker, name, given, kind):
    with pytest.raises(kind, match="nothing was taken"):
        broker.queue(name, **given)


@pytest.mark.parametrize("setting", ["auto_delete", "durable", "single_active"])
def test_settings_are_true_or_false(broker, name, setting):
    with pytest.raises(errors.WrongType, match=setting):
        broker.declare_queue(name, **{setting: 1})
    assert is_gone(broker, name)

"""Test that ``get(0)`` asks the broker once, with all clients and a real broker."""

import asyncio
import subprocess
import sys
import time

import pytest

from tests.client.queues.faces import given
from tests.client.queues.test_queues import PACKAGES, ROOT
from txbroker import errors
from txbroker.client import asyncio as asyncio_client

pytestmark = pytest.mark.slow


@pytest.fixture
def name(free_name):
    return free_name


async def get_at_once(connection, name):
    await given(connection.declare_queue(name))
    queue = connection.queue(name)
    begun = time.monotonic()
    assert await given(queue.get(0)) is None
    for value in (b"1", b"2", b"3"):
        await given(connection.publish("", name, value))
    found = [await given(queue.get(0)) for _ in range(4)]
    assert [None if each is None else each.value for each in found] == [b"1", b"2", b"3", None]
    assert time.monotonic() - begun < 5.0
    await given(queue.nack(found[1]))
    assert (await given(queue.get(0.0))).value == b"2", "it came back before the answer"
    assert await given(queue.get(0.02)) is None, "its request is still there"
    await given(connection.publish("", name, b"4"))
    assert (await given(queue.get(0))).value == b"4"
    await given(connection.delete_queue(name))
    with pytest.raises(errors.UnknownQueue):
        await given(queue.get(0))
    queue.close()
    with pytest.raises(errors.Misuse, match="closed"):
        await given(queue.get(0))


def test_a_message_that_is_there_comes(broker, name):
    asyncio.run(get_at_once(broker, name))


def test_the_same_with_asyncio(process, name):
    async def work():
        async with await asyncio_client.connect(process.address) as connection:
            await get_at_once(connection, name)

    asyncio.run(work())


TWISTED = """
import sys
from twisted.internet.task import react
from twisted.internet.defer import ensureDeferred
from tests.client.queues.test_immediate_gets import get_at_once
from txbroker.client.twisted import connect

async def work(reactor):
    async with await connect(sys.argv[1], timeout=10.0) as connection:
        await get_at_once(connection, sys.argv[2])

react(lambda reactor: ensureDeferred(work(reactor)))
"""


def test_the_same_with_twisted(process, name):
    environment = {"PYTHONPATH": f"{ROOT}:{PACKAGES}"}
    program = [sys.executable, "-c", TWISTED, process.address, name]
    ended = subprocess.run(program, env=environment, capture_output=True, text=True, timeout=60)
    assert ended.returncode == 0, ended.stderr


def test_several_tasks_ask_at_the_same_time(process, name):
    async def work():
        async with await asyncio_client.connect(process.address) as connection:
            await connection.declare_queue(name)
            for number in range(3):
                await connection.publish("", name, b"%d" % number)
            queue = connection.queue(name)
            found = await asyncio.gather(*[queue.get(0) for _ in range(5)])
            assert [None if each is None else each.value for each in found] == [b"0", b"1", b"2", None, None]

    asyncio.run(work())


def test_who_waits_longer_goes_first_and_who_gives_up_leaves_nothing(process, name):
    async def work():
        async with await asyncio_client.connect(process.address) as connection:
            await connection.declare_queue(name)
            queue = connection.queue(name)
            longer = asyncio.ensure_future(queue.get(20.0))
            await asyncio.sleep(0.05)
            assert await queue.get(0) is None
            given_up = asyncio.ensure_future(queue.get(0))
            await asyncio.sleep(0)
            given_up.cancel()
            await connection.publish("", name, b"a")
            assert (await longer).value == b"a"
            first, second = asyncio.ensure_future(queue.get(0)), asyncio.ensure_future(queue.get(20.0))
            assert await first is None
            await connection.publish("", name, b"b")
            assert (await second).value == b"b"
            cancelled = asyncio.ensure_future(queue.get(0))
            await asyncio.sleep(0)
            cancelled.cancel()
            await connection.publish("", name, b"c")
            assert (await queue.get(0)).value == b"c"

    asyncio.run(work())

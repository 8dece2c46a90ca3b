"""Test workers of the asyncio client: tasks instead of threads, cancellation instead of interrupts."""

import asyncio

import psycopg
import pytest

import txbroker
from tests.databases.orders import make_tables
from tests.worker.scene import PATIENCE, fill, position, unfinished, values
from txbroker import errors
from txbroker.client.asyncio import connect

pytestmark = pytest.mark.slow


def in_a_loop(url, work):
    async def everything():
        async with await connect(url, timeout=60.0) as connection:
            return await asyncio.wait_for(work(connection), PATIENCE)

    return asyncio.run(everything())


@pytest.mark.parametrize("transaction", [None, "broker"])
def test_so_many_messages_are_handled_at_once_and_no_more(url, broker, topic, transaction):
    fill(broker, topic, 64)
    under_way = most = 0
    full = asyncio.Event()

    async def handle(message, *more):
        nonlocal under_way, most
        under_way += 1
        most = max(most, under_way)
        if most == 8:
            full.set()
        await full.wait()
        await asyncio.sleep(0)
        under_way -= 1

    async def work(connection):
        await connection.work(
            topic, topic, handle, concurrency=8, transaction=transaction, follow=False
        ).run()

    in_a_loop(url, work)
    assert most == 8
    assert position(broker, topic) == 64


def test_by_partition_a_call_runs_for_each_although_all_messages_of_one_come_first(url, broker, topic):
    broker.alter_topic(topic, partitions=2)
    for number in range(40):
        broker.send(topic, b"%d" % number, partition=number % 2)
    both = asyncio.Barrier(2)

    async def handle(message):
        await both.wait()

    async def work(connection):
        await connection.work(topic, topic, handle, concurrency=2, order="partition", follow=False).run()

    in_a_loop(url, work)
    assert [at.offset for at in broker.group_offsets(topic)] == [20, 20]


def test_a_plain_function_is_a_handler_too_and_messages_of_a_key_keep_their_order(url, broker, topic):
    fill(broker, topic, 100, lambda number: b"%d" % (number % 3))
    seen = []

    async def work(connection):
        await connection.work(
            topic, topic, lambda message: seen.append(message), concurrency=4, follow=False
        ).run()

    in_a_loop(url, work)
    for key in (b"0", b"1", b"2"):
        offsets = [message.offset for message in seen if message.key == key]
        assert offsets == sorted(offsets)
    assert position(broker, topic) == 100


def test_rows_and_messages_are_committed_together(url, broker, topic, postgresql):
    with postgresql.connect() as database:
        make_tables(database)
    broker.create_topic(f"{topic}-out")
    fill(broker, topic, 40)

    async def handle(messages, tx, database):
        for message in messages:
            await database.execute("INSERT INTO orders VALUES (%s)", (message.offset,))
            await tx.send(f"{topic}-out", message.value)

    async def work(connection):
        worker = connection.work(
            topic, topic, handle, concurrency=3, batch=5, follow=False,
            transaction=lambda: psycopg.AsyncConnection.connect(postgresql.url),
        )  # fmt: skip
        await worker.run()

    in_a_loop(url, work)
    with postgresql.connect() as database:
        assert database.execute("SELECT count(*), max(number) FROM orders").fetchone() == (40, 39)
    with txbroker.connect(url) as other:
        assert other.group_offsets(topic)[0].offset == 40
        assert values(other, f"{topic}-out") == list(range(40))


def test_a_failure_ends_it_after_what_is_under_way(url, broker, topic):
    fill(broker, topic, 10)
    both = asyncio.Barrier(2)

    async def handle(message):
        if message.offset < 2:
            await both.wait()
        if message.offset == 1:
            raise ZeroDivisionError
        await asyncio.sleep(0)

    async def work(connection):
        with pytest.raises(ZeroDivisionError):
            await connection.work(topic, topic, handle, concurrency=2, retry=False).run()

    in_a_loop(url, work)
    left = unfinished(broker, topic, topic)
    assert 0 not in left
    assert left[0] == 1


@pytest.mark.parametrize("transaction", [None, "broker"])
def test_a_stop_finishes_what_is_under_way_and_a_cancellation_does_not(url, broker, topic, transaction):
    fill(broker, topic, 10)
    begun, go_on, cancelled = asyncio.Semaphore(0), asyncio.Event(), []

    async def handle(message, *more):
        begun.release()
        try:
            await go_on.wait()
        except asyncio.CancelledError:
            cancelled.append(message.offset)
            raise

    async def work(connection):
        running = asyncio.create_task(
            connection.work(topic, topic, handle, concurrency=2, transaction=transaction).run()
        )
        for _ in range(2):
            await begun.acquire()
        running.cancel()
        with pytest.raises(asyncio.CancelledError):
            await running
        worker = connection.work(topic, topic, handle, concurrency=2, transaction=transaction)
        running = asyncio.create_task(worker.run())
        for _ in range(2):
            await begun.acquire()
        worker.stop()
        go_on.set()
        await running

    in_a_loop(url, work)
    assert sorted(cancelled) == [0, 1]
    assert unfinished(broker, topic, topic) == list(range(2, 10))


def test_what_does_not_end_in_time_is_cancelled(url, broker, topic):
    fill(broker, topic, 1)
    begun = asyncio.Event()

    async def handle(message):
        begun.set()
        await asyncio.Event().wait()

    async def work(connection):
        worker = connection.work(topic, topic, handle, stop_timeout=0.1)
        running = asyncio.create_task(worker.run())
        await begun.wait()
        worker.stop()
        with pytest.raises(errors.StopTimedOut):
            await running

    in_a_loop(url, work)
    assert unfinished(broker, topic, topic) == [0]


def test_hooks_may_be_coroutine_functions(url, broker, topic):
    said = []

    async def hook(connection):
        await asyncio.sleep(0)
        said.append(connection)

    async def work(connection):
        await connection.work(topic, topic, print, on_start=hook, on_stop=hook, follow=False).run()
        assert said == [connection, connection]

    in_a_loop(url, work)

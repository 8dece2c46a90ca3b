"""Test blocks on asyncio and Twisted: the same protocol, with other ways of waiting."""

# ruff: noqa: PT012 - a whole block is what raises

import asyncio
import contextlib
import os
import sqlite3
import subprocess
import sys

import psycopg
import pytest

import txbroker
from tests.databases.topic_content import values
from tests.support.repository import PACKAGES, ROOT
from txbroker import State, errors
from txbroker.client.asyncio import connect
from txbroker.databases.asyncio import atomic

pytestmark = pytest.mark.slow


def numbers(database):
    found = [number for (number,) in database.execute("SELECT number FROM orders ORDER BY number")]
    database.rollback()
    return found


def in_a_loop(postgresql, address, work):
    async def everything():
        async with await connect(address, timeout=10.0) as broker:
            database = await psycopg.AsyncConnection.connect(postgresql.url)
            try:
                await work(database, broker)
            finally:
                await database.close()

    asyncio.run(everything())


def test_asyncio_makes_rows_and_messages_one(postgresql, rows, broker, shared_broker, topic):
    async def work(database, asynchronous):
        for number in range(5):
            async with atomic(database, asynchronous, application="shop", mode="two-phase") as tx:
                await database.execute("INSERT INTO orders VALUES (%s)", (number,))
                await tx.send(topic, b"%d" % number)
            assert tx.outcome is State.COMMITTED
        with pytest.raises(ZeroDivisionError) as caught:
            async with atomic(database, asynchronous, wait="commit", mode="two-phase") as tx:
                await database.execute("INSERT INTO orders VALUES (99)")
                message = await tx.receive(topic, topic, timeout=10.0)
                assert message.value == b"0"
                _ = 1 / 0
        assert "neither rows nor messages" in caught.value.__notes__[-1]
        for number in range(2):
            async with atomic(database, asynchronous, wait="commit", mode="two-phase") as tx:
                message = await tx.receive(topic, topic, timeout=10.0)
                assert message.value == b"%d" % number
        assert [at.offset for at in await asynchronous.group_offsets(topic)] == [2]
        for _ in range(200):
            cursor = await database.execute("SELECT count(*) FROM txbroker_decision")
            (left,) = await cursor.fetchone()
            await database.rollback()
            if left == 0:
                break
            await asyncio.sleep(0.05)
        assert left == 0
        assert asynchronous.resolver.status.failure == ""

    in_a_loop(postgresql, shared_broker.address, work)
    assert numbers(rows) == [0, 1, 2, 3, 4]
    assert values(broker, topic) == [b"0", b"1", b"2", b"3", b"4"]


def test_asyncio_refuses_a_commit_inside_of_the_block(postgresql, rows, broker, shared_broker, topic):
    async def work(database, asynchronous):
        with pytest.raises(errors.Misuse, match="committed it"):
            async with atomic(database, asynchronous, mode="two-phase") as tx:
                await tx.send(topic, b"1")
                await database.commit()

    in_a_loop(postgresql, shared_broker.address, work)
    assert values(broker, topic) == []


def test_a_task_that_is_cancelled_leaves_nothing(postgresql, rows, broker, shared_broker, topic):
    async def work(database, asynchronous):
        entered = asyncio.Event()

        async def block():
            async with atomic(database, asynchronous, mode="two-phase") as tx:
                await database.execute("INSERT INTO orders VALUES (1)")
                await tx.send(topic, b"1")
                entered.set()
                await asyncio.sleep(60)

        task = asyncio.create_task(block())
        await entered.wait()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        async with atomic(database, asynchronous, mode="two-phase"):
            pass

    in_a_loop(postgresql, shared_broker.address, work)
    assert (numbers(rows), values(broker, topic)) == ([], [])


def test_a_cancelled_commit_is_left_to_the_resolver(postgresql, rows, broker, shared_broker, topic):
    async def work(database, asynchronous):
        tx = atomic(database, asynchronous, mode="two-phase")

        async def cancelled():
            raise asyncio.CancelledError

        with pytest.raises(asyncio.CancelledError) as caught:
            async with tx:
                await database.execute("INSERT INTO orders VALUES (1)")
                await tx.send(topic, b"1")
                tx.database.commit = cancelled
        assert "wait_outcome(xid)" in caught.value.__notes__[-1]
        assert tx.outcome is State.PREPARED
        assert database.closed
        assert await asynchronous.wait_outcome(tx.xid, 15.0) is State.ROLLED_BACK

    in_a_loop(postgresql, shared_broker.address, work)
    assert (numbers(rows), values(broker, topic)) == ([], [])


def test_each_api_refuses_the_others_connections(postgresql, rows, broker, shared_broker):
    async def work(database, asynchronous):
        with pytest.raises(errors.Misuse, match=r"no connection of txbroker\.client\.asyncio"):
            atomic(database, broker, mode="two-phase")
        with pytest.raises(errors.Misuse, match="no blocking connection"):
            txbroker.atomic(rows, asynchronous, mode="two-phase")
        with pytest.raises(errors.Misuse, match="async with"):
            txbroker.atomic(database, broker, mode="two-phase").__enter__()

    in_a_loop(postgresql, shared_broker.address, work)


def test_twisted_makes_rows_and_messages_one(sqlite, broker, shared_broker, topic):
    """In a process of its own, for a reactor cannot be started twice."""
    with contextlib.closing(sqlite3.connect(sqlite)) as database:
        database.execute("CREATE TABLE orders (number INTEGER PRIMARY KEY)")
        database.commit()
        txbroker.create_decision_table(database)
        ran = subprocess.run(
            [
                sys.executable,
                "-m",
                "tests.databases.twisted_program",
                str(sqlite),
                shared_broker.address,
                topic,
            ],
            cwd=ROOT,
            env={**os.environ, "PYTHONPATH": PACKAGES},
            capture_output=True,
            text=True,
            timeout=60.0,
            check=False,
        )
        assert ran.returncode == 0, ran.stdout + ran.stderr
        assert ran.stdout.split() == ["ok"]
        assert [number for (number,) in database.execute("SELECT number FROM orders")] == [0, 1, 2]
        assert values(broker, topic) == [b"0", b"1", b"2"]
        assert [at.offset for at in broker.group_offsets(topic)] == [1]
        with txbroker.Resolver(lambda: sqlite3.connect(sqlite), broker) as resolver:
            assert resolver.resolve().is_quiet

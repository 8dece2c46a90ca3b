"""Test blocks that leave their messages in the database on asyncio and Twisted, and those that are cancelled."""

# ruff: noqa: PT012 - a whole block is what raises

import asyncio
import itertools
import os
import sqlite3
import subprocess
import sys
import time

import psycopg
import pytest

import txbroker
from tests.databases.deaths.test_cancelled_blocks import CancelledAt
from tests.databases.orders import numbers
from tests.databases.outbox.scene import all_of, has_come, is_empty, rows_of
from tests.support.repository import ROOT
from txbroker import State, errors
from txbroker.client.asyncio import connect
from txbroker.databases.asyncio import atomic

pytestmark = pytest.mark.slow


def in_a_loop(postgresql, address, work):
    async def everything():
        async with await connect(address, timeout=20.0) as broker:
            database = await psycopg.AsyncConnection.connect(postgresql.url)
            try:
                await work(database, broker)
            finally:
                await database.close()

    asyncio.run(everything())


@pytest.mark.parametrize("wait", ["decision", "commit"])
def test_asyncio_makes_rows_and_messages_one(postgresql, rows, broker, shared_broker, topic, wait):
    async def work(database, asynchronous):
        for number in range(30):
            async with atomic(database, asynchronous, mode="outbox", wait=wait) as tx:
                await database.execute("INSERT INTO orders VALUES (%s)", (number,))
                await tx.send(topic, b"%d" % number)
            assert tx.outcome is State.COMMITTED
            assert await asynchronous.wait_outcome(tx.xid, 10.0) is State.COMMITTED
        with pytest.raises(ZeroDivisionError):
            async with atomic(database, asynchronous, mode="outbox") as tx:
                await database.execute("INSERT INTO orders VALUES (99)")
                await tx.send(topic, b"99")
                _ = 1 / 0
        with pytest.raises(errors.Misuse, match="none of the block's messages"):
            async with atomic(database, asynchronous, mode="outbox") as tx:
                await tx.send(topic, b"99")
                await database.commit()

    in_a_loop(postgresql, shared_broker.address, work)
    assert sorted(numbers(postgresql.connect)) == list(range(30))
    has_come(broker, topic, *range(30))
    is_empty(postgresql.connect)


class Shop:
    """Blocks that are cancelled when they wait for the so-manieth time, each with one that follows."""

    def __init__(self, url, broker, topic, wait):
        self.url, self.broker, self.topic, self.wait = url, broker, topic, wait
        self.database, self.told = None, []

    async def ready(self):
        if self.database is None or self.database.closed:
            self.database = await psycopg.AsyncConnection.connect(self.url)

    async def block(self):
        number = len(self.told)
        tx = atomic(self.database, self.broker, wait=self.wait, mode="outbox")
        self.told.append(tx)
        async with tx:
            await self.database.execute("INSERT INTO orders VALUES (%s)", (number,))
            await tx.send(self.topic, b"%d" % number)

    async def cancelled(self, *at, late):
        await self.ready()
        awaiting, raised = CancelledAt(self.block(), *at, late=late), []

        async def given_up():
            try:
                await awaiting
            except BaseException as error:  # noqa: BLE001 - a task makes another one of it
                raised.append(error)

        await asyncio.create_task(given_up())
        was_through, tx = awaiting.waits < at[0], self.told[-1]
        assert [type(error) for error in raised] == ([] if was_through else [asyncio.CancelledError]), at
        if tx.outcome is State.PREPARED:
            assert self.database.closed, at
            assert any(str(tx.xid) in note for note in getattr(raised[0], "__notes__", ())), at
        await self.ready()
        assert self.database.info.transaction_status == psycopg.pq.TransactionStatus.IDLE
        await self.block()
        assert self.told[-1].outcome is State.COMMITTED
        return was_through

    async def check(self):
        expected = []
        for number, tx in enumerate(self.told):
            outcome = tx.outcome
            if outcome is State.PREPARED:
                outcome = await self.broker.wait_outcome(tx.xid, 20.0)
            if outcome is State.COMMITTED:
                expected.append(number)
        return expected


def test_whoever_waits_until_messages_are_visible_waits_for_no_round_of_the_resolver(
    postgresql, rows, broker, shared_broker, topic
):
    """Its thread alone reads the answers to deliveries beside an event loop."""

    async def work(database, asynchronous):
        for number in range(20):
            async with atomic(database, asynchronous, mode="outbox", wait="commit") as tx:
                await database.execute("INSERT INTO orders VALUES (%s)", (number,))
                await tx.send(topic, b"%d" % number)
            times.append(time.monotonic())

    times = []
    in_a_loop(postgresql, shared_broker.address, work)
    pauses = sorted(after - before for before, after in itertools.pairwise(times))
    assert pauses[-3] < 0.3, pauses
    has_come(broker, topic, *range(20))


@pytest.mark.parametrize("wait", ["decision", "commit"])
@pytest.mark.parametrize("late", [False, True], ids=["waiting", "about to go on"])
def test_a_block_that_is_cancelled_at_any_await_leaves_both_or_neither(
    postgresql, rows, broker, shared_broker, topic, wait, late
):
    async def everything():
        async with await connect(shared_broker.address, timeout=20.0) as asynchronous:
            shop = Shop(postgresql.url, asynchronous, topic, wait)
            for second in ((), (1,), (2,)):
                awaits = 1
                while not await shop.cancelled(awaits, *(awaits + each for each in second), late=late):
                    awaits += 1
                assert awaits > 3
            committed = await shop.check()
            await shop.database.close()
            return committed

    committed = asyncio.run(everything())
    with txbroker.Resolver(postgresql.connect, broker) as resolver:
        resolver.resolve()
    assert sorted(all_of(broker, topic)) == sorted(numbers(postgresql.connect)) == committed


def test_twisted_makes_rows_and_messages_one_and_a_cancelled_block_leaves_both_or_neither(
    sqlite, lite, broker, shared_broker, topic
):
    """In a process of its own, for a reactor cannot be started twice."""
    ran = subprocess.run(
        [
            sys.executable,
            "-m",
            "tests.databases.outbox.twisted_program",
            sqlite,
            shared_broker.address,
            topic,
        ],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=120.0,
        check=False,
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert ran.stdout.split() == ["ok"]
    opens = lambda: sqlite3.connect(sqlite)  # noqa: E731
    with txbroker.Resolver(opens, broker) as resolver:
        resolver.resolve()
    assert sorted(all_of(broker, topic)) == sorted(numbers(opens))
    assert rows_of(opens) == []

"""Test blocks that are cancelled on a loop: an asyncio task at each of its awaits, a Deferred of Twisted's."""

import asyncio
import contextlib
import os
import sqlite3
import subprocess
import sys

import psycopg
import pytest

import txbroker
from tests.databases.orders import make_tables
from tests.databases.topic_content import values
from tests.support.repository import PACKAGES, ROOT
from txbroker import State
from txbroker.client.asyncio import connect
from txbroker.databases import open_blocks
from txbroker.databases.asyncio import atomic

pytestmark = pytest.mark.slow


class CancelledAt:
    """Awaits something in a task that is cancelled when it waits for the so-manieth time, and again later.

    ``late``: when what it waits for is there, and it has not gone on yet.
    """

    def __init__(self, work, *at, late=False):
        self.work, self.at, self.late = work, at, late
        self.waits = 0

    def __await__(self):
        task, inner, error = asyncio.current_task(), self.work.__await__(), None
        while True:
            try:
                waited = inner.send(None) if error is None else inner.throw(error)
            except StopIteration as stop:
                return stop.value
            self.waits += 1
            if self.waits in self.at:
                if self.late and waited is not None:
                    waited.add_done_callback(lambda _: task.cancel())
                else:
                    task.cancel()
            error = None
            try:
                yield waited
            except BaseException as raised:  # noqa: BLE001 - it is the inner one's
                error = raised


class Shop:
    def __init__(self, url, broker, topic, wait):
        self.url, self.broker, self.topic, self.wait = url, broker, topic, wait
        self.database = None
        self.told = []

    async def ready(self):
        if self.database is None or self.database.closed:
            self.database = await psycopg.AsyncConnection.connect(self.url)

    async def block(self, blocks):
        number = len(self.told)
        tx = atomic(self.database, self.broker, wait=self.wait, mode="two-phase")
        blocks.append(tx)
        self.told.append(tx)
        async with tx:
            await self.database.execute("INSERT INTO orders VALUES (%s)", (number,))
            await tx.send(self.topic, b"%d" % number)

    async def cancelled(self, *at, late):
        """One block that is cancelled, and one that follows; whether the first came to its end before."""
        await self.ready()
        blocks = []
        awaiting = CancelledAt(self.block(blocks), *at, late=late)

        errors = []

        async def given_up():
            try:
                await awaiting
            except BaseException as error:  # noqa: BLE001 - a task makes another one of it
                errors.append(error)

        await asyncio.create_task(given_up())
        (tx,) = blocks
        was_through = awaiting.waits < at[0]
        assert [type(error) for error in errors] == ([] if was_through else [asyncio.CancelledError]), at
        if tx.outcome is State.PREPARED:
            assert self.database.closed, at
            assert any(str(tx.xid) in note for note in getattr(errors[0], "__notes__", ())), at
        await self.ready()
        assert self.database.info.transaction_status == psycopg.pq.TransactionStatus.IDLE
        await self.block(blocks)
        assert blocks[-1].outcome is State.COMMITTED
        return was_through

    async def check(self):
        expected = []
        for number, tx in enumerate(self.told):
            outcome = tx.outcome
            if outcome is State.PREPARED:
                outcome = await self.broker.wait_outcome(tx.xid, 20.0)
            if outcome is State.COMMITTED:
                expected.append(number)
        cursor = await self.database.execute("SELECT number FROM orders ORDER BY number")
        assert [number for (number,) in await cursor.fetchall()] == expected
        await self.database.rollback()
        assert await self.broker.transactions([State.ACTIVE]) == []
        return expected


SECOND = [(), (1,), (2,), (3,), (1, 2)]
"""Awaits after the first cancellation at which there is another one."""


@pytest.mark.parametrize("wait", ["decision", "commit"])
@pytest.mark.parametrize("late", [False, True], ids=["waiting", "about to go on"])
def test_a_block_that_is_cancelled_at_any_await_leaves_both_or_neither(
    postgresql, rows, broker, shared_broker, topic, wait, late
):
    async def everything():
        async with await connect(shared_broker.address, timeout=20.0) as asynchronous:
            shop = Shop(postgresql.url, asynchronous, topic, wait)
            for second in SECOND:
                awaits = 1
                while not await shop.cancelled(awaits, *(awaits + each for each in second), late=late):
                    awaits += 1
                assert awaits > 5
            committed = await shop.check()
            await shop.database.close()
            serials = asynchronous._serials
            assert set(serials._open) == set(serials._left)  # those of which the resolver has decided
            return committed

    open_before = dict(open_blocks._in_block)  # of lost connections of other tests
    committed = asyncio.run(everything())
    assert sorted(int(value) for value in values(broker, topic)) == committed
    assert open_blocks._in_block == open_before


def test_a_deferred_that_is_cancelled_leaves_both_or_neither(sqlite, broker, shared_broker, topic):
    """In a process of its own, for a reactor cannot be started twice."""
    with contextlib.closing(sqlite3.connect(sqlite)) as database:
        make_tables(database)
        ran = subprocess.run(
            [
                sys.executable,
                "-m",
                "tests.databases.deaths.twisted_cancellation",
                sqlite,
                shared_broker.address,
                topic,
            ],
            cwd=ROOT,
            env={**os.environ, "PYTHONPATH": PACKAGES},
            capture_output=True,
            text=True,
            timeout=120.0,
            check=False,
        )
        assert ran.returncode == 0, ran.stdout + ran.stderr
        assert ran.stdout.split() == ["ok"]
        found = [number for (number,) in database.execute("SELECT number FROM orders ORDER BY number")]
        assert sorted(int(value) for value in values(broker, topic)) == found
        with txbroker.Resolver(lambda: sqlite3.connect(sqlite), broker) as resolver:
            assert resolver.resolve().is_quiet

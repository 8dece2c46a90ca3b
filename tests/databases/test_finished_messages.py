"""Test that a block finishes single messages of a consumer together with its rows, on each client."""

# ruff: noqa: PT012 - a whole block is what raises

import asyncio
import subprocess
import sys

import psycopg
import pytest

import txbroker
from tests.databases.adapters.lite_scene import numbers, shop
from tests.support.repository import ROOT
from txbroker.client.asyncio import connect
from txbroker.databases.asyncio import atomic

pytestmark = pytest.mark.slow


@pytest.fixture
def database(sqlite):
    with shop(sqlite) as connection:
        yield connection


def begins_at(broker, group):
    return [at.offset for at in broker.group_offsets(group)]


def test_a_message_is_finished_with_the_row_and_no_other_is(database, broker, topic):
    for number in range(3):
        broker.send(topic, b"%d" % number)
    with broker.consume(topic, topic) as consumer:
        messages = consumer.poll(10.0)
        with txbroker.atomic(database, broker, wait="commit", mode="two-phase") as tx:
            database.execute("INSERT INTO orders VALUES (1, 'new')")
            tx.done(messages[1])
        with pytest.raises(ZeroDivisionError), txbroker.atomic(database, broker, mode="two-phase") as tx:
            tx.done(messages[0], consumer)
            _ = 1 / 0
        assert begins_at(broker, topic) in ([], [0])
        with txbroker.atomic(database, broker, wait="commit", mode="two-phase") as tx:
            tx.done(messages[0], consumer)
    assert begins_at(broker, topic) == [2]
    assert numbers(database) == [1]


def test_asyncio_finishes_messages_with_a_block(postgresql, rows, broker, shared_broker, topic):
    async def work():
        async with await connect(shared_broker.address) as asynchronous:
            database = await psycopg.AsyncConnection.connect(postgresql.url)
            consumer = asynchronous.consume(topic, topic)
            messages = await consumer.poll(10.0)
            async with atomic(database, asynchronous, wait="commit", mode="two-phase") as tx:
                await database.execute("INSERT INTO orders VALUES (1)")
                await tx.done(messages[0], consumer)
            await database.close()

    broker.send(topic, b"0")
    asyncio.run(work())
    assert begins_at(broker, topic) == [1]


TWISTED = """
import sys
from twisted.enterprise.adbapi import ConnectionPool
from twisted.internet.defer import Deferred
from twisted.internet.task import react
from txbroker.client.twisted import connect
from txbroker.databases.twisted import run_atomic

async def main(reactor, path, address, topic):
    pool = ConnectionPool("sqlite3", path, check_same_thread=False)
    broker = await connect(address)
    consumer = broker.consume(topic, topic)
    (message,) = await consumer.poll(10.0)
    def finish(cursor, tx):
        cursor.execute("INSERT INTO orders VALUES (1, 'new')")
        tx.done(message, consumer)
    await run_atomic(pool, broker, finish, wait="commit", mode="two-phase")
    await broker.close()
    pool.close()

react(lambda *arguments: Deferred.fromCoroutine(main(*arguments)), sys.argv[1:])
"""


def test_twisted_finishes_messages_with_a_block(database, sqlite, broker, shared_broker, topic):
    broker.send(topic, b"0")
    subprocess.run(
        [sys.executable, "-c", TWISTED, str(sqlite), shared_broker.address, topic],
        cwd=ROOT,
        check=True,
        timeout=60,
    )
    assert begins_at(broker, topic) == [1]
    assert numbers(database) == [1]

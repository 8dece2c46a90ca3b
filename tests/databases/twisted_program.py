"""Blocks in adbapi's interactions: DATABASE BROKER TOPIC. Prints "ok"."""

import sys

import pytest
from twisted.enterprise.adbapi import ConnectionPool
from twisted.internet.defer import Deferred
from twisted.internet.task import react

from txbroker.client.twisted import connect
from txbroker.databases.twisted import run_atomic


def order(cursor, tx, topic, number):
    cursor.execute("INSERT INTO orders VALUES (?)", (number,))
    tx.send(topic, b"%d" % number)
    return number


def receive(cursor, tx, topic):
    message = tx.receive(topic, topic, timeout=10.0)
    return message.value


def fail(cursor, tx, topic):
    order(cursor, tx, topic, 99)
    assert tx.receive(topic, topic, timeout=10.0).value == b"0"
    raise ZeroDivisionError


async def main(reactor, path, address, topic):
    pool = ConnectionPool("sqlite3", path, cp_max=3, check_same_thread=False)
    broker = await connect(address)
    for number in range(3):
        assert await run_atomic(pool, broker, order, topic, number, wait="commit", mode="two-phase") == number
    with pytest.raises(ZeroDivisionError) as caught:
        await run_atomic(pool, broker, fail, topic, mode="two-phase")
    assert "neither rows nor messages" in caught.value.__notes__[-1]
    assert await run_atomic(pool, broker, receive, topic, wait="commit", mode="two-phase") == b"0"
    assert broker.resolver.status.failure == ""
    await broker.close()
    pool.close()
    print("ok")


if __name__ == "__main__":
    react(lambda *arguments: Deferred.fromCoroutine(main(*arguments)), sys.argv[1:])

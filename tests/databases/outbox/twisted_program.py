"""Blocks in adbapi's interactions that leave their messages in the database: DATABASE BROKER TOPIC. Prints "ok"."""

import itertools
import sys

from twisted.enterprise.adbapi import ConnectionPool
from twisted.internet.defer import CancelledError, Deferred
from twisted.internet.task import deferLater, react
from twisted.python.failure import Failure

from txbroker.client.twisted import connect
from txbroker.databases.twisted import run_atomic


def order(cursor, tx, topic, number):
    cursor.execute("INSERT INTO orders VALUES (?)", (number,))
    tx.send(topic, b"%d" % number)
    return number


async def main(reactor, path, address, topic):
    pool = ConnectionPool("sqlite3", path, cp_min=1, cp_max=1, check_same_thread=False)
    broker = await connect(address)
    numbers = itertools.count()

    def run(wait):
        number = next(numbers)
        return number, run_atomic(pool, broker, order, topic, number, wait=wait, mode="outbox")

    async def is_there(number):
        return bool(await pool.runQuery("SELECT number FROM orders WHERE number = ?", (number,)))

    for wait in ("decision", "commit"):
        for _ in range(10):
            number, done = run(wait)
            assert await done == number
    for turns in itertools.count():
        number, deferred = run("commit")
        ended = []
        deferred.addBoth(ended.append)
        for _ in range(turns):
            await deferLater(reactor, 0, lambda: None)
        was_through = bool(ended)
        deferred.cancel()
        if was_through:
            assert ended == [number]
            break
        (failure,) = ended
        assert isinstance(failure, Failure)
        assert failure.check(CancelledError), failure
        note = failure.value.__notes__[-1]
        assert await is_there(number) == ("wait_outcome(xid)" in note), (turns, note)
    assert turns > 2
    assert broker.resolver.status.failure == ""
    await broker.close()
    pool.close()
    print("ok")


if __name__ == "__main__":
    react(lambda *arguments: Deferred.fromCoroutine(main(*arguments)), sys.argv[1:])

"""Workers of the Twisted client: URL TOPIC DATABASE. Prints "ok"."""

import logging
import sys

from twisted.enterprise.adbapi import ConnectionPool
from twisted.internet.defer import CancelledError, Deferred
from twisted.internet.task import deferLater, react

from txbroker import RetryPolicy
from txbroker.client.twisted import connect


async def by_deferreds(reactor, broker, topic, transaction):
    under_way = most = 0
    full = Deferred()

    async def handle(message, *more):
        nonlocal under_way, most
        under_way += 1
        most = max(most, under_way)
        if most == 4 and not full.called:
            full.callback(None)
        if not full.called:
            waiting = Deferred()
            full.addCallback(lambda _: waiting.callback(None))
            await waiting
        await deferLater(reactor, 0, lambda: None)
        under_way -= 1

    group = f"{topic}-{transaction}"
    await broker.work(topic, group, handle, concurrency=4, transaction=transaction, follow=False).run()
    assert most == 4, most
    (at,) = await broker.group_offsets(group)
    assert at.offset == 20, at


async def with_a_pool(broker, topic, database):
    pool = ConnectionPool("sqlite3", database, cp_max=3, check_same_thread=False, timeout=30)

    def handle(message, tx, cursor):
        cursor.execute("INSERT INTO orders VALUES (?)", (message.offset,))
        tx.send("out", message.value)

    worker = broker.work(topic, f"{topic}-pool", handle, concurrency=2, transaction=pool, follow=False)
    await worker.run()
    (at,) = await broker.group_offsets(f"{topic}-pool")
    assert at.offset == 20, at
    pool.close()


async def cancelled(broker, topic):
    begun = Deferred()
    cancelled = []

    def handle(message):
        begun.callback(None)
        return Deferred(lambda _: cancelled.append(message.offset))

    running = broker.work(topic, f"{topic}-cancelled", handle).run()
    await begun
    running.cancel()
    try:
        await running
    except CancelledError:
        assert cancelled == [0]
    else:
        raise AssertionError("it was cancelled")


async def too_long(broker, topic):
    """It is cancelled, tried again, and given up, and the worker goes on; a Deferred and a coroutine."""
    logging.getLogger("txbroker.worker").setLevel(logging.CRITICAL)  # what fails is written to stderr
    for kind in ("deferred", "coroutine"):
        cancelled = []

        def handle(message):
            waiting = Deferred(lambda _: cancelled.append(message.attempts))  # noqa: B023
            if message.offset != 3:
                return None
            return waiting if kind == "deferred" else ensured(waiting)  # noqa: B023

        group = f"{topic}-long-{kind}"
        policy = RetryPolicy(attempts=2, pause=0.01, longest=0.01, ending="drop")
        await broker.work(topic, group, handle, retry=policy, handler_timeout=0.1, follow=False).run()
        assert cancelled == [0, 1], cancelled
        (at,) = await broker.group_offsets(group)
        assert at.offset == 20, at


async def ensured(waiting):
    await waiting


async def main(reactor, url, topic, database):
    broker = await connect(url)
    await broker.create_topic("out", exist_ok=True)
    for transaction in (None, "broker"):
        await by_deferreds(reactor, broker, topic, transaction)
    await with_a_pool(broker, topic, database)
    await cancelled(broker, topic)
    await too_long(broker, topic)
    await broker.close()
    print("ok")


if __name__ == "__main__":
    react(lambda *arguments: Deferred.fromCoroutine(main(*arguments)), sys.argv[1:])

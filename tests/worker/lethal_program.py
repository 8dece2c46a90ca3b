"""A worker whose handler kills its process at a message: FACE URL TOPIC TRANSACTION BATCH. Prints what it begins."""

import asyncio
import contextlib
import os
import signal
import sqlite3
import sys

import txbroker
from txbroker import RetryPolicy

POLICY = RetryPolicy(attempts=3, pause=0.05, longest=0.05)


def handle(what, *more):
    """Write each message's row, if there is a database; die at "lethal"."""
    messages = what if isinstance(what, list) else [what]
    print(" ".join(f"{each.offset}/{each.attempts}" for each in messages), flush=True)
    for message in messages:
        if message.value == b"lethal":
            os.kill(os.getpid(), signal.SIGKILL)
        if len(more) == 2:
            more[1].execute("INSERT INTO orders VALUES (?)", (message.offset,))


def choices(transaction, batch):
    made = {"retry": POLICY, "follow": False, "batch": batch}
    if transaction == "broker":
        return made | {"transaction": "broker"}
    if transaction != "none":
        return made | {"transaction": lambda: sqlite3.connect(transaction, timeout=30.0)}
    return made


async def on_asyncio(url, topic, options):
    from txbroker.client.asyncio import connect

    async with await connect(url) as broker:
        await broker.work(topic, topic, handle, **options).run()


def on_twisted(url, topic, options):
    from twisted.internet.task import react

    from txbroker.client.twisted import connect

    async def main(reactor):
        broker = await connect(url)
        await broker.work(topic, topic, handle, **options).run()
        await broker.close()

    from twisted.internet.defer import Deferred

    react(lambda reactor: Deferred.fromCoroutine(main(reactor)))


def main(face, url, topic, transaction, batch):
    options = choices(transaction, int(batch))
    if face == "asyncio":
        asyncio.run(on_asyncio(url, topic, options))
    elif face == "twisted":
        with contextlib.suppress(SystemExit):
            on_twisted(url, topic, options)
    else:
        with txbroker.connect(url) as broker:
            broker.work(topic, topic, handle, **options).run()


if __name__ == "__main__":
    main(*sys.argv[1:])

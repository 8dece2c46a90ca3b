"""A program that leaves in some way right after a block whose commit is held: DATABASE BROKER TOPIC FACE WAY.

What holds the commit would hold it for a minute, and there is no resolver.
"""

import asyncio
import os
import sqlite3
import sys

import txbroker
from txbroker.client import asyncio as asyncio_client
from txbroker.client.core import core
from txbroker.databases import asyncio as asyncio_face
from txbroker.databases import block

core.HELD = 60.0


class NoResolver:
    """In the place of the resolver's thread."""

    def known_streams(self, name):
        return None

    def knows(self, name):
        return True

    def track(self, told, key):
        """Forget it."""

    def hurry(self):
        """Do nothing."""


def leave(way):
    if way == "exits":
        sys.exit(0)
    if way == "raises":
        raise SystemExit("enough")
    if way == "forks":
        os.fork()
    if way in ("forks", "killed"):
        os._exit(0)


def blocking(path, address, topic, way):
    block.BrokerSide.make_background = lambda side: NoResolver()
    from txbroker.databases.blocking import BlockingSide

    BlockingSide.make_background = lambda side: NoResolver()
    broker = txbroker.connect(address)
    with txbroker.atomic(sqlite3.connect(path), broker, mode="two-phase") as tx:
        tx.send(topic, way.encode())
    if way == "closes":
        broker.close(0.0)
        os._exit(0)
    leave(way)
    return broker  # which nobody closes


async def in_a_loop(path, address, topic, way):
    block.BrokerSide.make_background = lambda side: NoResolver()
    broker = await asyncio_client.connect(address)
    async with asyncio_face.atomic(sqlite3.connect(path), broker, mode="two-phase") as tx:
        await tx.send(topic, way.encode())
    if way == "closes":
        await broker.close()
        os._exit(0)
    leave(way)
    return broker


def in_a_reactor(path, address, topic, way):
    from twisted.enterprise.adbapi import ConnectionPool
    from twisted.internet.defer import Deferred
    from twisted.internet.task import deferLater, react

    from txbroker.client import twisted as twisted_client
    from txbroker.databases.twisted import run_atomic

    async def work(reactor):
        if way == "waits":
            core.HELD = 0.002
        pool = ConnectionPool("sqlite3", path, cp_max=1, check_same_thread=False)
        broker = await twisted_client.connect(address)
        await run_atomic(pool, broker, lambda cursor, tx: tx.send(topic, way.encode()), mode="two-phase")
        if way == "closes":
            await broker.close()
            os._exit(0)
        if way == "waits":
            await deferLater(reactor, 0.5)
        leave(way)

    block.BrokerSide.make_background = lambda side: NoResolver()
    react(lambda reactor: Deferred.fromCoroutine(work(reactor)))


def main(path, address, topic, face, way):
    if face == "asyncio":
        return asyncio.run(in_a_loop(path, address, topic, way))
    if face == "twisted":
        return in_a_reactor(path, address, topic, way)
    return blocking(path, address, topic, way)


if __name__ == "__main__":
    kept = main(*sys.argv[1:])

"""Blocks in adbapi's interactions whose Deferreds are cancelled: DATABASE BROKER TOPIC. Prints "ok"."""

import itertools
import sqlite3
import sys
import threading

from twisted.enterprise.adbapi import ConnectionPool
from twisted.internet.defer import CancelledError, Deferred
from twisted.internet.task import deferLater, react
from twisted.internet.threads import deferToThread
from twisted.python.failure import Failure

from txbroker import State
from txbroker.client.twisted import connect
from txbroker.databases.twisted import run_atomic


class Moment:
    """A point in a thread at which it waits, while the reactor does something."""

    def __init__(self):
        self._come, self._gone = threading.Event(), threading.Event()

    def reach(self):
        self._come.set()
        assert self._gone.wait(20.0)

    async def reached(self):
        assert await deferToThread(self._come.wait, 20.0)

    async def meanwhile(self, act):
        await self.reached()
        act()
        self._gone.set()


class Held(sqlite3.Connection):
    """A connection whose COMMIT can be held up: the thread waits before and after it."""

    before: Moment | None = None
    after: Moment | None = None

    def commit(self):
        if self.in_transaction and Held.before is not None:
            moment, Held.before = Held.before, None
            moment.reach()
        super().commit()
        if Held.after is not None:
            moment, Held.after = Held.after, None
            moment.reach()


class Shop:
    def __init__(self, reactor, pool, broker, topic):
        self.reactor, self.pool, self.broker, self.topic = reactor, pool, broker, topic
        self.numbers = itertools.count()
        self.committed = []

    def order(self, moment=None, catches=False, **options):
        """Begin a block; its number, its Deferred, and what that ends with."""
        number = next(self.numbers)

        def work(cursor, tx):
            cursor.execute("INSERT INTO orders VALUES (?)", (number,))
            tx.send(self.topic, b"%d" % number)
            if moment is not None:
                moment.reach()
            if options.get("receives"):
                try:
                    tx.receive(f"{self.topic}-empty", self.topic)
                except CancelledError:
                    if not catches:
                        raise
            return number

        deferred = run_atomic(
            self.pool, self.broker, work, wait=options.get("wait", "decision"), mode="two-phase"
        )
        ended = []
        deferred.addBoth(ended.append)
        return number, deferred, ended

    async def rows(self):
        """What is there when the pool's one thread has done what it had to do before."""
        found = await self.pool.runQuery("SELECT number FROM orders ORDER BY number")
        return [number for (number,) in found]

    async def is_there(self, number):
        return number in await self.rows()


def note_of(ended):
    (failure,) = ended
    assert isinstance(failure, Failure), ended
    assert failure.check(CancelledError), failure
    return failure.value.__notes__[-1]


async def before_commit(shop):
    """Cancelled in line for a thread, in the interaction, in a receive that nobody answers: neither is there."""
    moment = Moment()
    first, _, first_ended = shop.order(moment)
    second, in_line, second_ended = shop.order()
    third, _, third_ended = shop.order()
    await moment.meanwhile(in_line.cancel)
    assert "not asked to commit" in note_of(second_ended)
    moment = Moment()
    inside, deferred, ended = shop.order(moment)
    await moment.meanwhile(lambda: (deferred.cancel(), deferred.cancel()))
    assert "both are rolled back" in note_of(ended)
    for catches in (False, True):
        moment = Moment()
        receiving, deferred, ended = shop.order(moment, catches, receives=True)
        await moment.meanwhile(lambda: None)
        await deferLater(shop.reactor, 0.05, deferred.cancel)
        assert "both are rolled back" in note_of(ended)
        assert not await shop.is_there(receiving)
    moment = Moment()
    late, deferred, ended = shop.order(moment)
    await moment.reached()  # a time-out in line for a thread would be another case
    deferred.addTimeout(0.05, shop.reactor)
    while not ended:
        await deferLater(shop.reactor, 0.01, lambda: None)
    await moment.meanwhile(lambda: None)
    assert "both are rolled back" in note_of(ended)
    assert await shop.rows() == [first, third]
    assert (first_ended, third_ended) == ([first], [third])
    assert not {second, inside, late} & set(await shop.rows())


async def from_commit_on(shop):
    """Cancelled while the database commits, or later: both are there, and the error says how to find out."""
    for when in ("before", "after"):
        for wait in ("decision", "commit"):
            moment = Moment()
            setattr(Held, when, moment)
            number, deferred, ended = shop.order(wait=wait)
            await moment.meanwhile(deferred.cancel)
            note = note_of(ended)
            assert "wait_outcome(xid)" in note
            (xid,) = [info.xid for info in await shop.broker.transactions() if str(info.xid) in note] or [
                None
            ]
            if xid is not None:
                assert await shop.broker.wait_outcome(xid, 10.0) is State.COMMITTED
            assert await shop.is_there(number)


async def at_every_turn(shop):
    """Cancelled after 0, 1, 2, ... turns of the reactor, until it is through before."""
    for turns in itertools.count():
        number, deferred, ended = shop.order(wait="commit")
        for _ in range(turns):
            await deferLater(shop.reactor, 0, lambda: None)
        was_through = bool(ended)
        deferred.cancel()
        if was_through:
            assert ended == [number]
            assert turns > 3
            return
        is_there = await shop.is_there(number)
        assert is_there == ("wait_outcome(xid)" in note_of(ended)), (turns, note_of(ended))


async def main(reactor, path, address, topic):
    pool = ConnectionPool("sqlite3", path, cp_min=1, cp_max=1, check_same_thread=False, factory=Held)
    broker = await connect(address)
    await broker.create_topic(f"{topic}-empty")
    shop = Shop(reactor, pool, broker, topic)
    await before_commit(shop)
    await from_commit_on(shop)
    await at_every_turn(shop)
    number, _, ended = shop.order(wait="commit")
    while not ended:
        await deferLater(reactor, 0.01, lambda: None)
    assert ended == [number]
    assert broker._serials._open == {}
    assert await broker.transactions() == []
    assert broker.resolver.status.failure == ""
    await broker.close()
    pool.close()
    print("ok")


if __name__ == "__main__":
    react(lambda *arguments: Deferred.fromCoroutine(main(*arguments)), sys.argv[1:])

"""A program that cancels calls of the Twisted client, one turn of the reactor later each time; `ADDRESS` of a broker.

A program of its own, for a reactor cannot be started twice.
"""

import sys
import uuid
from itertools import count

from twisted.internet.defer import CancelledError, Deferred, TimeoutError, ensureDeferred
from twisted.internet.task import deferLater, react

from journal.transaction_states import State
from txbroker import errors
from txbroker.client.core.answers import MOST_AT_ONCE
from txbroker.client.twisted import connect

MOST_TURNS = 40


async def cancelled(reactor, deferred, turns):
    """Cancel a Deferred after so many turns; whether it had fired before, and its result."""
    found = []
    deferred.addBoth(found.append)
    for _ in range(turns):
        if found:
            break
        await deferLater(reactor, 0, lambda: None)
    was_through = bool(found)
    deferred.cancel()
    deferred.cancel()
    return was_through, found[0] if was_through else None


async def receives(reactor, broker, topic):
    """Nothing is handed out by a cancelled receive, and the transaction goes on."""
    got = []
    for turns in range(MOST_TURNS):
        await broker.send(topic, b"")
        async with broker.transaction() as tx:
            was_through, message = await cancelled(reactor, tx.receive(topic, group=topic), turns)
            if not was_through:
                message = await tx.receive(topic, group=topic, timeout=20.0)
            got.append(message.offset)
    assert got == list(range(MOST_TURNS)), got
    async with broker.transaction() as tx:
        try:
            await tx.receive(topic, group=topic).addTimeout(0.01, reactor)
        except TimeoutError:
            await broker.send(topic, b"late")
            message = await tx.receive(topic, group=topic, timeout=20.0)
        assert message.value == b"late"
    return MOST_TURNS + 1


async def polls(reactor, broker, topic, end):
    """A cancelled poll leaves its messages, and no timer."""
    consumer, got = broker.consume(topic, group=f"{topic}-polls"), []
    for turns in range(MOST_TURNS):
        _, messages = await cancelled(reactor, consumer.poll(20.0), turns)
        got += [message.offset for message in messages or []]
    while len(got) < end:
        got += [message.offset for message in await consumer.poll(20.0)]
    assert got == list(range(end)), got
    await cancelled(reactor, consumer.poll(3600.0), 3)
    assert len(broker.core.waits.alarms) == 0


async def commits(reactor, broker, topic):
    """A cancelled commit tells how it ended when it is asked again; a cancelled block of a send is rolled back."""
    values = []
    for turns in range(MOST_TURNS):
        tx = broker.transaction()
        await tx.send(topic, b"%d" % turns)
        await cancelled(reactor, tx.commit(), turns)
        await tx.commit()
        values.append(b"%d" % turns)
    await only_rolled_back(reactor, broker, topic, lambda tx: tx.send(topic, b"never"))
    await only_rolled_back(reactor, broker, topic, lambda tx: tx.send_many(topic, [b"never", b"never"]))
    assert [message.value for message in await broker.read(topic, 0, 0)] == values


async def only_rolled_back(reactor, broker, topic, send):
    """A transaction of which a call that sends was cancelled cannot be committed."""
    for turns in count(0):
        broker._producer.forget_route(topic)
        tx = broker.transaction()
        was_through, _ = await cancelled(reactor, send(tx), turns)
        if was_through:
            await tx.rollback()
            break
        try:
            await tx.commit()
        except errors.TransactionRolledBack:
            await tx.rollback()
        else:
            raise AssertionError("committed after a cancelled send")
    assert turns


async def sends(reactor, address, topic):
    """A send that waits for room is not sent when it is cancelled; one that was taken is."""
    async with await connect(address, reactor=reactor, max_buffered=10_000) as broker:
        sending = [broker.send(topic, b"%3d" % number + bytes(2000)) for number in range(100)]
        gone = []
        for number, send in enumerate(sending):
            send.addErrback(
                lambda failure, number=number: failure.trap(CancelledError) and gone.append(number)
            )
            if number > 20 and number % 3 == 0:
                send.cancel()
        assert gone == list(range(21, 100, 3))
        for send in sending:
            await send
        found = [int(message.value[:3]) for message in await broker.read(topic, 0, 0)]
        assert found == [number for number in range(100) if number not in gone]


async def prepares(reactor, broker, topic):
    """A prepare that is cancelled in its block is followed by a roll-back; one that was told stays prepared."""
    for turns in count(0):
        xid = broker.xid(1, uuid.uuid4().hex, "b")
        was_through = False
        try:
            async with broker.transaction(xid) as tx:
                await tx.send(topic, b"never")
                was_through, _ = await cancelled(reactor, tx.prepare(), turns)
                raise RuntimeError
        except RuntimeError:
            await broker.ping()  # behind the roll-back
        prepared = [each.xid for each in await broker.transactions([State.PREPARED])]
        assert prepared == ([xid] if was_through else []), turns
        if was_through:
            await broker.tpc_rollback(xid)
            break
    assert turns
    assert await broker.read(topic, 0, 0) == []


async def positions(reactor, broker, topic):
    """A cancelled commit of positions may have happened, and can be made again."""
    consumer = broker.consume(topic, group=topic)
    for turns in count(0):
        await broker.send(topic, b"")
        (message,) = await consumer.poll(20.0)
        assert message.offset == turns
        was_through, _ = await cancelled(reactor, consumer.commit(), turns)
        await consumer.commit()
        (at,) = await broker.group_offsets(topic)
        assert at.offset == turns + 1
        if was_through:
            break
    assert turns
    consumer.close()


async def closes(reactor, address, topic):
    """A cancelled close leaves nothing, whatever was still to be answered."""
    for turns in count(0):
        broker = await connect(address, reactor=reactor)
        await broker.send(topic, b"")
        sent = broker.send(topic, b"")
        sent.addErrback(lambda failure: failure.trap(errors.TxBrokerError))
        was_through, _ = await cancelled(reactor, broker.close(), turns)
        if was_through:
            break
        await cancelled(reactor, broker.close(), 0)
    assert turns


async def answers(reactor, broker, topic):
    """Many whose answers come together go on some in each turn of the reactor."""
    at_once = [0]

    def counted(receipt):
        at_once[-1] += 1
        return receipt

    def turned():
        at_once.append(0)
        turning.append(reactor.callLater(0, turned))

    await broker.send(topic, b"")
    turning = []
    sends = [broker.send(topic, bytes(4000)).addCallback(counted) for _ in range(5000)]
    turned()
    for send in sends:
        await send
    turning[-1].cancel()
    assert max(at_once) <= 2 * MOST_AT_ONCE, at_once


async def main(reactor):
    address = sys.argv[1]
    for _ in range(3):
        opening = connect(address, reactor=reactor)
        await cancelled(reactor, opening, 1)
    async with await connect(address, reactor=reactor, timeout=20.0) as broker:
        names = [f"t-{uuid.uuid4().hex[:12]}" for _ in range(7)]
        for name in names:
            await broker.create_topic(name)
        await polls(reactor, broker, names[0], await receives(reactor, broker, names[0]))
        await commits(reactor, broker, names[1])
        await sends(reactor, address, names[2])
        await answers(reactor, broker, names[3])
        await prepares(reactor, broker, names[4])
        await positions(reactor, broker, names[5])
        await closes(reactor, address, names[6])
        waiting: Deferred[None] = deferLater(reactor, 0, lambda: None)
        await waiting
        for _ in range(1000):
            sessions = (await broker.status())["sessions"]
            if sessions == 1:
                break
        assert sessions == 1, sessions
    print("ok")


if __name__ == "__main__":
    react(lambda reactor: ensureDeferred(main(reactor)))

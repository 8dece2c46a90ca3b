"""Test the asyncio client beside a model of what its callers were promised, whatever they cancel, and when.

The broker is a real one on a memory file system, at the other end of a cable in the same loop that can be cut. Workers
send, receive in transactions and consume, all at once, and each call is cancelled after a drawn number of turns.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from twisted.internet.testing import StringTransport

from tests.broker.door import Door
from tests.support.thoroughness import examples
from txbroker import errors
from txbroker.client import asyncio as api
from txbroker.client.core import url
from txbroker.client.core.options import Options
from txbroker.client.producer.batch import Batch
from txbroker.server.connections.factory import BrokerFactory

TOPIC = "orders"
MOST_TURNS = 12
"""Turns of the loop within which an operation is through here, unless it waits for another's."""
AT_ONCE = 0.002
"""Seconds that a call waits for messages that may not be there."""


class Connection(api.Connection):
    """At the other end of the cable."""

    def __init__(self, door: Door, **options) -> None:
        self.door = door
        self._line: StringTransport | None = None
        super().__init__(url.parse("tcp:127.0.0.1:1"), Options(client="tester", **options), _loop())

    def _connect(self) -> None:
        self._loop.call_soon(self._open_line)

    def _open_line(self) -> None:
        if self.core.fatal is None:
            self._protocol = BrokerFactory(self.door.connections).buildProtocol(None)
            self._line = StringTransport()
            self._protocol.makeConnection(self._line)
            self._made()

    def _write(self, data: bytes) -> None:
        self._loop.call_soon(self._arrives, self._line, self._protocol, data)

    def _arrives(self, line, protocol, data) -> None:
        if line is self._line:
            protocol.dataReceived(data)
            self._loop.call_soon(self._answer, line)

    def _answer(self, line) -> None:
        self.door.carry()
        answers = line.value()
        line.clear()
        if answers and line is self._line:
            self._loop.call_soon(lambda: self._received(answers) if line is self._line else None)

    def _drop(self) -> None:
        self._loop.call_soon(self.cut)

    def cut(self) -> None:
        """All that is on its way is lost."""
        if self._line is not None:
            self._line = None
            self._protocol.connectionLost()
            self._lost("cable cut")


def _loop():
    return asyncio.get_running_loop()


@dataclass
class Promised:
    """What the log and the groups must hold at the end."""

    acknowledged: dict[int, bytes] = field(default_factory=dict)
    sent: list[bytes] = field(default_factory=list)
    may_be_sent: set[bytes] = field(default_factory=set)
    committed: list[list[bytes]] = field(default_factory=list)
    rolled_back: set[bytes] = field(default_factory=set)
    values: int = 0

    def value(self) -> bytes:
        self.values += 1
        return b"%d" % self.values


async def cancelled(operation, turns):
    """Whether it was through before it was cancelled, and its result. None turns: it is not cancelled."""
    task = asyncio.ensure_future(operation)
    if turns is None:
        return True, await task
    for _ in range(turns):
        if task.done():
            return True, await task
        await asyncio.sleep(0)
    task.cancel()
    try:
        return True, await task
    except asyncio.CancelledError:
        return False, None


class Workers:
    def __init__(self, broker: Connection, promised: Promised) -> None:
        self.broker = broker
        self.promised = promised
        self.passed = {"one": 0, "two": 0}
        self.handed: list[int] = []
        self.consumer = broker.consume(TOPIC, group="three")

    async def send(self, turns) -> None:
        promised, value = self.promised, self.promised.value()
        reply = self.broker.send(TOPIC, value, partition=0)
        is_taken = isinstance(reply._task._awaited, Batch)  # else it waits for room, or to know the topic
        (promised.sent.append if is_taken else promised.may_be_sent.add)(value)
        was_through, receipt = await cancelled(reply, turns)
        if was_through:
            promised.acknowledged[receipt.offset] = value
            promised.may_be_sent.discard(value)

    async def transaction(self, group, steps, ending, turns) -> None:
        """One that receives and sends, and is committed, rolled back or left by an exception."""
        promised, sent, received, is_cut = self.promised, [], 0, False
        tx = self.broker.transaction()
        try:
            for kind, after in steps:
                if kind == "receive":
                    _, message = await cancelled(tx.receive(TOPIC, group=group, timeout=AT_ONCE), after)
                    if message is not None:
                        assert message.offset == self.passed[group] + received
                        received += 1
                else:
                    sent.append(promised.value())
                    was_through, _ = await cancelled(tx.send(TOPIC, sent[-1], partition=0), after)
                    is_cut = is_cut or not was_through
            committed = ending == "commit" and await self._commit(tx, turns)
        except errors.TransactionRolledBack:
            committed = False
        if not committed:
            await cancelled(tx.rollback(), turns)
            if not tx._core.is_over:
                await tx.rollback()
            promised.rolled_back.update(sent)
            return
        assert not is_cut
        self.passed[group] += received
        if sent:
            promised.committed.append(sent)

    async def _commit(self, tx, turns) -> bool:
        was_through, _ = await cancelled(tx.commit(), turns)
        if not was_through:
            await tx.commit()  # how it ended
        return True

    async def consume(self, how, turns) -> None:
        if how == "next":
            turns = MOST_TURNS if turns is None else turns  # there may be none
            _, message = await cancelled(anext(self.consumer), turns)
            messages = [] if message is None else [message]
        else:
            _, messages = await cancelled(self.consumer.poll(AT_ONCE), turns)
        self.handed += [message.offset for message in messages or ()]
        if messages and how == "commit":
            await cancelled(self.consumer.commit(messages[-1]), turns)

    async def run(self, name, steps) -> None:
        for step in steps:
            match step:
                case ("cut",):
                    self.broker.cut()
                case ("send", turns):
                    await self.send(turns)
                case ("consume", how, turns):
                    if name == "one":  # one caller at a time, so that the order of what it gets is known
                        await self.consume(how, turns)
                case ("transaction", inner, ending, turns):
                    await self.transaction(name, inner, ending, turns)


after = st.none() | st.integers(0, MOST_TURNS)
inner = st.tuples(st.sampled_from(["receive", "receive", "send"]), st.none() | after)
steps = st.lists(
    st.one_of(
        st.tuples(st.just("send"), after),
        st.tuples(st.just("consume"), st.sampled_from(["poll", "next", "commit"]), after),
        st.tuples(
            st.just("transaction"),
            st.lists(inner, max_size=4),
            st.sampled_from(["commit", "commit", "rollback"]),
            after,
        ),
        st.just(("cut",)),
    ),
    max_size=8,
)


async def live(first, second, options) -> None:
    door, promised = Door(hello=False), Promised()
    broker = Connection(door, timeout=20.0, **options)
    await broker.run(broker._producer.begin(broker.core.clock() + 20.0))
    workers = Workers(broker, promised)
    await asyncio.gather(workers.run("one", first), workers.run("two", second))
    await broker.flush()
    log = [message.value for message in await broker.read(TOPIC, 0, 0)]
    check_log(log, promised)
    await check_groups(workers, len(log))
    await broker.close()


def check_log(log, promised) -> None:
    """What was promised is there, once and in order, and nothing else is."""
    assert len(log) == len(set(log))
    for offset, value in promised.acknowledged.items():
        assert log[offset] == value
    assert [value for value in log if value in promised.sent] == promised.sent
    for sent in promised.committed:
        first = log.index(sent[0])
        assert log[first : first + len(sent)] == sent
    known = {*promised.sent, *promised.may_be_sent, *promised.acknowledged.values()}
    assert set(log) <= known.union(*promised.committed)
    assert not promised.rolled_back & set(log)


async def check_groups(workers, end) -> None:
    """Each group gets what is left, to the end, and what it has got is without a gap."""
    for group, passed in workers.passed.items():
        async with workers.broker.transaction() as tx:
            for offset in range(passed, end):
                message = await tx.receive(TOPIC, group=group, timeout=20.0)
                assert message.offset == offset
    while len(workers.handed) < end:
        workers.handed += [message.offset for message in await workers.consumer.poll(20.0)]
    assert workers.handed == list(range(end))


@pytest.mark.slow
@given(steps, steps, st.sampled_from([{}, {"max_buffered": 0}]))
@settings(max_examples=examples(150), deadline=None)
def test_whatever_is_cancelled_what_was_promised_holds(first, second, options):
    asyncio.run(live(first, second, options))

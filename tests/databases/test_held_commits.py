"""Test that the commit at the broker goes with the next request, or in time without one, whatever the program does."""

# ruff: noqa: PT012 - a whole block is what raises

import asyncio
import contextlib
import itertools
import math
import os
import sqlite3
import subprocess
import sys
import threading

import pytest

import txbroker
from tests.databases.topic_content import values
from tests.support.repository import ROOT
from tests.support.waiting import eventually
from txbroker import State, errors
from txbroker.client.asyncio import connect
from txbroker.client.blocking import connection as blocking_connection
from txbroker.client.blocking.held_output import PACER
from txbroker.client.core import core as client_core
from txbroker.client.core.promise import start
from txbroker.databases import resolver_thread
from txbroker.databases.asyncio import atomic

pytestmark = pytest.mark.slow

MINUTE = 60.0


@pytest.fixture
def own(shared_broker):
    """A connection of which no other thread has heard: nobody resolves beside it."""
    with txbroker.connect(shared_broker.address, timeout=10.0) as connected:
        connected.resolver = Unresolving(lambda: connected)
        yield connected


class Unresolving(resolver_thread.Background):
    """A resolver that does nothing: what is not sent stays unsent."""

    def watch(self, name, connector):
        self._charges = {name: resolver_thread.Charge(connector)}


@pytest.fixture
def held(monkeypatch):
    """Commits are held for a minute."""
    monkeypatch.setattr(client_core, "HELD", MINUTE)


def block(database, broker, topic, value=b"1", **choices):
    with txbroker.atomic(database, broker, **choices, mode="two-phase") as tx:
        database.execute("INSERT INTO orders VALUES (?)", (int(value),))
        tx.send(topic, value)
    return tx


def prepared(broker, tx):
    return tx.xid in [info.xid for info in broker.transactions([State.PREPARED])]


def test_the_commit_goes_with_the_next_request_of_the_connection(lite, own, broker, topic, held):
    tx = block(lite, own, topic)
    assert tx.outcome is State.COMMITTED
    assert prepared(broker, tx)
    assert own._driver.held_until < math.inf
    own.ping()
    assert values(broker, topic) == [b"1"]


def test_the_commit_goes_with_the_prepare_of_the_next_block_in_one_write(lite, own, broker, topic, held):
    first = block(lite, own, topic)
    second = block(lite, own, topic, b"2")
    assert prepared(broker, second)
    assert not prepared(broker, first)
    own.ping()
    assert values(broker, topic) == [b"1", b"2"]


def test_a_program_that_never_calls_again_has_its_commit_sent_in_time(lite, own, broker, topic):
    block(lite, own, topic)
    eventually(lambda: values(broker, topic) == [b"1"], seconds=5.0)


def test_a_thread_that_ends_has_its_commit_sent_in_time_again_and_again(sqlite, lite, own, broker, topic):
    """Also when the thread that sends it had fallen asleep."""

    def work(number):
        with contextlib.closing(sqlite3.connect(sqlite)) as database:
            block(database, own, topic, b"%d" % number)

    for number in range(5):
        thread = threading.Thread(target=work, args=(number,))
        thread.start()
        thread.join()
        eventually(lambda: len(values(broker, topic)) == number + 1, seconds=5.0)  # noqa: B023 - called at once
        assert own._driver.held_until == math.inf
        own.core._alone_for = 0.0  # as in a row of blocks


def test_it_is_sent_in_time_though_its_thread_had_no_processor_until_the_one_that_sends_it_slept_again(
    lite, own, broker, topic, monkeypatch
):
    def late(operation):
        eventually(lambda: PACER._is_asleep)
        return start(operation)

    monkeypatch.setattr(blocking_connection, "start", late)
    block(lite, own, topic)
    eventually(lambda: values(broker, topic) == [b"1"], seconds=5.0)


def test_a_held_commit_is_in_doubt_for_no_resolver(sqlite, lite, own, broker, topic, held):
    tx = block(lite, own, topic)
    assert prepared(broker, tx)
    with txbroker.Resolver(lambda: sqlite3.connect(sqlite), broker, grace=resolver_thread.GRACE) as resolver:
        assert resolver.resolve().is_quiet
    assert prepared(broker, tx)


def test_who_waits_for_the_commit_has_it_sent_at_once(lite, own, broker, topic, held):
    block(lite, own, topic, wait="commit")
    assert values(broker, topic) == [b"1"]


def test_a_block_that_has_received_has_its_commit_sent_at_once(lite, own, broker, topic, held):
    broker.create_topic(f"{topic}-in")
    broker.send(f"{topic}-in", b"a")
    with txbroker.atomic(lite, own, mode="two-phase") as tx:
        assert tx.receive(f"{topic}-in", group=topic, timeout=10.0).value == b"a"
        tx.send(topic, b"1")
    assert own.core._alone_since == math.inf, "it might have been held"
    eventually(lambda: values(broker, topic) == [b"1"], seconds=5.0)
    eventually(lambda: [at.pending_by for at in broker.group_offsets(topic)] == [""])


def test_a_block_that_finishes_a_message_has_its_commit_sent_at_once(lite, own, broker, topic, held):
    broker.create_topic(f"{topic}-in")
    broker.send(f"{topic}-in", b"a")
    with own.consume(f"{topic}-in", topic) as consumer:
        (message,) = consumer.poll(10.0)
        with txbroker.atomic(lite, own, mode="two-phase") as tx:
            tx.done(message, consumer)
        assert own.core._alone_since == math.inf, "it might have been held"
        eventually(lambda: not prepared(broker, tx), seconds=5.0)


def test_a_rollback_is_sent_at_once(lite, own, broker, topic, held):
    with pytest.raises(ZeroDivisionError), txbroker.atomic(lite, own, mode="two-phase") as tx:
        tx.send(topic, b"1")
        tx._side.transaction.prepare()
        raise ZeroDivisionError
    eventually(lambda: not prepared(broker, tx), seconds=5.0)


def test_a_thread_that_waits_for_the_broker_already_sends_it_at_once(lite, own, broker, topic, held):
    with own.consume(topic, topic) as consumer:
        waiting = threading.Thread(target=consumer.poll, args=(20.0,))
        waiting.start()
        eventually(lambda: own._driver.is_driven)
        block(lite, own, topic)
        eventually(lambda: values(broker, topic) == [b"1"], seconds=5.0)
        waiting.join()


def test_closing_sends_it_first_however_little_time_there_is(lite, own, broker, topic, held):
    block(lite, own, topic)
    own.resolver = None
    own.close(0.0)
    eventually(lambda: values(broker, topic) == [b"1"], seconds=5.0)


def test_a_fork_sends_it_first_and_the_child_has_nothing_of_it(lite, own, broker, topic, held):
    block(lite, own, topic)
    child = os.fork()
    if child == 0:
        held_in_child = own._driver.held_until < math.inf
        os._exit(1 if held_in_child else 0)
    assert os.waitpid(child, 0)[1] == 0
    eventually(lambda: values(broker, topic) == [b"1"], seconds=5.0)


def test_a_fork_does_not_wait_for_ever_for_a_thread_that_has_the_lock(lite, own, broker, topic, held):
    block(lite, own, topic)
    with own._driver.lock:
        child = os.fork()
        if child == 0:
            os._exit(0)
        assert os.waitpid(child, 0)[1] == 0
    own.ping()
    assert values(broker, topic) == [b"1"]


def test_a_child_that_has_blocks_of_its_own_has_them_sent_in_time(
    sqlite, lite, own, shared_broker, broker, topic
):
    """The thread that sends them is its own."""
    block(lite, own, topic)
    eventually(lambda: values(broker, topic) == [b"1"], seconds=5.0)
    child = os.fork()
    if child == 0:
        try:
            with contextlib.closing(sqlite3.connect(sqlite)) as database:
                connection = txbroker.connect(shared_broker.address)
                connection.resolver = Unresolving(lambda: connection)
                block(database, connection, topic, b"2")
                with txbroker.connect(shared_broker.address) as other:
                    eventually(lambda: values(other, topic) == [b"1", b"2"], seconds=5.0)
            os._exit(0)
        except BaseException:  # noqa: BLE001 - told by the status
            os._exit(1)
    assert os.waitpid(child, 0)[1] == 0


def test_it_survives_the_death_of_the_broker_while_it_is_held(lite, mortal_broker, held):
    with txbroker.connect(mortal_broker.address, timeout=10.0) as connection:
        connection.create_topic("t")
        block(lite, connection, "t")
        mortal_broker.kill()
        mortal_broker.start()
        with txbroker.connect(mortal_broker.address) as other:
            eventually(lambda: values(other, "t") == [b"1"])


LEAVES = ["exits", "raises", "ends", "forks", "closes"]


WAYS = [
    *itertools.product(["blocking", "asyncio"], [*LEAVES, "killed"]),
    *itertools.product(["twisted"], ["ends", "closes", "waits", "killed"]),
]


@pytest.mark.parametrize(("face", "way"), WAYS)
def test_a_program_that_leaves_in_order_has_sent_it(sqlite, lite, shared_broker, broker, topic, face, way):
    done = subprocess.run(
        [
            sys.executable,
            "-m",
            "tests.databases.leaving_program",
            sqlite,
            shared_broker.address,
            topic,
            face,
            way,
        ],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        timeout=60.0,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == (1 if way == "raises" else 0), done.stderr
    assert "Traceback" not in done.stderr
    if way == "killed":
        left = broker.transactions([State.PREPARED])[-1]
        with txbroker.Resolver(lambda: sqlite3.connect(sqlite), broker) as resolver:
            assert left.xid in resolver.resolve().committed
    eventually(lambda: values(broker, topic) == [way.encode()], seconds=5.0)


def test_on_a_loop_it_goes_with_the_next_request_or_by_the_loops_timer(
    lite, shared_broker, broker, topic, monkeypatch
):
    async def work():
        async with await connect(shared_broker.address, timeout=10.0) as own:
            own.resolver = Unresolving(lambda: None)
            for number, seconds in enumerate((MINUTE, 0.002)):
                monkeypatch.setattr(client_core, "HELD", seconds)
                async with atomic(lite, own, mode="two-phase") as tx:
                    await tx.send(topic, b"%d" % number)
                if seconds == MINUTE:
                    assert await asyncio.to_thread(prepared, broker, tx)
                    await own.ping()
                expected = [b"0", b"1"][: number + 1]
                await asyncio.to_thread(eventually, lambda: values(broker, topic) == expected, 5.0)  # noqa: B023
            own.resolver = None

    asyncio.run(work())


def test_on_a_loop_an_abort_sends_it_too(lite, shared_broker, broker, topic, held):
    """A close that is cancelled ends so."""

    async def work():
        own = await connect(shared_broker.address, timeout=10.0)
        own.resolver = Unresolving(lambda: None)
        async with atomic(lite, own, mode="two-phase") as tx:
            await tx.send(topic, b"1")
        own._abort()

    asyncio.run(work())
    eventually(lambda: values(broker, topic) == [b"1"], seconds=5.0)


def test_on_a_loop_who_waits_for_the_commit_has_it_sent_at_once(lite, shared_broker, broker, topic, held):
    async def work():
        async with await connect(shared_broker.address, timeout=10.0) as own:
            own.resolver = Unresolving(lambda: None)
            async with atomic(lite, own, wait="commit", mode="two-phase") as tx:
                await tx.send(topic, b"1")
            own.resolver = None

    asyncio.run(work())
    assert values(broker, topic) == [b"1"]


def test_on_a_loop_closing_sends_it_and_waits_until_the_broker_has_read_it(
    lite, shared_broker, broker, topic, held
):
    async def work():
        own = await connect(shared_broker.address, timeout=10.0)
        own.resolver = Unresolving(lambda: None)
        async with atomic(lite, own, mode="two-phase") as tx:
            await tx.send(topic, b"1")
        await own.close()
        return tx

    tx = asyncio.run(work())
    assert not prepared(broker, tx)


def test_whoever_asks_on_the_same_connection_finds_it_decided(lite, own, topic, held):
    tx = block(lite, own, topic)
    assert own.wait_outcome(tx.xid, 5.0) is State.COMMITTED
    with pytest.raises(errors.TransactionCommitted):
        own.end_prepared(tx.xid, commit=False)


def test_the_main_thread_drives_its_blocks_itself_though_a_resolver_shares_the_connection(
    lite, broker, topic
):
    """With another thread that waits, each block costs two changes of threads; a resolver's does not count."""
    block(lite, broker, topic)
    passes = broker.resolver.status.passes
    broker.resolver.hurry()
    eventually(lambda: broker.resolver.status.passes > passes and not broker.resolver.status.unacknowledged)
    block(lite, broker, topic, b"2")
    assert broker._driver._thread is None
    assert values(broker, topic) == [b"1", b"2"]
    waiting = threading.Thread(target=broker.ping)
    waiting.start()
    waiting.join()
    block(lite, broker, topic, b"3", wait="commit")
    assert broker._driver._thread is not None, "a thread of the program counts"

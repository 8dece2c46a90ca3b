"""Test that a transaction's block is not inside of another one of the same task or thread; other tasks' blocks are
separate.

Seen at 45bb991: the inner block committed what was to be rolled back with the outer one.
"""

import asyncio
import contextlib
import subprocess
import sys
import threading

import pytest

import txbroker
from tests.client.scripted_broker import ScriptedServer
from tests.support.repository import PACKAGES, ROOT
from txbroker import errors
from txbroker.client import asyncio as asyncio_client

REFUSED = r"open around this block already.*another connection.*nothing was begun$"


@pytest.fixture
def server(broker):
    server = ScriptedServer(broker)
    yield server
    server.close()


@pytest.fixture
def connection(server):
    with txbroker.connect(server.url, timeout=5.0) as connection:
        yield connection


def test_an_inner_block_is_refused_and_the_outer_one_goes_on(connection, broker):
    with connection.transaction() as outer:
        outer.send("t", b"a")
        with pytest.raises(errors.Misuse, match=REFUSED), connection.transaction():
            raise AssertionError("it was begun")
        outer.send("t", b"b")
    assert broker.values(1) == [b"a", b"b"]


def test_what_an_inner_block_was_to_send_is_not_committed_without_the_outer_one(connection, broker):
    def work():
        with connection.transaction() as outer:
            outer.send("t", b"outer")
            with connection.transaction() as inner:
                inner.send("t", b"inner")

    with pytest.raises(errors.Misuse, match=REFUSED):
        work()
    assert broker.values(1) == []


@pytest.mark.parametrize("how", ["commit", "error", "refused"])
def test_one_after_the_other_is_no_nesting_however_the_first_ended(connection, broker, how):
    def first():
        with connection.transaction() as tx:
            if how == "refused":
                tx.send("t", "text")
            if how == "error":
                raise KeyError("mine")

    with pytest.raises((KeyError, errors.WrongType)) if how != "commit" else connection.transaction():
        first() if how != "commit" else None
    with connection.transaction() as tx:
        tx.send("t", b"next")
    assert broker.values(1) == [b"next"]


def test_the_same_transaction_is_not_entered_twice(connection):
    with connection.transaction() as tx, pytest.raises(errors.Misuse, match=REFUSED):
        tx.__enter__()


def interrupt_at(name, when="call"):
    """Have a Ctrl-C come where the next function of that name begins, or behind the last call in it."""

    def trace(frame, what, argument):
        if frame.f_code.co_name == name and "transaction" in frame.f_code.co_filename and what == when:
            sys.settrace(None)
            raise KeyboardInterrupt
        return trace

    sys.settrace(trace)


@pytest.mark.parametrize(
    ("at", "when"), [("__enter__", "call"), ("_enter_block", "call"), ("_keep", "call"), ("_keep", "return")]
)
def test_a_block_that_is_interrupted_at_its_beginning_is_not_around_the_next(connection, broker, at, when):
    tx = connection.transaction()
    interrupt_at(at, when)
    with pytest.raises(KeyboardInterrupt), tx:
        raise AssertionError("it was begun")
    with connection.transaction() as other:
        other.send("t", b"other")
    tx.send("t", b"goes on")
    tx.commit()
    assert broker.values(1) == [b"other", b"goes on"]


@pytest.mark.parametrize("at", ["__exit__", "_leave_block", "_keep"])
def test_a_block_that_is_interrupted_at_its_end_is_not_around_the_next_at_the_same_place(
    connection, broker, at
):
    begun = []

    def work():
        for value in (b"left", b"next"):
            try:
                with connection.transaction() as tx:
                    begun.append(tx)
                    tx.send("t", value)
                    if value == b"left":
                        interrupt_at(at)
            except KeyboardInterrupt:
                assert value == b"left"

    work()
    assert broker.values(1) == [b"next"]
    with pytest.raises(errors.Misuse, match="rolled back"):
        begun[0].send("t", b"more")


def test_a_block_that_is_interrupted_at_its_end_is_not_around_others_once_its_function_is_over(
    connection, broker
):
    def left():
        with connection.transaction() as tx:
            tx.send("t", b"left")
            interrupt_at("__exit__")

    with pytest.raises(KeyboardInterrupt) as interrupted:
        left()
    with pytest.raises(errors.Misuse, match=REFUSED), connection.transaction():
        raise AssertionError("it was begun")
    del interrupted  # with the frames in its traceback
    with connection.transaction() as tx:
        tx.send("t", b"next")
    assert broker.values(1) == [b"next"]


@pytest.mark.slow
def test_a_helpers_blocks_are_around_each_other_too(connection, broker):
    @contextlib.contextmanager
    def helper():
        with connection.transaction() as tx:
            yield tx

    with contextlib.ExitStack() as stack:
        stack.enter_context(helper()).send("t", b"outer")
        with pytest.raises(errors.Misuse, match=REFUSED):
            stack.enter_context(helper())
    with contextlib.ExitStack() as stack:
        for place in range(3):
            with pytest.raises(errors.Misuse, match=REFUSED) if place else contextlib.nullcontext():
                stack.enter_context(connection.transaction()).send("t", b"stacked")
    assert broker.values(1) == [b"outer", b"stacked"]


def test_another_thread_has_a_block_of_its_own_on_the_connection(connection, broker):
    def work():
        with connection.transaction() as tx:
            tx.send("t", b"thread")

    with connection.transaction() as tx:
        tx.send("t", b"main")
        thread = threading.Thread(target=work)
        thread.start()
        thread.join(5)
        assert broker.values(1) == [b"thread"]
    assert broker.values(1) == [b"thread", b"main"]


def test_another_connection_may_be_used_inside(connection, server, broker):
    with txbroker.connect(server.url) as other, connection.transaction() as outer:
        with other.transaction() as inner:
            inner.send("t", b"log")
        outer.send("t", b"work")
    assert broker.values(1) == [b"log", b"work"]


def test_on_asyncio_tasks_have_blocks_of_their_own_also_those_begun_inside_of_one(broker, server):
    async def one(connection, value):
        async with connection.transaction() as tx:
            await tx.send("t", value)
            await asyncio.sleep(0)

    async def main():
        async with await asyncio_client.connect(server.url) as connection:
            await asyncio.gather(one(connection, b"a"), one(connection, b"b"))
            async with connection.transaction():
                await asyncio.create_task(one(connection, b"c"))
                with pytest.raises(errors.Misuse, match=REFUSED):
                    await one(connection, b"refused")
            await one(connection, b"d")

    asyncio.run(main())
    values = broker.values(1)
    assert (sorted(values[:2]), values[2:]) == ([b"a", b"b"], [b"c", b"d"])


TWISTED = """
import sys
from twisted.internet.defer import Deferred, gatherResults
from twisted.internet.task import react
from txbroker import errors
from txbroker.client import twisted as client

async def one(connection, value):
    async with connection.transaction() as tx:
        await tx.send("t", value)
        await connection.ping()

async def main(reactor):
    connection = await client.connect(sys.argv[1], reactor=reactor, timeout=5.0)
    await gatherResults([Deferred.fromCoroutine(one(connection, each)) for each in (b"a", b"b")])
    async with connection.transaction():
        try:
            await one(connection, b"refused")
        except errors.Misuse:
            print("refused")
    await one(connection, b"d")
    await connection.close()

react(lambda reactor: Deferred.fromCoroutine(main(reactor)))
"""


@pytest.mark.slow
def test_on_twisted_coroutines_have_blocks_of_their_own(broker, server, tmp_path):
    script = tmp_path / "blocks.py"
    script.write_text(TWISTED)
    ran = subprocess.run(
        [sys.executable, str(script), server.url], cwd=ROOT, capture_output=True, text=True, timeout=60, check=False,
        env={"PYTHONPATH": PACKAGES},
    )  # fmt: skip
    assert (ran.stdout.split(), ran.stderr) == (["refused"], "")
    assert (sorted(broker.values(1)[:2]), broker.values(1)[2:]) == ([b"a", b"b"], [b"d"])

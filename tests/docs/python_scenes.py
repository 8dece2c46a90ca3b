"""The scenes of Python blocks: the names that the text around a block takes for granted.

A scene is a generator: it gets pytest's request, and yields, for each block of its page in their order, what runs the
block. What is behind a ``yield`` looks whether the block has done what its page says.
"""

from __future__ import annotations

import ast
import asyncio
import contextlib
import inspect
import os
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any
from unittest.mock import patch

import psycopg
import pytest

import txbroker
from tests.databases.topic_content import values
from tests.docs.blocks import Block
from tests.support.broker_process import BrokerProcess
from tests.support.repository import ROOT
from tests.support.waiting import eventually
from txbroker.drill.broker.broker_process import free_port

DOCUMENTED_ADDRESS = "tcp:127.0.0.1:7654"
Runs = Callable[[Block], None]


class Enough(Exception):
    """Ends an example that goes on for ever."""


def times(number: int, ends: type[BaseException] = Enough) -> tuple[list[Any], Callable[..., None]]:
    """A list, and a function that puts there what it is called with, and ends the example at the last call."""
    calls: list[Any] = []

    def call(*arguments: Any) -> None:
        calls.append(arguments)
        if len(calls) == number:
            raise ends

    return calls, call


def running(address: str, names: dict[str, Any], ends: type[BaseException] | None = None) -> Runs:
    """Run a block with these names, against the broker at the address; it must end with that exception, if any."""

    def run(block: Block) -> None:
        text = block.text.replace(DOCUMENTED_ADDRESS, address)
        code = compile(text, block.place, "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
        with pytest.raises(ends) if ends else contextlib.nullcontext():
            work = eval(code, names)
            if inspect.iscoroutine(work):
                asyncio.run(work)

    return run


def on_reactor(address: str, before: str = "", after: str = "") -> Runs:
    """Run a block in a process of its own, in a coroutine on Twisted's reactor; ``after`` ends it."""

    def run(block: Block) -> None:
        body = block.text.replace(DOCUMENTED_ADDRESS, address) + after
        text = "from twisted.internet import defer, task\n" + before
        text += "async def main(reactor):\n" + "".join(f"    {line}\n" for line in body.splitlines())
        text += "task.react(lambda reactor: defer.Deferred.fromCoroutine(main(reactor)))\n"
        subprocess.run([sys.executable, "-W", "error", "-c", text], cwd=ROOT, check=True, timeout=60)

    return run


@contextlib.contextmanager
def with_tables(database: Any) -> Iterator[Any]:
    """A connection to a database that has the tables of the examples."""
    txbroker.create_decision_table(database)
    database.execute("CREATE TABLE orders (number INTEGER, state TEXT DEFAULT 'new')")
    database.execute("CREATE TABLE invoices (number INTEGER)")
    database.commit()
    with contextlib.closing(database):
        yield database


def numbers(database: Any, table: str = "orders") -> list[int]:
    found = [
        number for (number,) in database.execute(f"SELECT number FROM {table} ORDER BY number").fetchall()
    ]
    database.rollback()
    return found


def readme(request: Any, address: str, broker: Any) -> Iterator[Runs]:
    names: dict[str, Any] = {}
    yield running(address, names)
    with contextlib.closing(names["database"]) as database:
        assert database.execute("SELECT * FROM orders").fetchall() == [(42, "billed")]
    assert names["message"].value == b"order 42"
    printed, show = times(4, KeyboardInterrupt)
    broker.delete_group("billing")
    yield running(address, {"print": show}, KeyboardInterrupt)
    assert sorted(value for *_, value in printed) == [b"one", b"order 42", b"three", b"two"]
    yield running(address, names)
    with contextlib.closing(names["broker"]):
        assert names["broker"].outcome(names["xid"]).state == txbroker.State.COMMITTED
    printed, show = times(2)
    yield running(address, {"print": lambda *each: printed.extend(each)})
    assert printed == [[b"one", b"two", b"three"]]


def description(request: Any, address: str, broker: Any) -> Iterator[Runs]:
    scene = readme(request, address, broker)
    yield next(scene)
    yield next(scene)


def outbox(request: Any, address: str, broker: Any) -> Iterator[Runs]:
    broker.create_topic("orders")
    with with_tables(request.getfixturevalue("postgresql").connect()) as database:
        yield running(address, {"txbroker": txbroker, "database": database, "broker": broker})
        eventually(lambda: values(broker, "orders") == [b"..."])
        assert numbers(database) == [42]


def atomic(request: Any, address: str, broker: Any) -> Iterator[Runs]:
    broker.create_topic("orders")
    broker.create_topic("invoices")
    postgresql = request.getfixturevalue("postgresql")
    with with_tables(postgresql.connect()) as database:
        names = {"txbroker": txbroker, "database": database, "broker": broker}
        yield running(address, names)
        eventually(lambda: values(broker, "orders") == [b"..."])
        assert numbers(database) == [42]
        yield running(address, names)
        eventually(lambda: values(broker, "invoices") == [b"..."])
        assert numbers(database, "invoices") == [42]

        def in_asyncio(block: Block) -> None:
            async def run() -> None:
                async with await psycopg.AsyncConnection.connect(postgresql.url) as connection:
                    code = compile(
                        block.text.replace(DOCUMENTED_ADDRESS, address),
                        block.place,
                        "exec",
                        flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT,
                    )
                    await eval(code, {"database": connection})

            asyncio.run(run())

        yield in_asyncio
        assert numbers(database) == [42, 42]
        pool = f"from twisted.enterprise import adbapi\npool = adbapi.ConnectionPool('psycopg', {postgresql.url!r})\n"
        opening = f"from txbroker.client.twisted import connect\nbroker = await connect({address!r})\n"
        run = on_reactor(address, after="await done\nawait broker.close()\npool.close()\n")
        yield lambda block: run(block._replace(text=pool + opening + block.text))
        assert numbers(database) == [42, 42, 42]
        eventually(lambda: values(broker, "orders") == [b"..."] * 3)


def clients(request: Any, address: str, broker: Any) -> Iterator[Runs]:
    for topic in ("orders", "payments", "invoices"):
        broker.create_topic(topic)
    bodies = [b"%d" % number for number in range(10)]
    worked, work = times(12)
    yield running(address, {"bodies": bodies, "work": work}, Enough)
    assert worked == [(b"...",), *((body,) for body in bodies), (b"...",)]
    assert values(broker, "payments") == [b"..."]
    worked, work = times(11)
    yield running(address, {"bodies": bodies, "work": work}, Enough)
    assert len(values(broker, "orders")) == 23
    yield on_reactor(address, after="await broker.close()\n")
    assert values(broker, "orders")[-1] == b"..."
    yield running(address, {"broker": broker})
    [waits] = broker.list_scheduled("reminders")
    assert (waits.state, waits.clock) == ("waits", "wall"), "the other one was taken back"
    yield running(address, {"broker": broker})
    assert {each.name: each.messages for each in broker.queues()} == {"mail": 3, "warehouse": 0, "failed": 0}
    with txbroker.connect(address) as receiving:  # it leaves the group, which a later block reads for
        yield running(address, {"broker": receiving, "invoice_for": lambda value: b"for " + value})
    assert values(broker, "invoices")[0].startswith(b"for ")
    handled, handle = times(3)
    for _ in range(4):
        broker.send("orders", b"more")
    with txbroker.connect(address) as reading:
        yield running(address, {"broker": reading, "handle": handle}, Enough)
    assert len({message.offset for (message,) in handled}) == 3
    drawn: list[Any] = []
    shown, show = times(1)
    yield running(address, {"broker": broker, "draw": drawn.append, "show": show}, Enough)
    assert len(shown) == 1
    assert {message.topic for message in drawn} == {"orders", "payments"}
    with broker.consume("orders", "seeking") as consumer:
        consumer.poll(5.0)
        yield running(address, {"consumer": consumer})
        assert next(consumer).offset == 12
    yield from clients_that_fail(address, broker)
    worked, work = times(3)
    for _ in range(3):
        broker.send("orders", b"late")
    yield running(address, {"broker": broker, "work": work}, Enough)
    assert len(worked) == 3


def clients_that_fail(address: str, broker: Any) -> Iterator[Runs]:
    """The blocks about messages that are tried again, policies, and dead letters."""
    broker.create_topic("refunds")
    for _ in range(3):
        broker.send("refunds", b"")
    yield running(address, {"broker": broker})
    assert broker.describe_group("express-refunds").tags == ("express",)
    _, handled = times(2, KeyboardInterrupt)

    def handle(message: txbroker.Message) -> None:
        if message.offset == 0:
            raise ConnectionError("no database")
        handled(message)

    with broker.consume("refunds", "refunding", order=None) as consumer:
        yield running(address, {"consumer": consumer, "handle": handle}, KeyboardInterrupt)
        (parked,) = broker.parked("refunding")
    assert (parked.offset, parked.attempts, parked.why) == (0, 1, "no database")
    names: dict[str, Any] = {"broker": broker}
    yield running(address, names)
    with names["consumer"] as consumer:
        consumer.poll(0.1)
    assert broker.describe_group("refunding").retry == txbroker.RetryPolicy()
    broker.create_topic("returns")
    for number in range(3):
        broker.send("returns", b"%d" % number)
    _, accepted = times(2, KeyboardInterrupt)

    def accept(message: txbroker.Message) -> None:
        if message.offset == 0:
            raise ValueError("not ours")
        accepted(message)

    with broker.consume("returns", "returning", order=None) as consumer:
        yield running(address, {"consumer": consumer, "handle": accept}, KeyboardInterrupt)
    eventually(lambda: any(topic.name == "returns.dead" for topic in broker.topics()))
    eventually(lambda: values(broker, "returns.dead") == [b"0"])


def coordinator(request: Any, address: str, broker: Any) -> Iterator[Runs]:
    postgresql = request.getfixturevalue("postgresql_two_phase")
    other = BrokerProcess(request.getfixturevalue("tmp_path") / "audit")
    with other, with_tables(postgresql.connect()) as database, txbroker.connect(other.address) as audit:
        broker.create_topic("orders")
        audit.create_topic("audit")
        names = {"DSN": postgresql.url, "ORDERS": address, "AUDIT": other.address, "database": database}
        names |= {"orders": broker, "audit": audit}
        yield running(address, names)
        assert (values(broker, "orders"), values(audit, "audit")) == ([b"..."], [b"..."])
        assert numbers(database) == [42]
        with contextlib.closing(names["coordinator"]):
            yield running(address, names)
        assert values(broker, "orders") == [b"..."] * 2
        assert numbers(database) == [42, 42]


def working_until(address: str, holds: Callable[[], Any], names: dict[str, Any]) -> Runs:
    """Run a block with these names in a thread, and stop its worker when something holds."""

    def run(block: Block) -> None:
        made: list[Any] = []
        work = txbroker.Connection.work

        def noted(*arguments: Any, **choices: Any) -> Any:
            made.append(work(*arguments, **choices))
            return made[-1]

        with patch.object(txbroker.Connection, "work", noted), ThreadPoolExecutor(1) as pool:
            ended = pool.submit(running(address, names), block)
            eventually(lambda: holds() or ended.done())
            made[0].stop()
            ended.result()

    return run


def workers(request: Any, address: str, broker: Any) -> Iterator[Runs]:
    broker.create_topic("orders")
    broker.create_topic("invoices")
    for number in range(3):
        broker.send("orders", b"order", key=b"%d" % number)
    printed: list[Any] = []
    yield working_until(address, lambda: len(printed) == 3, {"print": lambda *words: printed.append(words)})
    assert sorted(key for _, key, _ in printed) == [b"0", b"1", b"2"]
    broker.delete_group("billing")
    with with_tables(sqlite3.connect("shop.db")) as database:
        yield working_until(address, lambda: values(broker, "invoices") == [b"invoice"] * 3, {})
        assert numbers(database, "invoices") == [0, 1, 2]
    broker.send("orders", b"poison", key=b"3")
    yield working_until(address, lambda: broker.parked("billing"), {})
    (parked,) = broker.parked("billing")
    assert (parked.attempts, parked.why) == (1, "ValueError: cannot be billed, attempt 1")
    assert broker.describe_group("billing").retry == txbroker.RetryPolicy()

    def until_all_are_there(block: Block) -> None:
        async def run() -> None:
            text = block.text.replace(DOCUMENTED_ADDRESS, address)
            code = compile(text, block.place, "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
            working = asyncio.create_task(eval(code, {}))
            while len(values(broker, "invoices")) < 7:
                await asyncio.sleep(0.01)
            working.cancel()
            await asyncio.wait([working])

        asyncio.run(run())

    yield until_all_are_there


def amqp(request: Any, address: str, broker: Any) -> Iterator[Runs]:
    tmp_path, port = request.getfixturevalue("tmp_path"), free_port()

    names: dict[str, Any] = {}

    def run(block: Block) -> None:
        eval(compile(block.text.replace("5672", str(port)), block.place, "exec"), names)
        assert names["body"] == b"order 42"

    def delay(block: Block) -> None:
        pika = names["pika"]
        url = pika.URLParameters(f"amqp://guest:guest@127.0.0.1:{port}/")
        with contextlib.closing(pika.BlockingConnection(url)) as connection:
            eval(compile(block.text, block.place, "exec"), names | {"channel": connection.channel()})

    with (
        BrokerProcess(tmp_path / "amqp", f"listen_amqp=tcp:{port}:interface=127.0.0.1") as process,
        txbroker.connect(process.address) as beside,
    ):
        yield run
        [orders] = beside.queues("orders")
        eventually(lambda: next(iter(beside.queues("orders"))).messages == 0)
        assert orders.settings.durable
        yield delay
        eventually(lambda: len(list(beside.list_scheduled(exchange="later"))) == 1)


def celery(request: Any, address: str, broker: Any) -> Iterator[Runs]:
    tmp_path, port = request.getfixturevalue("tmp_path"), free_port()
    with BrokerProcess(tmp_path / "amqp", f"listen_amqp=tcp:{port}:interface=127.0.0.1") as process:
        told = {**os.environ, "PYTHONPATH": os.pathsep.join([str(tmp_path), str(ROOT)])}

        def write(name: str) -> Runs:
            def run(block: Block) -> None:
                text = block.text.replace(DOCUMENTED_ADDRESS, process.address).replace("5672", str(port))
                (tmp_path / name).write_text(text)

            return run

        yield write("shop.py")
        yield write("web.py")
        subprocess.run([sys.executable, "web.py"], cwd=tmp_path, env=told, check=True, timeout=60)
        words = [sys.executable, "-m", "celery", "-A", "shop", "worker", "-c", "1", "--without-gossip"]
        with (
            (tmp_path / "worker.log").open("w+") as log,
            subprocess.Popen(words, cwd=tmp_path, env=told, stdout=log, stderr=log) as worker,
        ):
            try:
                eventually(lambda: "bill for order 42" in (tmp_path / "worker.log").read_text())
            finally:
                worker.terminate()
                worker.wait(30)
        assert sqlite3.connect(tmp_path / "shop.db").execute("SELECT * FROM bills").fetchall() == [(42,)]


SCENES: dict[str, Callable[[Any, str, Any], Iterator[Runs]]] = {
    "README.md": readme,
    "packaging/description.md": description,
    "docs/amqp.md": amqp,
    "docs/atomic.md": atomic,
    "docs/celery.md": celery,
    "docs/clients.md": clients,
    "docs/coordinator.md": coordinator,
    "docs/workers.md": workers,
    "docs/outbox.md": outbox,
}

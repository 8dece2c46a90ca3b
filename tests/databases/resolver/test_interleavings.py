"""Test every order of the steps of a program, which may die, and of a resolver: a row and a message, or neither."""

import contextlib
import shutil
import sqlite3
import tempfile
from pathlib import Path

import pytest

import txbroker
from demo.postgresql import PostgresqlServer
from tests.databases.adapters.mariadb import MariadbServer
from tests.databases.fixtures import running
from tests.databases.resolver import step_scene
from tests.databases.resolver.step_scene import ListingFirst, LookingOnly, Program, Steps, schedules, settle

pytestmark = pytest.mark.slow


SERVERS = {"postgresql": PostgresqlServer, "mariadb": MariadbServer}


@pytest.fixture(scope="module", params=["sqlite", *SERVERS])
def connect(request):
    """Opens connections to a real database on a disk of memory: forces cost nothing there, and there are thousands."""
    folder = Path(tempfile.mkdtemp(prefix="txbroker-db-", dir="/dev/shm"))
    if request.param == "sqlite":
        yield lambda: sqlite3.connect(folder / "numbers.sqlite", timeout=0.0)
        shutil.rmtree(folder)
    else:
        with running(SERVERS[request.param](folder)) as server:
            yield server.create_database().connect


@pytest.fixture
def room(request, connect, broker, topic):
    with contextlib.closing(connect()) as database:
        cursor = database.cursor()
        cursor.execute("DROP TABLE IF EXISTS numbers")
        cursor.execute("DROP TABLE IF EXISTS txbroker_decision")
        cursor.execute("DROP TABLE IF EXISTS txbroker_identity")
        cursor.execute("CREATE TABLE numbers (number INTEGER)")
        cursor.close()
        database.commit()
        txbroker.create_decision_table(database)
    kind = request.node.callspec.params["connect"]
    return Room(kind, connect, broker, topic)


class Room:
    def __init__(self, kind, connect, broker, topic):
        self.kind = kind
        self.connect, self.broker, self.topic = connect, broker, topic
        self.spare: list[object] = []
        self.orders: dict[int, list[tuple[str, str]]] = {}
        self.left: list[str] = []

    def play(self, steps_of=Steps, chosen=1):
        """Play every ``chosen``-th order; return what went wrong: {number: order}."""
        resolver = txbroker.Resolver(self.connect, self.broker, lock_timeout=0.02)
        try:
            for number, order in enumerate(schedules()):
                if number % chosen == 0:
                    self.orders[number] = order
                    self.play_one(resolver, number, order, steps_of)
        finally:
            resolver.close()
            for connection in self.spare:
                connection.close()
            self.spare.clear()
        return self.wrong()

    def play_one(self, resolver, number, order, steps_of):
        program = Program(self.spare.pop() if self.spare else self.connect(), self.broker, self.topic, number)
        steps = steps_of(resolver, lambda: program.deciding.xid)
        try:
            for who, name in order:
                if who == "resolver":
                    steps.step(name)
                elif name == "die":
                    program.die()
                else:
                    program.step(name)
        finally:
            if (
                program.connection is not None
            ):  # it lives on, with its connection, which the next one may have
                program.end()
                self.spare.append(program.connection)
        settle(resolver)

    def wrong(self):
        with contextlib.closing(self.connect()) as database:
            cursor = database.cursor()
            cursor.execute("SELECT number FROM numbers")
            rows = [number for (number,) in cursor.fetchall()]
            cursor.execute("SELECT xid FROM txbroker_decision")
            self.left = [key for (key,) in cursor.fetchall()]
            cursor.close()
        messages, offset = [], 0
        while found := self.broker.read(self.topic, 0, offset):
            messages += [int(message.value) for message in found]
            offset = found[-1].offset + 1
        assert len(set(messages)) == len(messages), "a message came twice"
        assert len(set(rows)) == len(rows)
        assert messages, "no order of steps came to a commit: nothing was tested"
        assert len(messages) < len(self.orders), "all came to a commit: nothing was tested"
        return {number: self.orders[number] for number in set(rows) ^ set(messages)}


@pytest.mark.parametrize("share", ["some", pytest.param("all", marks=pytest.mark.deep)])
def test_every_order_gives_both_or_neither(room, share):
    """All of them on SQLite; where each connection is a process's birth and death, or a thread's, some."""
    few = 1 if share == "all" or room.kind == "sqlite" else 5
    assert room.play(chosen=few) == {}
    assert room.left == []
    assert len(room.orders) == -(-1253 // few)


def test_a_resolver_that_only_looks_would_be_found_out(room):
    wrong = room.play(LookingOnly, chosen=7)
    assert wrong, "these orders cannot tell a right resolver from a wrong one"
    assert len(room.left) == len(wrong), "a row of each stays, marked as contradicted"
    for (
        order
    ) in wrong.values():  # it looked while the program's transaction was open, and the program committed
        assert order.index(("resolver", "decide")) < order.index(("program", "commit"))


def test_a_sweeper_that_asks_the_broker_first_would_be_found_out(room):
    assert room.play(ListingFirst, chosen=7), "these orders cannot tell a right sweeper from a wrong one"


def test_every_order_is_there_once():
    orders = [tuple(order) for order in schedules()]
    assert len(set(orders)) == len(orders) == 1253
    assert {order[0] for order in orders} == {("program", "begin"), ("resolver", "list"), ("program", "die")}
    assert step_scene.RESOLVER[0] == "list"

"""Test exceptions raised in blocks that leave their messages in the database: one at each line, as by a signal."""

import contextlib
import sqlite3

import pytest

import txbroker
from tests.databases.deaths.test_interrupts import Shop, at_every_line
from tests.databases.orders import make_tables, opener
from tests.databases.outbox.scene import all_of, rows_of
from tests.support.interrupted import INTERRUPTED
from tests.support.waiting import eventually
from txbroker import State
from txbroker.databases import open_blocks

pytestmark = INTERRUPTED


class OutboxShop(Shop):
    """Orders whose messages travel in the database.

    Those of one connection arrive in their order; one of which it is not known whether it has committed comes later.
    """

    def __init__(self, path, broker, topic):
        super().__init__(path, broker, topic)
        self.connections = 0
        self.connection_of: dict[int, int] = {}

    def block(self):
        return txbroker.atomic(self.database, self.broker, mode="outbox")

    def work(self, tx):
        number = super().work(tx)
        self.connection_of[number] = self.connections
        return number

    def ready(self):
        before = self.database
        super().ready()
        self.connections += self.database is not before

    def arrived(self):
        return all_of(self.broker, self.topic)

    def check(self):
        """Rows and messages are the same, as each block has said, and nothing is left anywhere."""
        self.ready()
        rows = self.rows()
        with txbroker.Resolver(opener(self.path), self.broker) as resolver:
            resolver.resolve()
        eventually(lambda: len(self.arrived()) >= len(rows))
        found = self.arrived()
        assert sorted(found) == rows
        for connection in range(self.connections + 1):
            mine = [
                number
                for number in found
                if self.connection_of[number] == connection and self.known[number] is not State.PREPARED
            ]
            assert mine == sorted(mine)
        for number, outcome in self.known.items():
            if outcome is not State.PREPARED:
                assert (number in rows) == (outcome is State.COMMITTED), number
        eventually(lambda: not rows_of(opener(self.path)))
        assert not self.broker.transactions()
        eventually(lambda: self.broker.resolver.status.undelivered == 0)
        assert {entry for entry in open_blocks._in_block.values() if entry.progress is not None} == set()


@pytest.fixture
def shop(sqlite, broker, topic):
    with contextlib.closing(sqlite3.connect(sqlite)) as database:
        make_tables(database)
    made = OutboxShop(sqlite, broker, topic)
    yield made
    made.database.close()


def in_one_with(shop, at):
    """The same ``with`` again, whose variable has the interrupted block yet."""
    number = None
    for again in (False, True):
        trap = contextlib.nullcontext() if again else at
        if again:
            shop.ready()
        with trap, shop.block() as tx:
            number = shop.work(tx)
        if number is not None:
            shop.told(number, tx)
        number = None
    assert tx.outcome is State.COMMITTED, at.raised


def in_functions(shop, at):
    """A function for each: nobody has the interrupted block."""

    def block():
        with shop.block() as tx:
            shop.work(tx)
        return tx

    with at:
        first = len(shop.known)
        tx = block()
        shop.told(first, tx)
    shop.ready()
    assert block().outcome is State.COMMITTED, at.raised


def rolled_back_by_hand(shop, at):
    """The interrupted block is held; whoever has caught the interrupt rolls the connection back."""
    with at, shop.block() as tx:
        shop.work(tx)
    shop.ready()
    shop.database.rollback()
    with shop.block() as another:
        shop.work(another)
    assert another.outcome is State.COMMITTED, (at.raised, tx)


WAYS = [in_one_with, in_functions, rolled_back_by_hand]


@pytest.mark.parametrize("way", WAYS)
def test_after_an_interrupted_block_rows_and_messages_agree_and_the_next_one_goes_on(shop, way):
    at_every_line(lambda at: way(shop, at))
    shop.check()


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize(
    ("second", "step"),
    [pytest.param(range(1, 60), 7, marks=pytest.mark.deep), ((1, 2, 3, 5, 8, 13, 21, 34), 61)],
)
def test_a_second_interrupt_does_not_keep_the_first_from_being_healed(shop, way, second, step):
    """The second one comes 1, 2, ... lines after the first, amid the clean-up."""
    for after in second:
        at_every_line(lambda at: way(shop, at), step, 1 + after % step, after)
    shop.check()

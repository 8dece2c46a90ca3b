"""Test how long a resolver's pass waits for programs that hang between prepare and COMMIT: once, not once for each."""

import contextlib
import itertools
import sqlite3
import time
import types

import pytest

import txbroker
from tests.databases.orders import execute, make_tables, opener
from txbroker.databases import resolver as resolving
from txbroker.databases.adapters.database import COMMITTED
from txbroker.databases.tables import xids
from txbroker.databases.tables.decision_table import WAITING

pytestmark = pytest.mark.slow

HANGING = 30
PATIENCE = 1.0
"""Seconds; MariaDB knows whole ones only."""


class Scene:
    """Transactions that are prepared at the broker, and a connection that has inserted rows and hangs."""

    def __init__(self, open_database, broker, topic):
        self.open_database, self.broker, self.topic = open_database, broker, topic
        with contextlib.closing(open_database()) as database:
            make_tables(database)
            self.table = txbroker.create_decision_table(database)
        self.hanging = open_database()
        self._numbers = itertools.count()

    def prepared(self, count, hanging):
        """So many more; the rows of those that hang are inserted, and not committed."""
        found = [xids.make(self.table, f"n{next(self._numbers)}", self.broker.identity) for _ in range(count)]
        for xid in found:
            transaction = self.broker.transaction(xid)
            transaction.send(self.topic, b"1")
            transaction.prepare()
            if hanging:
                execute(
                    self.hanging,
                    "INSERT INTO txbroker_decision (xid, decision, broker) VALUES "
                    f"('{xids.row_key(xid)}', '{COMMITTED}', '{self.broker.identity}')",
                )
        return found


class Noting(txbroker.Resolver):
    """Notes what it has looked at, in which order, and what came of it."""

    def __init__(self, *arguments, **options):
        super().__init__(*arguments, **options)
        self.looked = []

    def decide(self, xid, patience=None):
        self.looked.append(xid)
        return super().decide(xid, patience)


@pytest.fixture(params=["postgresql", "mariadb"])
def scene(request, broker, topic):
    found = Scene(opener(request.getfixturevalue(request.param)), broker, topic)
    yield found
    found.hanging.rollback()
    found.hanging.close()
    with txbroker.Resolver(found.open_database, broker) as resolver:
        assert resolver.resolve().waiting == []


def timed(resolver):
    begun = time.monotonic()
    return resolver.resolve(), time.monotonic() - begun


def test_programs_that_hang_do_not_delay_the_healing_of_the_others(scene, broker):
    hanging = scene.prepared(HANGING, hanging=True)
    healthy = scene.prepared(3, hanging=False)
    with txbroker.Resolver(scene.open_database, broker, lock_timeout=PATIENCE) as resolver:
        found, seconds = timed(resolver)
        assert set(found.waiting) == set(hanging)
        assert set(found.rolled_back) == set(healthy)
        assert PATIENCE * 0.9 < seconds < PATIENCE * HANGING / 4


def test_a_program_that_is_about_to_end_is_waited_for(scene, broker):
    (xid,) = scene.prepared(1, hanging=True)
    other = scene.open_database()

    class Ending(txbroker.Resolver):
        def decide(self, xid, patience=None):
            if patience:  # it is waited for now
                scene.hanging.commit()
            return super().decide(xid, patience)

    with contextlib.closing(other), Ending(scene.open_database, broker, lock_timeout=PATIENCE) as resolver:
        found = resolver.resolve()
        assert (found.waiting, found.committed) == ([], [xid])


def test_who_was_waited_for_comes_last_in_the_next_pass(scene, broker):
    hanging = scene.prepared(3, hanging=True)
    with Noting(scene.open_database, broker, lock_timeout=PATIENCE) as resolver:
        resolver.resolve()
        first = list(resolver.looked)
        assert set(first[:3]) == set(hanging)  # each without waiting
        assert first[3:] == first[:1]  # then one with all the patience there is
        resolver.looked.clear()
        (new,) = scene.prepared(1, hanging=False)
        assert resolver.resolve().rolled_back == [new]
        assert resolver.looked == [new, first[1], first[2], first[0], first[1]]


def test_in_sqlite_a_pass_waits_once_for_the_one_writer(sqlite, broker, topic):
    scene = Scene(lambda: sqlite3.connect(sqlite, timeout=60.0), broker, topic)
    waiting = scene.prepared(10, hanging=False)
    scene.hanging.execute("BEGIN IMMEDIATE")
    with (
        contextlib.closing(scene.hanging),
        txbroker.Resolver(scene.open_database, broker, lock_timeout=0.5) as resolver,
    ):
        found, seconds = timed(resolver)
        assert set(found.waiting) == set(waiting)
        assert 0.4 < seconds < 10.0
        scene.hanging.rollback()
        assert set(resolver.resolve().rolled_back) == set(waiting)


def test_in_sqlite_a_reader_that_meets_the_end_of_a_commit_waits_for_it_too(sqlite, broker, topic):
    scene = Scene(lambda: sqlite3.connect(sqlite, timeout=0.0), broker, topic)
    (xid,) = scene.prepared(1, hanging=False)
    with (
        contextlib.closing(scene.hanging),
        txbroker.Resolver(scene.open_database, broker, lock_timeout=0.1) as resolver,
    ):
        resolver.look()
        scene.hanging.execute("BEGIN EXCLUSIVE")
        assert resolver.decide(xid) == WAITING
        assert resolver.resolve(sweep=False).waiting == [xid]
        scene.hanging.rollback()
        assert resolver.resolve().rolled_back == [xid]


def test_a_database_that_waits_as_long_as_it_likes_is_asked_until_patience_is_spent_and_each_in_its_turn(
    sqlite, broker, topic, monkeypatch
):
    """MySQL waits a second at least, an unknown one as its driver does."""
    scene = Scene(lambda: sqlite3.connect(sqlite), broker, topic)
    xids_left = scene.prepared(5, hanging=False)
    now = itertools.count()
    monkeypatch.setattr(resolving, "time", types.SimpleNamespace(monotonic=lambda: float(next(now))))

    class Slow(Noting):
        def decide(self, xid, patience=None):
            self.looked.append(xid)
            return WAITING

    with contextlib.closing(scene.hanging), Slow(scene.open_database, broker, lock_timeout=2.0) as resolver:
        for _ in range(5):
            assert set(resolver.resolve().waiting) == set(xids_left)
        assert len(resolver.looked) == 10
        assert set(resolver.looked[:5]) == set(xids_left)
        assert resolver.looked[5:] == resolver.looked[:5]
    with txbroker.Resolver(scene.open_database, broker) as resolver:
        assert set(resolver.resolve().rolled_back) == set(xids_left)

"""Test SQLite with Python 3.12's autocommit=False: a connection that is always in a transaction."""

# ruff: noqa: PT012, SIM117 - a whole block is what raises

import contextlib
import sqlite3
import sys
import threading

import pytest

import txbroker
from tests.databases.orders import numbers
from tests.databases.topic_content import values
from tests.support.waiting import eventually
from txbroker import errors

pytestmark = pytest.mark.slow


class LikePython312(sqlite3.Connection):
    """``autocommit=False`` before 3.12: whatever ends a transaction begins the next one."""

    autocommit = False

    def __init__(self, *arguments, **options):
        super().__init__(*arguments, isolation_level=None, **options)
        self.execute("BEGIN")

    def commit(self):
        self.execute("COMMIT")
        self.execute("BEGIN")

    def rollback(self):
        self.execute("ROLLBACK")
        self.execute("BEGIN")


def always_open(path):
    if sys.version_info >= (3, 12):
        return sqlite3.connect(path, autocommit=False)
    return sqlite3.connect(path, factory=LikePython312)


def test_a_connection_that_is_always_in_a_transaction_has_blocks(sqlite, lite, broker, topic):
    with contextlib.closing(always_open(sqlite)) as modern:
        for number, fails in ((1, False), (2, True), (3, False)):
            with (
                contextlib.suppress(ZeroDivisionError),
                txbroker.atomic(modern, broker, wait="commit", mode="two-phase") as tx,
            ):
                modern.execute("INSERT INTO orders VALUES (?)", (number,))
                tx.send(topic, b"%d" % number)
                _ = 1 / (not fails)
        with (
            pytest.raises(errors.Misuse, match="is gone"),
            txbroker.atomic(modern, broker, mode="two-phase") as tx,
        ):
            tx.send(topic, b"4")
            modern.commit()
    assert (numbers(lambda: sqlite3.connect(sqlite)), values(broker, topic)) == ([1, 3], [b"1", b"3"])
    eventually(lambda: lite.execute("SELECT count(*) FROM txbroker_decision").fetchone() == (0,))


def test_a_block_in_a_transaction_without_the_write_lock_waits_for_it_and_then_writes(
    sqlite, lite, broker, topic
):
    with (
        contextlib.closing(always_open(sqlite)) as modern,
        contextlib.closing(sqlite3.connect(sqlite, check_same_thread=False)) as other,
    ):
        other.execute("INSERT INTO orders VALUES (7)")  # has the write lock
        waiter = threading.Timer(0.3, other.commit)
        waiter.start()
        with txbroker.atomic(
            modern, broker, wait="commit", mode="two-phase"
        ) as tx:  # had it read before, the INSERT would be refused
            modern.execute("INSERT INTO orders VALUES (8)")
            tx.send(topic, b"8")
        waiter.join()
    assert (numbers(lambda: sqlite3.connect(sqlite)), values(broker, topic)) == ([7, 8], [b"8"])


def test_a_resolver_takes_connections_that_are_always_in_a_transaction(sqlite, lite, broker):
    with txbroker.Resolver(lambda: always_open(sqlite), broker) as resolver:
        assert resolver.resolve().committed == []


def test_a_connection_that_is_always_in_a_transaction_makes_no_table_and_says_why(sqlite):
    with contextlib.closing(always_open(sqlite)) as modern:
        with pytest.raises(errors.Misuse, match=r"autocommit=False one always is: take another connection"):
            txbroker.create_decision_table(modern)

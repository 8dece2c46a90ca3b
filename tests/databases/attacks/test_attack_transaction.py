"""Test attempts to commit another transaction than the one with the row: each was a fault, or might become one."""

# ruff: noqa: PT012, SIM117 - a whole block is what raises

import contextlib
import sqlite3
import threading

import psycopg
import pymysql
import pytest

import txbroker
from tests.databases.orders import between_prepare_and_commit, execute, make_tables, numbers
from tests.databases.topic_content import values
from txbroker import State, errors

pytestmark = pytest.mark.slow


def test_a_transaction_rolled_back_after_the_prepare_takes_the_message_with_it(
    open_database, database, broker, topic
):
    """COMMIT of nothing succeeds, with every driver."""
    with pytest.raises(errors.OutcomeUnknown), txbroker.atomic(database, broker, mode="two-phase") as tx:
        execute(database, "INSERT INTO orders VALUES (1)")
        tx.send(topic, b"1")
        between_prepare_and_commit(tx, database.rollback)
    assert tx.outcome is State.PREPARED
    assert broker.wait_outcome(tx.xid, 15.0) is State.ROLLED_BACK
    assert (numbers(open_database), values(broker, topic)) == ([], [])


def test_a_transaction_committed_by_another_after_the_prepare_brings_the_message_with_it(
    open_database, database, broker, topic
):
    with pytest.raises(errors.OutcomeUnknown), txbroker.atomic(database, broker, mode="two-phase") as tx:
        execute(database, "INSERT INTO orders VALUES (1)")
        tx.send(topic, b"1")
        between_prepare_and_commit(tx, database.commit)
    assert broker.wait_outcome(tx.xid, 15.0) is State.COMMITTED
    assert (numbers(open_database), values(broker, topic)) == ([1], [b"1"])


def test_a_transaction_that_fails_after_the_prepare_takes_the_message_with_it(
    postgresql, rows, broker, topic
):
    """PostgreSQL answers COMMIT with ROLLBACK then, which psycopg takes for success."""

    def fail():
        with contextlib.suppress(psycopg.Error):
            rows.execute("SELECT 1 / 0")

    with (
        pytest.raises(errors.Misuse, match="failed") as caught,
        txbroker.atomic(rows, broker, mode="two-phase") as tx,
    ):
        execute(rows, "INSERT INTO orders VALUES (1)")
        tx.send(topic, b"1")
        between_prepare_and_commit(tx, fail)
    assert "neither rows nor messages" in caught.value.__notes__[-1]
    assert tx.outcome is State.ROLLED_BACK
    assert broker.wait_outcome(tx.xid, 15.0) is State.ROLLED_BACK
    assert (numbers(postgresql.connect), values(broker, topic)) == ([], [])


def test_a_block_without_messages_whose_transaction_failed_is_not_called_committed(postgresql, rows, broker):
    with pytest.raises(errors.Misuse, match="failed"), txbroker.atomic(rows, broker, mode="two-phase") as tx:
        execute(rows, "INSERT INTO orders VALUES (1)")
        with contextlib.suppress(psycopg.Error):
            rows.execute("SELECT 1 / 0")
    assert tx.outcome is State.ROLLED_BACK
    assert numbers(postgresql.connect) == []


def test_a_block_without_messages_whose_commit_got_no_answer_is_not_called_rolled_back(
    postgresql, rows, broker
):
    class LosesTheAnswer(psycopg.Connection):
        def commit(self):
            super().commit()
            self.close()
            raise psycopg.OperationalError("the connection was lost")

    with contextlib.closing(LosesTheAnswer.connect(postgresql.url)) as lossy:
        with pytest.raises(psycopg.OperationalError), txbroker.atomic(lossy, broker, mode="two-phase") as tx:
            execute(lossy, "INSERT INTO orders VALUES (1)")
    assert tx.outcome is State.PREPARED
    assert numbers(postgresql.connect) == [1]


def test_a_transaction_block_of_the_driver_that_is_left_open_prepares_nothing(
    postgresql, rows, broker, topic
):
    """Neither commit nor roll-back are the block's then: whoever has the connection may still commit."""
    inner = rows.transaction()
    with pytest.raises(errors.Misuse, match=r"connection\.transaction\(\)") as caught:
        with txbroker.atomic(rows, broker, mode="two-phase") as tx:
            execute(rows, "INSERT INTO orders VALUES (1)")
            tx.send(topic, b"1")
            inner.__enter__()
    assert all("neither rows nor messages" not in note for note in caught.value.__notes__)
    assert broker.transactions([State.PREPARED], global_prefix=tx.xid.global_id) == []
    inner.__exit__(None, None, None)
    rows.commit()
    assert rows.execute("SELECT count(*) FROM txbroker_decision").fetchone() == (0,)
    assert values(broker, topic) == []


def test_a_commit_that_cannot_be_rolled_back_either_is_left_to_the_resolver(postgresql, rows, broker, topic):
    """The driver refuses both: the row may yet be committed, so the broker must not be rolled back."""
    inner = rows.transaction()
    with pytest.raises(errors.OutcomeUnknown), txbroker.atomic(rows, broker, mode="two-phase") as tx:
        execute(rows, "INSERT INTO orders VALUES (1)")
        tx.send(topic, b"1")
        between_prepare_and_commit(tx, inner.__enter__)
    inner.__exit__(None, None, None)
    rows.commit()
    assert broker.wait_outcome(tx.xid, 15.0) is State.COMMITTED
    assert (numbers(postgresql.connect), values(broker, topic)) == ([1], [b"1"])


class LikePython312(sqlite3.Connection):
    """``sqlite3.connect(autocommit=True)`` of Python 3.12: commit() and rollback() do nothing."""

    autocommit = True

    def commit(self):
        """As documented there: no transaction is committed."""

    def rollback(self):
        """As documented there: no transaction is rolled back."""


def test_a_connection_whose_commit_does_nothing_is_committed_all_the_same(sqlite, lite, broker, topic):
    with contextlib.closing(sqlite3.connect(sqlite, isolation_level=None, factory=LikePython312)) as modern:
        modern.execute("BEGIN IMMEDIATE")
        with txbroker.atomic(modern, broker, wait="commit", mode="two-phase") as tx:
            modern.execute("INSERT INTO orders VALUES (1)")
            tx.send(topic, b"1")
        modern.execute("BEGIN IMMEDIATE")
        with pytest.raises(ZeroDivisionError), txbroker.atomic(modern, broker, mode="two-phase") as tx:
            modern.execute("INSERT INTO orders VALUES (2)")
            tx.send(topic, b"2")
            _ = 1 / 0
        assert not modern.in_transaction
    assert (numbers(lambda: sqlite3.connect(sqlite)), values(broker, topic)) == ([1], [b"1"])


# -- databases that undo by themselves ---------------------------------------------------------------


def test_a_deadlock_that_undid_everything_leaves_no_message(mariadb, broker, topic):
    """InnoDB rolls the whole transaction back then; what follows is in another one."""
    with contextlib.closing(mariadb.connect()) as database, contextlib.closing(mariadb.connect()) as other:
        make_tables(database)
        for number in (1, 2):
            execute(database, f"INSERT INTO orders VALUES ({number})")
        database.commit()
        with (
            pytest.raises(errors.Misuse, match="gone"),
            txbroker.atomic(database, broker, mode="two-phase") as tx,
        ):
            tx.send(topic, b"1")
            execute(database, "INSERT INTO orders VALUES (3)")
            with contextlib.suppress(pymysql.err.OperationalError):
                deadlock(database, other)
            execute(database, "INSERT INTO orders VALUES (4)")
        other.rollback()
    assert tx.outcome is State.ROLLED_BACK
    assert numbers(mariadb.connect) == [1, 2]
    assert values(broker, topic) == []


def deadlock(database, other):
    """Of two that wait for each other, the one that has written less is rolled back: ``database``."""
    execute(database, "DELETE FROM orders WHERE number = 1")
    execute(other, "DELETE FROM orders WHERE number = 2")
    for number in range(10, 40):
        execute(other, f"INSERT INTO orders VALUES ({number})")
    waiting = threading.Thread(target=execute, args=(other, "DELETE FROM orders WHERE number = 1"))
    waiting.start()
    try:
        execute(database, "DELETE FROM orders WHERE number = 2")
    finally:
        waiting.join(20.0)


def test_a_lock_that_was_not_had_undoes_its_statement_only(mariadb, broker, topic):
    with contextlib.closing(mariadb.connect()) as database, contextlib.closing(mariadb.connect()) as other:
        make_tables(database)
        execute(other, "INSERT INTO orders VALUES (9)")
        execute(database, "SET SESSION innodb_lock_wait_timeout = 0")
        with txbroker.atomic(database, broker, wait="commit", mode="two-phase") as tx:
            execute(database, "INSERT INTO orders VALUES (1)")
            with pytest.raises(pymysql.err.OperationalError):
                execute(database, "INSERT INTO orders VALUES (9)")
            tx.send(topic, b"1")
        other.rollback()
    assert (numbers(mariadb.connect), values(broker, topic)) == ([1], [b"1"])


def test_a_conflict_that_undid_everything_leaves_no_message_in_sqlite(sqlite, lite, broker, topic):
    lite.execute("INSERT INTO orders VALUES (1)")
    lite.commit()
    with pytest.raises(errors.Misuse, match="gone"), txbroker.atomic(lite, broker, mode="two-phase") as tx:
        lite.execute("INSERT INTO orders VALUES (2)")
        tx.send(topic, b"2")
        with contextlib.suppress(sqlite3.IntegrityError):
            lite.execute("INSERT OR ROLLBACK INTO orders VALUES (1)")
        lite.execute("INSERT INTO orders VALUES (3)")
    assert numbers(lambda: sqlite3.connect(sqlite)) == [1]
    assert values(broker, topic) == []

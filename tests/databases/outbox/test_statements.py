"""Test what programs do to the transaction of a block that leaves its messages: rows and messages stay together."""

# ruff: noqa: PT012 - a whole block is what raises

import contextlib
import sqlite3

import psycopg
import pytest

import txbroker
from tests.databases.orders import execute, make_tables, numbers
from tests.databases.outbox.scene import all_of, rows_of, send
from tests.support.waiting import eventually
from txbroker import State, errors

pytestmark = pytest.mark.slow


def block(database, broker, topic, number, act):
    """A block with an order and its message, and something else that its program does in between."""
    with txbroker.atomic(database, broker, mode="outbox") as tx:
        execute(database, f"INSERT INTO orders VALUES ({number})")
        tx.send(topic, b"%d" % number)
        act()
    return tx


@pytest.mark.parametrize("how", ["commit", "rollback"])
@pytest.mark.parametrize("goes_on", [False, True], ids=["and ends", "and goes on"])
def test_a_block_that_ends_its_transaction_itself_sends_nothing(
    open_database, database, broker, topic, how, goes_on
):
    send(database, broker, topic, 1, wait="commit")

    def act():
        getattr(database, how)()
        if goes_on:
            execute(database, "INSERT INTO orders VALUES (3)")

    with pytest.raises(errors.Misuse, match="none of the block's messages"):
        block(database, broker, topic, 2, act)
    assert sorted(numbers(open_database)) == ([1, 2] if how == "commit" else [1])
    send(database, broker, topic, 4, wait="commit")
    assert all_of(broker, topic) == [1, 4]
    assert broker.resolver.status.undelivered == 0


def test_a_statement_that_commits_by_itself_sends_nothing(mariadb, broker, topic):
    with contextlib.closing(mariadb.connect()) as database:
        make_tables(database)
        with pytest.raises(errors.Misuse, match="none of the block's messages"):
            block(database, broker, topic, 1, lambda: execute(database, "CREATE TABLE other (a INTEGER)"))
        assert numbers(mariadb.connect) == [1]
        send(database, broker, topic, 2, wait="commit")
    assert all_of(broker, topic) == [2]


def test_another_database_inside_of_a_block_takes_both_back(mariadb_server, mariadb, broker, topic):
    other = mariadb_server.create_database()
    with contextlib.closing(mariadb.connect()) as database, contextlib.closing(other.connect()) as elsewhere:
        make_tables(database)
        make_tables(elsewhere)
        with pytest.raises(errors.DecisionTableRefused, match="another one now"):
            block(database, broker, topic, 1, lambda: execute(database, f"USE {other.name}"))
        assert numbers(mariadb.connect) == numbers(other.connect) == []
        assert rows_of(other.connect) == []
        execute(database, f"USE {mariadb.name}")
        send(database, broker, topic, 2, wait="commit")
    assert all_of(broker, topic) == [2]
    other.drop()


@pytest.mark.parametrize("has_tables", [False, True])
def test_another_schema_inside_of_a_block_takes_both_back(postgresql, rows, broker, topic, has_tables):
    rows.execute("CREATE SCHEMA other")
    rows.commit()
    if has_tables:
        rows.execute("SET search_path = other")
        make_tables(rows)
        rows.execute("SET search_path = public")
        rows.commit()
    send(rows, broker, topic, 1, wait="commit")
    with pytest.raises((errors.Misuse, errors.DecisionTableMissing)):
        block(rows, broker, topic, 2, lambda: rows.execute("SET LOCAL search_path = other"))
    assert numbers(postgresql.connect) == [1]
    send(rows, broker, topic, 3, wait="commit")
    assert all_of(broker, topic) == [1, 3]


def test_a_failed_transaction_that_the_program_went_on_with_takes_both_back(postgresql, rows, broker, topic):
    send(rows, broker, topic, 1, wait="commit")

    def fails():
        with contextlib.suppress(psycopg.errors.UniqueViolation):
            rows.execute("INSERT INTO orders VALUES (1)")

    with pytest.raises(errors.Misuse, match="has failed"):
        block(rows, broker, topic, 2, fails)
    send(rows, broker, topic, 3, wait="commit")
    assert numbers(postgresql.connect) == all_of(broker, topic) == [1, 3]


DEFERRED = (
    "ALTER TABLE orders ADD COLUMN parent INTEGER REFERENCES orders (number) DEFERRABLE INITIALLY DEFERRED"
)


def test_a_constraint_that_fails_at_commit_takes_the_row_of_messages_with_it(postgresql, rows, broker, topic):
    rows.execute(DEFERRED)
    rows.commit()
    send_two = "INSERT INTO orders VALUES (%s, %s)"
    with txbroker.atomic(rows, broker, mode="outbox") as tx:
        rows.execute(send_two, (1, None))
        tx.send(topic, b"1")
    for _ in range(3):
        with (
            pytest.raises(psycopg.errors.ForeignKeyViolation) as caught,
            txbroker.atomic(rows, broker, mode="outbox") as tx,
        ):
            rows.execute(send_two, (2, 77))
            tx.send(topic, b"2")
        assert any("rolled back at both sides" in note for note in caught.value.__notes__)
        assert tx.outcome is State.ROLLED_BACK
    with txbroker.atomic(rows, broker, mode="outbox", wait="commit") as tx:
        rows.execute(send_two, (3, 1))
        tx.send(topic, b"3")
    assert all_of(broker, topic) == [1, 3]
    assert broker.resolver.status.undelivered == 0


def test_a_constraint_that_fails_at_commit_in_sqlite_takes_the_row_of_messages_with_it(
    sqlite, lite, broker, topic
):
    lite.execute("PRAGMA foreign_keys = ON")
    lite.execute(
        "CREATE TABLE parts (number INTEGER REFERENCES orders (number) DEFERRABLE INITIALLY DEFERRED)"
    )
    lite.commit()
    with pytest.raises(sqlite3.IntegrityError):
        block(lite, broker, topic, 1, lambda: lite.execute("INSERT INTO parts VALUES (77)"))
    send(lite, broker, topic, 2, wait="commit")
    assert all_of(broker, topic) == [2]


def test_serialization_failures_at_commit_are_known(postgresql, rows, broker, topic):
    """Two blocks that have read what the other writes."""
    with contextlib.closing(postgresql.connect()) as other:
        for database in (rows, other):
            database.isolation_level = psycopg.IsolationLevel.SERIALIZABLE

        def meanwhile():
            rows.execute("SELECT count(*) FROM orders").fetchall()
            with txbroker.atomic(other, broker, mode="outbox") as tx:
                other.execute("SELECT count(*) FROM orders").fetchall()
                other.execute("INSERT INTO orders VALUES (2)")
                tx.send(topic, b"2")

        with pytest.raises(psycopg.errors.SerializationFailure) as caught:
            block(rows, broker, topic, 1, meanwhile)
        assert any("rolled back at both sides" in note for note in caught.value.__notes__)
        send(rows, broker, topic, 3, wait="commit")
        eventually(lambda: sorted(all_of(broker, topic)) == [2, 3])  # of two connections, in any order
    assert numbers(postgresql.connect) == [2, 3]


def test_an_unforced_commit_is_forced(postgresql, rows, broker, topic):
    rows.execute("SET synchronous_commit = off")
    rows.commit()
    rows.execute(
        "CREATE FUNCTION note() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN INSERT INTO said "
        "VALUES (current_setting('synchronous_commit')); RETURN NULL; END $$; CREATE TABLE said (what text); "
        "CREATE CONSTRAINT TRIGGER notes AFTER INSERT ON orders DEFERRABLE INITIALLY DEFERRED "
        "FOR EACH ROW EXECUTE FUNCTION note()"
    )
    rows.commit()
    send(rows, broker, topic, 1, wait="commit")
    assert rows.execute("SELECT what FROM said").fetchall() == [("on",)]
    rows.commit()
    assert rows.execute("SHOW synchronous_commit").fetchall() == [("off",)]


def test_a_transaction_that_becomes_read_only_takes_both_back(postgresql, rows, broker, topic):
    send(rows, broker, topic, 1, wait="commit")
    with pytest.raises(errors.Misuse, match="read-only"), txbroker.atomic(rows, broker, mode="outbox") as tx:
        rows.execute("SET TRANSACTION READ ONLY")
        tx.send(topic, b"2")
    assert tx.outcome is State.ROLLED_BACK
    send(rows, broker, topic, 3, wait="commit")
    assert all_of(broker, topic) == [1, 3]


@pytest.mark.parametrize("statement", ["DEALLOCATE ALL", "DISCARD ALL"])
def test_statements_that_something_has_forgotten_are_prepared_again(
    postgresql, rows, broker, topic, statement
):
    """As pools do between their users."""
    send(rows, broker, topic, 1, wait="commit")
    rows.autocommit = True
    rows.execute(statement)
    rows.autocommit = False
    with pytest.raises(psycopg.errors.InvalidSqlStatementName) as caught:
        send(rows, broker, topic, 2)
    assert any("rolled back at both sides" in note for note in caught.value.__notes__)
    send(rows, broker, topic, 3, wait="commit")
    assert numbers(postgresql.connect) == all_of(broker, topic) == [1, 3]


def test_a_savepoint_that_is_rolled_back_keeps_the_block_whole(database, open_database, broker, topic):
    def act():
        execute(database, "SAVEPOINT mine")
        execute(database, "INSERT INTO orders VALUES (7)")
        execute(database, "ROLLBACK TO SAVEPOINT mine")

    block(database, broker, topic, 1, act)
    send(database, broker, topic, 2, wait="commit")
    assert (sorted(numbers(open_database)), all_of(broker, topic)) == ([1, 2], [1, 2])

"""Test the note on an exception about a block that was rolled back, when the program had committed by itself."""

import contextlib
import sqlite3

import pytest

import txbroker

pytestmark = pytest.mark.slow


def nothing():
    """The block goes on to its end, and is refused there."""


def fail():
    raise ValueError("later")


@pytest.mark.parametrize("then", [nothing, fail])
def test_rows_that_a_block_has_committed_itself_are_not_said_to_be_gone(broker, topic, sqlite, then):
    with contextlib.closing(sqlite3.connect(sqlite)) as database:
        txbroker.create_decision_table(database)
        database.execute("CREATE TABLE orders (number INTEGER)")
        raised = pytest.raises((ValueError, txbroker.errors.Misuse))
        with raised as error, txbroker.atomic(database, broker, mode="two-phase") as tx:
            database.execute("INSERT INTO orders VALUES (42)")
            tx.send(topic, b"order 42")
            database.commit()
            then()
        assert database.execute("SELECT * FROM orders").fetchall() == [(42,)]
    [note] = error.value.__notes__
    assert "unless it has committed rows by itself" in note

"""Rows of a small shop in SQLite, for the tests of blocks."""

import contextlib
import sqlite3

import txbroker


@contextlib.contextmanager
def shop(path):
    """A connection to a database that has orders with a state, and the decision table."""
    with contextlib.closing(sqlite3.connect(path)) as connection:
        connection.execute("CREATE TABLE orders (number INTEGER PRIMARY KEY, state TEXT)")
        connection.commit()
        txbroker.create_decision_table(connection)
        yield connection


def numbers(database):
    return [number for (number,) in database.execute("SELECT number FROM orders ORDER BY number")]


def rows(database):
    return database.execute("SELECT xid FROM txbroker_decision").fetchall()

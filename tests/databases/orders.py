"""A table of orders beside the decision table, on any of the databases, and functions that read it."""

import contextlib
import sqlite3

import txbroker


def execute(database, statement):
    cursor = database.cursor()
    try:
        cursor.execute(statement)
        return list(cursor.fetchall()) if cursor.description else []
    finally:
        cursor.close()


def make_tables(database):
    execute(database, "CREATE TABLE orders (number INTEGER PRIMARY KEY)")
    database.commit()
    txbroker.create_decision_table(database)


def opener(found):
    """What opens connections to what a fixture of databases gave."""
    return getattr(found, "connect", lambda: sqlite3.connect(found))


def numbers(open_database):
    with contextlib.closing(open_database()) as database:
        return [number for (number,) in execute(database, "SELECT number FROM orders")]


def between_prepare_and_commit(tx, act):
    """What a callback for a message's answer, a signal's handler or another task could do with the connection."""
    prepare = tx._side.prepare

    async def step():
        await prepare()
        act()

    tx._side.prepare = step

"""Test that the README's block does what it says, with SQLite as it is there, and with PostgreSQL as described below
it.

Seen to fail with the decision table made after the CREATE TABLE, which in psycopg has begun a transaction.
"""

import contextlib
import re
import sqlite3

import pytest

from tests.support.repository import ROOT

README = (ROOT / "README.md").read_text()

pytestmark = pytest.mark.slow


def block(connecting, address, topic):
    [text] = [each for each in re.findall(r"```python\n(.*?)```", README, re.DOTALL) if "atomic(" in each]
    for old, new in (
        ('sqlite3.connect("shop.db")', connecting),
        ("tcp:127.0.0.1:7654", address),
        ('"orders"', repr(topic)),
    ):
        assert old in text
        text = text.replace(old, new)
    return text


def run(text, **names):
    exec(text, names)
    names["database"].close()


def test_with_sqlite_twice(shared_broker, topic, sqlite):
    text = block(f"sqlite3.connect({str(sqlite)!r})", shared_broker.address, topic)
    for _ in range(2):
        run(text)
    with contextlib.closing(sqlite3.connect(sqlite)) as database:
        assert database.execute("SELECT * FROM orders").fetchall() == [(42, "billed")] * 2


def test_with_psycopg_twice(shared_broker, topic, postgresql):
    text = block("postgresql.connect()", shared_broker.address, topic).replace("?", "%s")
    for _ in range(2):
        run(text, postgresql=postgresql)
    with contextlib.closing(postgresql.connect()) as database:
        assert database.execute("SELECT * FROM orders").fetchall() == [(42, "billed")] * 2

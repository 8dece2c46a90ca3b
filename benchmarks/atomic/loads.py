"""The loads of the benchmark of `txbroker.atomic`: blocks, and the same work done in well-known ways."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from typing import Any

import psycopg

import txbroker

TOPIC = "orders"
BODY = bytes(100)

TABLES = """
    CREATE TABLE orders (id text PRIMARY KEY, state text NOT NULL, body bytea NOT NULL);
    CREATE TABLE outbox (id bigserial PRIMARY KEY, topic text NOT NULL, key bytea NOT NULL, body bytea NOT NULL);
"""
INSERT = "INSERT INTO orders VALUES (%s, 'new', %s)"

Database = psycopg.Connection[tuple[Any, ...]]
Once = Callable[[str], None]
"""A function that does one piece of work; its argument is a unique name for it."""


class Process:
    """What the threads of one process share: its connection to the broker, made when it is first asked for."""

    def __init__(self, broker_url: str) -> None:
        self._stack = ExitStack()
        self._broker_url = broker_url
        self._broker: txbroker.Connection | None = None

    def broker(self) -> txbroker.Connection:
        """Return the connection to the broker."""
        if self._broker is None:
            self._broker = self._stack.enter_context(txbroker.connect(self._broker_url))
        return self._broker

    def close(self) -> None:
        """Wait for unfinished work, and close it."""
        self._stack.close()


class Load:
    """A load: a database connection, and the connection to the broker that all loads of a process share."""

    def __init__(self, database_url: str, process: Process) -> None:
        self._stack = ExitStack()
        self.database: Database = self._stack.enter_context(psycopg.connect(database_url))
        self.broker = process.broker

    def close(self) -> None:
        """Close the database connection."""
        self._stack.close()


def row(load: Load) -> Once:
    """Insert and commit a row, with PostgreSQL alone."""
    database = load.database

    def once(name: str) -> None:
        database.execute(INSERT, (name, BODY))
        database.commit()

    return once


def outbox(load: Load) -> Once:
    """Insert and commit the row, and the message as another row: the outbox pattern, without its poller."""
    database = load.database

    def once(name: str) -> None:
        database.execute(INSERT, (name, BODY))
        database.execute(
            "INSERT INTO outbox (topic, key, body) VALUES (%s, %s, %s)", (TOPIC, name.encode(), BODY)
        )
        database.commit()

    return once


def outbox_pipelined(load: Load) -> Once:
    """Do the same, and send the second row together with COMMIT: what a program does that knows its driver well."""
    database = load.database

    def once(name: str) -> None:
        database.execute(INSERT, (name, BODY))
        with database.pipeline():
            database.execute(
                "INSERT INTO outbox (topic, key, body) VALUES (%s, %s, %s)", (TOPIC, name.encode(), BODY)
            )
            database.commit()

    return once


def two_phase(load: Load) -> Once:
    """Commit in PostgreSQL's own two phases, by psycopg's calls: PREPARE TRANSACTION, then COMMIT PREPARED."""
    database = load.database

    def once(name: str) -> None:
        database.tpc_begin(database.xid(1, name, "bench"))
        database.execute(INSERT, (name, BODY))
        database.tpc_prepare()
        database.tpc_commit()

    return once


def messages(load: Load) -> Once:
    """Prepare and commit a message, with the broker alone."""
    broker = load.broker()

    def once(name: str) -> None:
        with broker.transaction(broker.xid(1, name, "bench")) as tx:
            tx.send(TOPIC, BODY, key=name.encode())
            tx.prepare()

    return once


def atomic(load: Load, wait: str = "decision", mode: str = "two-phase") -> Once:
    """Insert the row and send the message in one block, prepared at the broker."""
    database, broker = load.database, load.broker()

    def once(name: str) -> None:
        with txbroker.atomic(database, broker, wait=wait, mode=mode) as tx:
            database.execute(INSERT, (name, BODY))
            tx.send(TOPIC, BODY, key=name.encode())

    return once


def atomic_shown(load: Load) -> Once:
    """Do the same, and wait until the message can be read."""
    return atomic(load, "commit")


def atomic_outbox(load: Load) -> Once:
    """Insert the row and send the message in one block, through the outbox."""
    return atomic(load, mode="outbox")


def atomic_outbox_shown(load: Load) -> Once:
    """Do the same, and wait until the message can be read."""
    return atomic(load, "commit", "outbox")


LOADS: dict[str, Callable[[Load], Once]] = {
    "row": row,
    "outbox": outbox,
    "outbox-pipelined": outbox_pipelined,
    "two-phase": two_phase,
    "messages": messages,
    "atomic": atomic,
    "atomic-shown": atomic_shown,
    "atomic-outbox": atomic_outbox,
    "atomic-outbox-shown": atomic_outbox_shown,
    "outbox-polled": outbox_pipelined,
}
POLLED = frozenset({"outbox-polled"})
IN_DATABASE = frozenset(LOADS) - {"messages"}
IN_BROKER = frozenset(
    {"messages", "atomic", "atomic-shown", "atomic-outbox", "atomic-outbox-shown", "outbox-polled"}
)

"""Test attempts to decide by something that a power cut takes back: each was a fault, or might become one."""

# ruff: noqa: SIM117 - a whole block is what raises

import contextlib
import os
import sqlite3

import pytest

import txbroker
from tests.databases.adapters.mariadb import MariadbServer
from tests.databases.fixtures import new_folder, running
from tests.databases.orders import execute, make_tables, numbers
from tests.databases.topic_content import values
from txbroker import errors
from txbroker.databases.adapters.adapter import run

pytestmark = pytest.mark.slow


@pytest.fixture
def mariadb_to_kill():
    with running(MariadbServer(new_folder())) as server:
        yield server


def test_what_a_resolver_has_seen_in_mariadb_is_on_disk_before_the_broker_is_told(
    mariadb_to_kill, broker, topic
):
    """InnoDB shows a commit before it has forced it: whoever waited for its lock is woken up in between.

    Not to force at all for a moment stretches that moment.
    """
    server = mariadb_to_kill
    created = server.create_database()
    with contextlib.closing(created.connect()) as database, contextlib.closing(server.connect()) as root:
        make_tables(database)
        execute(root, "SET GLOBAL innodb_flush_log_at_timeout = 2700")
        tx = txbroker.atomic(database, broker, mode="two-phase").__enter__()
        broker.resolver.stop(5.0)
        execute(database, "INSERT INTO orders VALUES (1)")
        tx.send(topic, b"1")
        assert run(tx.deciding.prepare())
        execute(root, "SET GLOBAL innodb_flush_log_at_trx_commit = 0")
        database.commit()  # seen by all, and nowhere but in memory
        execute(root, "SET GLOBAL innodb_flush_log_at_trx_commit = 1")
        with txbroker.Resolver(created.connect, broker) as resolver:
            assert resolver.decide(tx.xid) == "committed"
            server.kill()
        tx.deciding._unregister()
    server.start()
    assert numbers(created.connect) == [1]
    broker.end_prepared(tx.xid, True)


def test_a_binary_log_that_is_not_forced_is_refused_in_mariadb(mariadb_to_kill, broker):
    server = mariadb_to_kill
    created = server.create_database()
    with contextlib.closing(created.connect()) as database:
        make_tables(database)
    server.kill()
    arguments = [*server.arguments(), "--log-bin", "--sync-binlog=0"]
    server.arguments = lambda: arguments
    server.start()
    with contextlib.closing(created.connect()) as database:
        with pytest.raises(errors.DecisionNotDurable, match="sync_binlog"):
            txbroker.atomic(database, broker, mode="two-phase").__enter__()
        execute(database, "SET GLOBAL sync_binlog = 1")
        with txbroker.atomic(database, broker, mode="two-phase"):
            pass


@pytest.mark.parametrize(
    ("journal", "synchronous", "forced"),
    [
        ("DELETE", "FULL", True),
        ("DELETE", "EXTRA", False),
        ("TRUNCATE", "FULL", False),
        ("WAL", "FULL", False),
    ],
)
def test_the_end_of_sqlites_journal_is_on_disk_before_the_broker_is_told(
    sqlite, lite, broker, topic, monkeypatch, journal, synchronous, forced
):
    """With FULL it unlinks its journal and does not force that: after a power cut the journal would be back."""
    lite.execute(f"PRAGMA journal_mode = {journal}")
    lite.execute(f"PRAGMA synchronous = {synchronous}")
    seen, fsync = [], os.fsync

    def spy(descriptor):
        if os.path.samestat(os.fstat(descriptor), os.stat(sqlite.parent)):
            seen.append(values(broker, topic))
        fsync(descriptor)

    with txbroker.atomic(lite, broker, mode="two-phase") as tx:
        broker.resolver.stop(5.0)
        lite.execute("INSERT INTO orders VALUES (1)")
        tx.send(topic, b"1")
        monkeypatch.setattr(os, "fsync", spy)
    assert seen == ([[]] if forced else [])
    assert values(broker, topic) == [b"1"], "the broker is told, though there is no resolver to see to it"


def test_the_end_of_sqlites_journal_is_on_disk_with_sqlalchemy_too(sqlite, lite, broker, topic, monkeypatch):
    from sqlalchemy import create_engine, text

    forced, fsync = [], os.fsync

    def spy(descriptor):
        forced.append(os.path.samestat(os.fstat(descriptor), os.stat(sqlite.parent)))
        fsync(descriptor)

    engine = create_engine(f"sqlite:///{sqlite}")
    with engine.connect() as connection:
        with txbroker.atomic(connection, broker, mode="two-phase") as tx:
            broker.resolver.stop(5.0)
            connection.execute(text("INSERT INTO orders VALUES (1)"))
            tx.send(topic, b"1")
            monkeypatch.setattr(os, "fsync", spy)
    engine.dispose()
    assert forced == [True]
    assert values(broker, topic) == [b"1"]


def test_what_a_resolver_has_seen_in_sqlite_is_on_disk_before_the_broker_is_told(
    sqlite, lite, broker, topic, monkeypatch
):
    tx = txbroker.atomic(lite, broker, mode="two-phase").__enter__()
    broker.resolver.stop(5.0)
    tx.send(topic, b"1")
    assert run(tx.deciding.prepare())
    lite.commit()  # and dies
    tx.deciding._unregister()
    seen, fsync = [], os.fsync

    def spy(descriptor):
        seen.append(os.path.samestat(os.fstat(descriptor), os.stat(sqlite.parent)))
        fsync(descriptor)

    monkeypatch.setattr(os, "fsync", spy)
    with txbroker.Resolver(lambda: sqlite3.connect(sqlite), broker) as resolver:
        assert resolver.decide(tx.xid) == "committed"
    assert seen == [True]
    broker.end_prepared(tx.xid, True)

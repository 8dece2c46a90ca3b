"""Test the threads beside a broker connection, and drivers that are not known."""

# ruff: noqa: PT012 - a whole block is what raises

import contextlib
import logging
import sqlite3
import sys
import threading
import time
import types

import pymysql
import pytest

import txbroker
from tests.support.waiting import eventually
from txbroker import State, errors
from txbroker.client.core.promise import Promise
from txbroker.databases import resolver_thread
from txbroker.databases.adapters.dbapi import TRANSLATIONS

pytestmark = pytest.mark.slow


@pytest.fixture
def database(lite):
    return lite


def decisions(database):
    return database.execute("SELECT count(*) FROM txbroker_decision").fetchone()[0]


def test_a_resolver_that_cannot_connect_tells_it_and_disturbs_nobody(database, broker, topic, caplog):
    def unreachable():
        raise sqlite3.OperationalError("no route to the database")

    caplog.set_level(logging.WARNING, "txbroker.resolver")
    for number in range(2):
        with txbroker.atomic(database, broker, connect_database=unreachable, mode="two-phase") as tx:
            database.execute("INSERT INTO orders VALUES (?)", (number,))
            tx.send(topic, b"%d" % number)
    broker.resolver.interval = 0.05
    broker.resolver.hurry()
    eventually(lambda: "no route to the database" in broker.resolver.status.failure)
    assert [message.value for message in broker.read(topic, 0, 0)] == [b"0", b"1"]
    assert decisions(database) == 2  # left for a resolver that can connect
    time.sleep(0.5)
    told = [record for record in caplog.records if "no route" in record.getMessage()]
    assert len(told) == 1, "the same trouble is told once"


def test_the_background_ends_what_another_process_has_left(sqlite, database, broker, shared_broker, topic):
    with txbroker.connect(shared_broker.address) as other:
        tx = txbroker.atomic(database, other, mode="two-phase").__enter__()
        tx.send(topic, b"1")
        other.resolver.stop(1.0)  # its process hangs, and its database transaction is ended
        tx._side.transaction.prepare()
        database.rollback()
        tx.deciding._unregister()
        with txbroker.atomic(database, broker, mode="two-phase"):
            pass
        broker.resolver.interval = 0.1
        assert broker.wait_outcome(tx.xid, 10.0) is State.ROLLED_BACK
        eventually(lambda: broker.resolver.status.rolled_back == 1)
        assert decisions(database) == 0
        other.resolver = None


def test_the_status_names_who_is_waited_for(sqlite, database, broker, topic):
    with contextlib.closing(sqlite3.connect(sqlite)) as slow:
        tx = txbroker.atomic(slow, broker, mode="two-phase").__enter__()
        broker.resolver.interval = 0.1
        tx.send(topic, b"1")
        adapter, deciding = tx.database, tx.deciding
        import txbroker.databases.tables.xids as xids
        from txbroker.databases.adapters.adapter import run

        key = xids.row_key(tx.xid)
        run(adapter.decide(deciding._token, key, broker.identity))
        tx._side.transaction.prepare()
        eventually(lambda: str(tx.xid) in broker.resolver.status.waiting)
        deciding.progress.key = key
        run(adapter.commit())
        run(deciding.committed())
        eventually(lambda: broker.resolver.status.waiting == [])
    assert [message.value for message in broker.read(topic, 0, 0)] == [b"1"]


def prepared(database, broker, topic):
    """A transaction whose program has prepared it, has been rolled back by its database, and says no more."""
    tx = txbroker.atomic(database, broker, mode="two-phase").__enter__()
    tx.send(topic, b"1")
    tx._side.transaction.prepare()
    database.rollback()
    tx.deciding._unregister()
    return tx


def test_what_was_prepared_while_rows_were_tidied_is_looked_at_when_it_is_old_enough(
    database, broker, topic, monkeypatch
):
    """The pass that was called for it finds it too young; so did the next, which counted from before the tidying."""
    # So short that each one of its age may still be deciding.
    monkeypatch.setattr(resolver_thread, "GRACE", 0.1)
    tidying, has_prepared = threading.Event(), threading.Event()

    def drive(promise):
        tidying.set()
        assert has_prepared.wait(10.0)
        promise.resolve(None)

    broker.resolver = resolver_thread.Background(lambda: broker, drive)
    with txbroker.atomic(database, broker, mode="two-phase"):
        pass
    broker.resolver.track(Promise(), "")
    assert tidying.wait(10.0)
    time.sleep(0.1)
    tx = prepared(database, broker, topic)
    broker.resolver.hurry()
    has_prepared.set()
    assert broker.wait_outcome(tx.xid, 3.0) is State.ROLLED_BACK


@pytest.fixture
def strange():
    """A driver that nobody has heard of, for as long as the test runs."""
    module = types.ModuleType("strangedb")
    sys.modules["strangedb"] = module

    def driver(base, paramstyle):
        module.paramstyle = paramstyle
        return type("Connection", (base,), {"__module__": "strangedb"})

    yield driver
    del sys.modules["strangedb"]


@pytest.mark.parametrize("paramstyle", ["qmark", "numeric", "named"])
def test_any_driver_of_pep_249_will_do(strange, sqlite, database, broker, topic, paramstyle):
    strange_connection = strange(sqlite3.Connection, paramstyle)
    with contextlib.closing(strange_connection(sqlite)) as connection:
        connection.execute("BEGIN IMMEDIATE")  # sqlite3 itself would begin at the first INSERT only
        with txbroker.atomic(connection, broker, wait="commit", mode="two-phase") as tx:
            connection.execute("INSERT INTO orders VALUES (1)")
            tx.send(topic, b"1")
        assert tx.database.name == "generic"
        assert [message.value for message in broker.read(topic, 0, 0)] == [b"1"]
        assert "connect_database" in broker.resolver.status.failure
        with txbroker.Resolver(lambda: strange_connection(sqlite), broker) as resolver:
            assert resolver.resolve().removed == 1


def test_mariadb_through_an_unknown_driver(strange, mariadb, broker, topic):
    kind = strange(pymysql.connections.Connection, "pyformat")
    options = {"unix_socket": str(mariadb.server.socket), "user": "root", "database": mariadb.name}
    with contextlib.closing(kind(**options)) as connection:
        with contextlib.closing(mariadb.connect()) as maker:
            txbroker.create_decision_table(maker)
        with connection.cursor() as cursor:
            cursor.execute("CREATE TABLE orders (number INTEGER) ENGINE=InnoDB")
        for number in range(3):
            with txbroker.atomic(
                connection, broker, wait="commit", connect_database=lambda: kind(**options), mode="two-phase"
            ) as tx:
                with connection.cursor() as cursor:
                    cursor.execute("INSERT INTO orders VALUES (%s)", (number,))
                tx.send(topic, b"%d" % number)
        with pytest.raises(errors.Misuse), txbroker.atomic(connection, broker, mode="two-phase") as tx:
            tx.send(topic, b"no")
            with connection.cursor() as cursor:
                cursor.execute("CREATE TABLE commits_by_itself (number INTEGER)")
    assert len(broker.read(topic, 0, 0)) == 3


def test_every_parameter_style_of_pep_249_is_known():
    assert set(TRANSLATIONS) == {"qmark", "numeric", "named", "format", "pyformat"}
    statement = "INSERT INTO t VALUES (%s, %s)"
    assert TRANSLATIONS["numeric"](statement, ("a", "b"))[0] == "INSERT INTO t VALUES (:1, :2)"
    assert TRANSLATIONS["named"](statement, ("a", "b")) == (
        "INSERT INTO t VALUES (:p1, :p2)",
        {"p1": "a", "p2": "b"},
    )


def test_an_unknown_parameter_style_is_refused(strange, sqlite, broker):
    kind = strange(sqlite3.Connection, "runes")
    with contextlib.closing(kind(sqlite)) as connection, pytest.raises(errors.Misuse, match="runes"):
        txbroker.atomic(connection, broker, mode="two-phase")


def test_the_background_outlives_what_it_did_not_expect(database, broker, topic, caplog):
    with txbroker.atomic(database, broker, mode="two-phase"):
        pass
    background = broker.resolver
    tidy, broken = background._tidy, []

    def fails_once():
        if not broken:
            broken.append(True)
            raise OSError(24, "too many open files")
        tidy()

    background._tidy = fails_once
    background.hurry()
    eventually(lambda: broken)
    with txbroker.atomic(database, broker, mode="two-phase") as tx:
        tx.send(topic, b"1")
    eventually(lambda: database.execute("SELECT count(*) FROM txbroker_decision").fetchone() == (0,))
    assert background.status.is_running
    assert "too many open files" in caplog.text

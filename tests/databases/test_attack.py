"""Attempts to have a row without its message, or a message without its row: each was a hole, or might become one."""

# ruff: noqa: PT012, SIM117 - a whole block is what raises

import contextlib
import os
import sqlite3
import time

import psycopg
import pymysql
import pytest

import txbroker
from tests.databases.fixtures import new_folder, running
from tests.databases.mariadb import MariadbServer
from txbroker import State, errors
from txbroker.databases.adapter import adapt, run

pytestmark = pytest.mark.slow


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


@pytest.fixture(params=["sqlite", "postgresql", "mariadb"])
def open_database(request):
    found = request.getfixturevalue(request.param)
    opened = (lambda: sqlite3.connect(found)) if request.param == "sqlite" else found.connect
    with contextlib.closing(opened()) as database:
        make_tables(database)
    return opened


@pytest.fixture
def database(open_database):
    with contextlib.closing(open_database()) as connection:
        yield connection


@pytest.fixture
def rows(postgresql):
    with contextlib.closing(postgresql.connect()) as connection:
        make_tables(connection)
        yield connection


@pytest.fixture
def lite(sqlite):
    with contextlib.closing(sqlite3.connect(sqlite)) as connection:
        make_tables(connection)
        yield connection


def numbers(open_database):
    with contextlib.closing(open_database()) as database:
        return [number for (number,) in execute(database, "SELECT number FROM orders")]


def values(broker, topic):
    return [message.value for message in broker.read(topic, 0, 0)]


def eventually(condition, seconds=15.0):
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(0.02)


def between_prepare_and_commit(tx, act):
    """What a callback for a message's answer, a signal's handler or another task could do with the connection."""
    prepare = tx._side.prepare

    async def step():
        await prepare()
        act()

    tx._side.prepare = step


# -- the transaction that is committed is not the one that holds the row -----------------------------


def test_a_transaction_rolled_back_after_the_prepare_takes_the_message_with_it(
    open_database, database, broker, topic
):
    """COMMIT of nothing succeeds, with every driver."""
    with pytest.raises(errors.OutcomeUnknown), txbroker.atomic(database, broker) as tx:
        execute(database, "INSERT INTO orders VALUES (1)")
        tx.send(topic, b"1")
        between_prepare_and_commit(tx, database.rollback)
    assert tx.outcome is State.PREPARED
    assert broker.wait_outcome(tx.xid, 15.0) is State.ROLLED_BACK
    assert (numbers(open_database), values(broker, topic)) == ([], [])


def test_a_transaction_committed_by_another_after_the_prepare_brings_the_message_with_it(
    open_database, database, broker, topic
):
    with pytest.raises(errors.OutcomeUnknown), txbroker.atomic(database, broker) as tx:
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

    with pytest.raises(errors.Misuse, match="failed") as caught, txbroker.atomic(rows, broker) as tx:
        execute(rows, "INSERT INTO orders VALUES (1)")
        tx.send(topic, b"1")
        between_prepare_and_commit(tx, fail)
    assert "neither rows nor messages" in caught.value.__notes__[-1]
    assert tx.outcome is State.ROLLED_BACK
    assert broker.wait_outcome(tx.xid, 15.0) is State.ROLLED_BACK
    assert (numbers(postgresql.connect), values(broker, topic)) == ([], [])


def test_a_block_without_messages_whose_transaction_failed_is_not_called_committed(postgresql, rows, broker):
    with pytest.raises(errors.Misuse, match="failed"), txbroker.atomic(rows, broker) as tx:
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
        with pytest.raises(psycopg.OperationalError), txbroker.atomic(lossy, broker) as tx:
            execute(lossy, "INSERT INTO orders VALUES (1)")
    assert tx.outcome is State.PREPARED
    assert numbers(postgresql.connect) == [1]


def test_a_transaction_block_of_the_driver_that_is_left_open_prepares_nothing(
    postgresql, rows, broker, topic
):
    """Neither commit nor roll-back are the block's then: whoever has the connection may still commit."""
    inner = rows.transaction()
    with pytest.raises(errors.Misuse, match=r"connection\.transaction\(\)") as caught:
        with txbroker.atomic(rows, broker) as tx:
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
    with pytest.raises(errors.OutcomeUnknown), txbroker.atomic(rows, broker) as tx:
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
        with txbroker.atomic(modern, broker, wait="commit") as tx:
            modern.execute("INSERT INTO orders VALUES (1)")
            tx.send(topic, b"1")
        modern.execute("BEGIN IMMEDIATE")
        with pytest.raises(ZeroDivisionError), txbroker.atomic(modern, broker) as tx:
            modern.execute("INSERT INTO orders VALUES (2)")
            tx.send(topic, b"2")
            _ = 1 / 0
        assert not modern.in_transaction
    assert (numbers(lambda: sqlite3.connect(sqlite)), values(broker, topic)) == ([1], [b"1"])


# -- the row is inserted where no resolver looks -----------------------------------------------------


def test_another_schema_inside_of_the_block_decides_nothing(rows, broker, topic):
    """One connection, a schema per tenant: the row would be in a table that does not decide this xid."""
    rows.execute("CREATE SCHEMA tenant")
    rows.commit()
    rows.execute("SET search_path = tenant")
    rows.commit()
    make_tables(rows)
    rows.execute("SET search_path = public")
    rows.commit()
    with pytest.raises(errors.DecisionTableRefused, match="another one"), txbroker.atomic(rows, broker) as tx:
        tx.send(topic, b"1")
        rows.execute("SET LOCAL search_path = tenant")
        execute(rows, "INSERT INTO orders VALUES (1)")
    assert tx.outcome is State.ROLLED_BACK
    assert broker.transactions([State.PREPARED], global_prefix=tx.xid.global_id) == []
    assert rows.execute("SELECT count(*) FROM tenant.orders").fetchone() == (0,)


def test_another_database_inside_of_the_block_decides_nothing_in_mariadb(
    mariadb, mariadb_server, broker, topic
):
    other = mariadb_server.create_database()
    try:
        for each in (mariadb, other):
            with contextlib.closing(each.connect()) as database:
                make_tables(database)
        with contextlib.closing(mariadb.connect()) as database:
            with pytest.raises(errors.DecisionTableRefused, match="another one"):
                with txbroker.atomic(database, broker) as tx:
                    tx.send(topic, b"1")
                    execute(database, f"USE `{other.name}`")
                    execute(database, "INSERT INTO orders VALUES (1)")
            assert tx.outcome is State.ROLLED_BACK
        assert numbers(other.connect) == []
    finally:
        other.drop()


def test_a_background_that_finds_another_table_says_so(postgresql, rows, broker, topic):
    """The program has set its search_path by a statement, which the resolver's connection does not know of."""
    rows.execute("CREATE SCHEMA tenant")
    rows.commit()
    with contextlib.closing(postgresql.connect()) as tenant:
        tenant.execute("SET search_path = tenant")
        tenant.commit()
        make_tables(tenant)
        with txbroker.atomic(tenant, broker, wait="commit") as tx:
            execute(tenant, "INSERT INTO orders VALUES (1)")
            tx.send(topic, b"1")
        eventually(lambda: "DecisionTableRefused" in broker.resolver.status.failure)
        assert tenant.execute("SELECT count(*) FROM txbroker_decision").fetchone() == (1,)


# -- a table that cannot decide ----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("statement", "reason"),
    [
        ("ALTER TABLE txbroker_decision DROP CONSTRAINT txbroker_decision_pkey", "unique"),
        (
            "ALTER TABLE txbroker_decision DROP CONSTRAINT txbroker_decision_pkey, "
            "ADD PRIMARY KEY (xid) DEFERRABLE INITIALLY DEFERRED",
            "unique",
        ),
        (
            "ALTER TABLE txbroker_decision DROP CONSTRAINT txbroker_decision_pkey, ADD PRIMARY KEY (xid, decision)",
            "unique",
        ),
        ("ALTER TABLE txbroker_decision SET UNLOGGED", "UNLOGGED"),
    ],
)
def test_a_table_that_could_not_decide_is_refused_in_postgresql(postgresql, rows, broker, statement, reason):
    rows.execute(statement)
    rows.commit()
    with pytest.raises(errors.DecisionTableRefused, match=reason):
        txbroker.atomic(rows, broker).__enter__()
    with txbroker.Resolver(postgresql.connect, broker) as resolver:
        with pytest.raises(errors.DecisionTableRefused, match=reason):
            resolver.resolve()


def test_a_table_without_the_key_is_refused_elsewhere(sqlite, mariadb, broker):
    for opened in (lambda: sqlite3.connect(sqlite), mariadb.connect):
        with contextlib.closing(opened()) as database:
            make_tables(database)
            execute(database, "DROP TABLE txbroker_decision")
            columns = "xid VARCHAR(64), decision VARCHAR(20), broker VARCHAR(32), decided_at TIMESTAMP"
            execute(database, f"CREATE TABLE txbroker_decision ({columns})")
            database.commit()
            with pytest.raises(errors.DecisionTableRefused, match="unique"):
                txbroker.atomic(database, broker).__enter__()


# -- seen before it is on disk -----------------------------------------------------------------------


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
        tx = txbroker.atomic(database, broker).__enter__()
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
            txbroker.atomic(database, broker).__enter__()
        execute(database, "SET GLOBAL sync_binlog = 1")
        with txbroker.atomic(database, broker):
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

    with txbroker.atomic(lite, broker) as tx:
        broker.resolver.stop(5.0)
        lite.execute("INSERT INTO orders VALUES (1)")
        tx.send(topic, b"1")
        monkeypatch.setattr(os, "fsync", spy)
    assert seen == ([[]] if forced else [])


def test_the_end_of_sqlites_journal_is_on_disk_with_sqlalchemy_too(sqlite, lite, broker, topic, monkeypatch):
    from sqlalchemy import create_engine, text

    forced, fsync = [], os.fsync

    def spy(descriptor):
        forced.append(os.path.samestat(os.fstat(descriptor), os.stat(sqlite.parent)))
        fsync(descriptor)

    engine = create_engine(f"sqlite:///{sqlite}")
    with engine.connect() as connection:
        with txbroker.atomic(connection, broker) as tx:
            broker.resolver.stop(5.0)
            connection.execute(text("INSERT INTO orders VALUES (1)"))
            tx.send(topic, b"1")
            monkeypatch.setattr(os, "fsync", spy)
    engine.dispose()
    assert forced == [True]


def test_what_a_resolver_has_seen_in_sqlite_is_on_disk_before_the_broker_is_told(
    sqlite, lite, broker, topic, monkeypatch
):
    tx = txbroker.atomic(lite, broker).__enter__()
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


# -- a block that does not come to its end -----------------------------------------------------------


def test_a_block_that_cannot_begin_leaves_the_connection_as_it_was(sqlite, lite, broker, monkeypatch):
    def no_more_threads(background, name, connector):
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as patch:
        patch.setattr("txbroker.databases.background.Background.watch", no_more_threads)
        with pytest.raises(RuntimeError), txbroker.atomic(lite, broker):
            raise AssertionError("the block was entered")
    assert not lite.in_transaction  # else it would keep all others from writing
    with txbroker.atomic(lite, broker):
        pass


def test_an_interrupted_roll_back_leaves_the_connection_usable(sqlite, lite, broker, topic):
    with pytest.raises(KeyboardInterrupt), txbroker.atomic(lite, broker) as tx:
        lite.execute("INSERT INTO orders VALUES (1)")
        tx.send(topic, b"1")

        async def interrupted():
            raise KeyboardInterrupt

        tx.database.rollback = interrupted
        _ = 1 / 0
    assert tx.outcome is State.PREPARED  # what becomes of the rows is for whoever has the connection
    lite.rollback()
    with txbroker.atomic(lite, broker, wait="commit") as tx:
        tx.send(topic, b"2")
    assert values(broker, topic) == [b"2"]


@pytest.mark.parametrize("kind", [KeyboardInterrupt, SystemExit, GeneratorExit])
def test_an_interruption_while_preparing_takes_both_back(open_database, database, broker, topic, kind):
    def interrupt():
        raise kind

    with pytest.raises(kind), txbroker.atomic(database, broker) as tx:
        execute(database, "INSERT INTO orders VALUES (1)")
        tx.send(topic, b"1")
        between_prepare_and_commit(tx, interrupt)
    assert tx.outcome is State.ROLLED_BACK
    assert broker.wait_outcome(tx.xid, 15.0) is State.ROLLED_BACK
    assert (numbers(open_database), values(broker, topic)) == ([], [])


@pytest.mark.parametrize("kind", [KeyboardInterrupt, SystemExit])
def test_an_interruption_while_committing_is_no_answer(open_database, database, broker, topic, kind):
    with pytest.raises(kind) as caught, txbroker.atomic(database, broker) as tx:
        execute(database, "INSERT INTO orders VALUES (1)")
        tx.send(topic, b"1")
        commit = tx.database.commit

        async def interrupted():
            await commit()
            raise kind

        tx.database.commit = interrupted
    assert tx.outcome is State.PREPARED
    assert str(tx.xid) in caught.value.__notes__[-1]
    assert broker.wait_outcome(tx.xid, 15.0) is State.COMMITTED
    assert (numbers(open_database), values(broker, topic)) == ([1], [b"1"])


def test_leaving_a_block_early_commits_both(open_database, database, broker, topic):
    def returns():
        with txbroker.atomic(database, broker, wait="commit") as tx:
            execute(database, "INSERT INTO orders VALUES (1)")
            tx.send(topic, b"1")
            return tx

    assert returns().outcome is State.COMMITTED
    for number in (2, 3):
        with txbroker.atomic(database, broker, wait="commit") as tx:
            execute(database, f"INSERT INTO orders VALUES ({number})")
            tx.send(topic, b"%d" % number)
            break
    assert (numbers(open_database), values(broker, topic)) == ([1, 2], [b"1", b"2"])


def test_a_generator_that_is_closed_in_its_block_takes_both_back(open_database, database, broker, topic):
    def works():
        with txbroker.atomic(database, broker) as tx:
            execute(database, "INSERT INTO orders VALUES (1)")
            tx.send(topic, b"1")
            yield tx

    generator = works()
    tx = next(generator)
    generator.close()
    assert tx.outcome is State.ROLLED_BACK
    assert (numbers(open_database), values(broker, topic)) == ([], [])


# -- databases that undo by themselves ---------------------------------------------------------------


def test_a_deadlock_that_undid_everything_leaves_no_message(mariadb, broker, topic):
    """InnoDB rolls the whole transaction back then; what follows is in another one."""
    with contextlib.closing(mariadb.connect()) as database, contextlib.closing(mariadb.connect()) as other:
        make_tables(database)
        for number in (1, 2):
            execute(database, f"INSERT INTO orders VALUES ({number})")
        database.commit()
        with pytest.raises(errors.Misuse, match="gone"), txbroker.atomic(database, broker) as tx:
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
    import threading

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
        with txbroker.atomic(database, broker, wait="commit") as tx:
            execute(database, "INSERT INTO orders VALUES (1)")
            with pytest.raises(pymysql.err.OperationalError):
                execute(database, "INSERT INTO orders VALUES (9)")
            tx.send(topic, b"1")
        other.rollback()
    assert (numbers(mariadb.connect), values(broker, topic)) == ([1], [b"1"])


def test_a_conflict_that_undid_everything_leaves_no_message_in_sqlite(sqlite, lite, broker, topic):
    lite.execute("INSERT INTO orders VALUES (1)")
    lite.commit()
    with pytest.raises(errors.Misuse, match="gone"), txbroker.atomic(lite, broker) as tx:
        lite.execute("INSERT INTO orders VALUES (2)")
        tx.send(topic, b"2")
        with contextlib.suppress(sqlite3.IntegrityError):
            lite.execute("INSERT OR ROLLBACK INTO orders VALUES (1)")
        lite.execute("INSERT INTO orders VALUES (3)")
    assert numbers(lambda: sqlite3.connect(sqlite)) == [1]
    assert values(broker, topic) == []


# -- the worker beside -------------------------------------------------------------------------------


def test_the_background_outlives_what_it_did_not_expect(lite, broker, topic, caplog):
    with txbroker.atomic(lite, broker):
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
    with txbroker.atomic(lite, broker) as tx:
        tx.send(topic, b"1")
    eventually(lambda: lite.execute("SELECT count(*) FROM txbroker_decision").fetchone() == (0,))
    assert background.status.is_running
    assert "too many open files" in caplog.text


def test_a_forced_commit_beside_a_mark_is_told(sqlite, lite, broker, topic):
    """A resolver had decided "rolled back" and died; a person then forced the commit."""
    tx = txbroker.atomic(lite, broker).__enter__()
    broker.resolver.stop(5.0)
    tx.send(topic, b"1")
    assert run(tx.deciding.prepare())
    lite.rollback()
    tx.deciding._unregister()
    with txbroker.Resolver(lambda: sqlite3.connect(sqlite), broker) as resolver:
        assert resolver.decide(tx.xid) == "rolled back"
        broker.commit_transaction(tx.xid, by="ann", why="too impatient")
        key = tx.xid.global_id.decode()
        assert resolver.sweep_rows([(key, "rolled back")]) == (0, [key])
        assert lite.execute("SELECT decision FROM txbroker_decision").fetchall() == [("contradicted",)]


def test_the_adapter_tells_that_a_statement_is_under_way(postgresql, rows):
    with rows.cursor() as cursor, cursor.copy("COPY orders FROM STDIN"):
        assert adapt(rows).condition().name == "OPEN"

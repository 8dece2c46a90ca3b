"""Test blocks of which nobody was told how they ended: the database says it, and it stays so whenever it is asked."""

# ruff: noqa: PT012 - a whole block is what raises

import contextlib
import os
import signal
import sqlite3
import threading

import psycopg
import pymysql
import pytest

import txbroker
from journal.transaction_states import State
from tests.databases.deaths.sigkill import DIES_AT_COMMIT
from tests.databases.deaths.test_interrupts import SLOWLY, Soft, alarm  # noqa: F401 - a fixture
from tests.databases.orders import execute, numbers
from tests.databases.outbox.scene import all_of, has_come, rows_of, send
from tests.support.waiting import eventually
from txbroker import errors
from txbroker.databases.adapters.postgresql import PsycopgDatabase

pytestmark = pytest.mark.slow

LOST = {
    "sqlite": sqlite3.OperationalError("disk I/O error"),
    "postgresql": psycopg.OperationalError("server closed the connection unexpectedly"),
    "mariadb": pymysql.err.OperationalError(2013, "Lost connection to MySQL server during query"),
}


@pytest.fixture
def lost(request):
    """What the driver raises for a connection that is lost."""
    return LOST[request.node.callspec.params["open_database"]]


def block(database, broker, topic, number, act):
    """A block whose database does something else when it is to commit."""
    with (
        pytest.raises(errors.OutcomeUnknown) as caught,
        txbroker.atomic(database, broker, mode="outbox") as tx,
    ):
        execute(database, f"INSERT INTO orders VALUES ({number})")
        tx.send(topic, b"%d" % number)
        adapter = tx.database
        name = "commit_with" if adapter.commits_with_row else "commit"
        original = getattr(adapter, name)

        async def replaced(*arguments):
            await act(adapter, original, *arguments)

        setattr(adapter, name, replaced)
    assert tx.outcome is State.PREPARED
    assert caught.value.xid == tx.xid
    return tx


def deliver_all(open_database, broker):
    with txbroker.Resolver(open_database, broker) as resolver:
        resolver.resolve()
        return resolver.resolve()


class TestLostAnswers:
    def test_what_has_committed_is_known_to_have_and_arrives(
        self, open_database, database, broker, topic, lost
    ):
        async def loses_the_answer(adapter, commit, *arguments):
            await commit(*arguments)
            raise lost

        send(database, broker, topic, 1, wait="commit")
        tx = block(database, broker, topic, 2, loses_the_answer)
        for _ in range(2):
            assert broker.wait_outcome(tx.xid, 10.0) is State.COMMITTED
        deliver_all(open_database, broker)
        assert broker.wait_outcome(tx.xid, 10.0) is State.COMMITTED  # delivered, and its row deleted
        assert all_of(broker, topic) == [1, 2]
        assert rows_of(open_database) == []

    def test_what_has_not_committed_is_known_not_to_have_and_never_will(
        self, open_database, database, broker, topic, lost
    ):
        async def is_lost(adapter, commit, *arguments):
            await adapter.close()
            raise lost

        send(database, broker, topic, 1, wait="commit")
        tx = block(database, broker, topic, 2, is_lost)
        for _ in range(2):
            assert broker.wait_outcome(tx.xid, 10.0) is State.ROLLED_BACK
        deliver_all(open_database, broker)
        assert broker.wait_outcome(tx.xid, 10.0) is State.ROLLED_BACK
        assert deliver_all(open_database, broker).is_quiet
        assert numbers(open_database) == all_of(broker, topic) == [1]

    def test_the_first_block_of_a_stream_that_was_never_claimed_is_found_out(
        self, open_database, database, mortal_broker, lost
    ):
        """The broker does not know the stream, because it was down all the time."""

        async def loses_the_answer(adapter, commit, *arguments):
            await commit(*arguments)
            raise lost

        with txbroker.connect(mortal_broker.address, timeout=30.0) as broker:
            broker.create_topic("orders")
            with contextlib.closing(open_database()) as other:
                send(other, broker, "orders", 1, wait="commit")
            broker.send("orders", b"2")
            mortal_broker.kill()
            tx = block(database, broker, "orders", 3, loses_the_answer)
            mortal_broker.start()
            assert broker.wait_outcome(tx.xid, 30.0) is State.COMMITTED
            deliver_all(open_database, broker)
            has_come(broker, "orders", 1, 2, 3)

    def test_another_process_that_looks_after_the_database_may_ask(
        self, open_database, database, shared_broker, broker, topic, lost
    ):
        async def loses_the_answer(adapter, commit, *arguments):
            await commit(*arguments)
            raise lost

        tx = block(database, broker, topic, 1, loses_the_answer)
        with (
            txbroker.connect(shared_broker.address, timeout=30.0) as other,
            contextlib.closing(open_database()) as second,
        ):
            with txbroker.atomic(second, other):
                pass
            assert other.wait_outcome(tx.xid, 10.0) is State.COMMITTED


class TestOpenTransactions:
    """The row is inserted, COMMIT comes late: the database connection is held by something that hangs."""

    @pytest.fixture(autouse=True)
    def inserts_first(self, monkeypatch):
        """Have psycopg's rows inserted before COMMIT, as with psycopg2."""
        monkeypatch.setattr(PsycopgDatabase, "commits_with_row", False)

    @pytest.mark.parametrize("ends", ["commit", "rollback"])
    def test_as_long_as_it_is_open_nothing_is_told_and_then_the_truth(
        self, open_database, database, broker, topic, lost, ends
    ):
        async def hangs(adapter, commit, *arguments):
            async def stays_open():
                pass

            adapter.close = stays_open
            adapter.did_not_commit = lambda error: False
            raise lost

        send(database, broker, topic, 1, wait="commit")
        tx = block(database, broker, topic, 2, hangs)
        with pytest.raises(errors.OutcomeUnknown, match="still prepared"):
            broker.wait_outcome(tx.xid, 1.0)
        getattr(database, ends)()
        committed = ends == "commit"
        told = State.COMMITTED if committed else State.ROLLED_BACK
        for _ in range(2):
            assert broker.wait_outcome(tx.xid, 20.0) is told
        deliver_all(open_database, broker)
        assert sorted(numbers(open_database)) == all_of(broker, topic) == ([1, 2] if committed else [1])


class TestPostgresql:
    """The row is sent together with COMMIT."""

    def test_a_backend_that_dies_in_commit_leaves_neither(self, postgresql, rows, broker, topic):
        for statement in DIES_AT_COMMIT:
            rows.execute(statement)
        rows.commit()
        with contextlib.closing(postgresql.connect()) as database:
            with pytest.raises(errors.OutcomeUnknown) as caught:
                send(database, broker, topic, 1)
            assert [broker.wait_outcome(caught.value.xid, 10.0) for _ in range(2)] == [State.ROLLED_BACK] * 2
        deliver_all(postgresql.connect, broker)
        assert (numbers(postgresql.connect), all_of(broker, topic)) == ([], [])

    @pytest.mark.parametrize("kind", ["exception", "KeyboardInterrupt"])
    def test_a_commit_that_is_interrupted_is_decided_there(
        self,
        postgresql,
        rows,
        broker,
        topic,
        alarm,
        kind,  # noqa: F811
    ):
        rows.execute(SLOWLY)
        rows.commit()
        with contextlib.closing(postgresql.connect()) as database:
            if kind == "KeyboardInterrupt":
                signal.signal(signal.SIGALRM, signal.default_int_handler)
            with (
                pytest.raises(BaseException) as caught,  # noqa: PT011
                txbroker.atomic(database, broker, mode="outbox") as tx,
            ):
                database.execute("INSERT INTO orders VALUES (1)")
                tx.send(topic, b"1")
                alarm(0.3)
            assert isinstance(caught.value, errors.OutcomeUnknown | KeyboardInterrupt | psycopg.Error)
            assert tx.outcome is State.PREPARED
            assert database.closed
        told = broker.wait_outcome(tx.xid, 20.0)
        assert broker.wait_outcome(tx.xid, 20.0) is told
        eventually(lambda: numbers(postgresql.connect) == ([1] if told is State.COMMITTED else []))
        deliver_all(postgresql.connect, broker)
        assert all_of(broker, topic) == numbers(postgresql.connect)

    def test_what_was_told_to_be_rolled_back_does_not_commit_though_its_commit_is_under_way(
        self,
        postgresql,
        rows,
        broker,
        topic,
        alarm,  # noqa: F811
    ):
        """The server is stopped before it reads the row and COMMIT, and goes on after somebody has asked."""
        with contextlib.closing(postgresql.connect()) as database:
            send(database, broker, topic, 1, wait="commit")
            backend = database.info.backend_pid
            with (
                pytest.raises(errors.OutcomeUnknown),
                txbroker.atomic(database, broker, mode="outbox") as tx,
            ):
                database.execute("INSERT INTO orders VALUES (2)")
                tx.send(topic, b"2")
                os.kill(backend, signal.SIGSTOP)
                alarm(0.3)
        try:
            assert broker.wait_outcome(tx.xid, 10.0) is State.ROLLED_BACK
            deliver_all(postgresql.connect, broker)
            deliver_all(postgresql.connect, broker)
        finally:
            os.kill(backend, signal.SIGCONT)
        rows.autocommit = True
        still = "SELECT 1 FROM pg_stat_activity WHERE pid = %s"
        eventually(lambda: not rows.execute(still, (backend,)).fetchall())
        assert deliver_all(postgresql.connect, broker).is_quiet
        assert broker.wait_outcome(tx.xid, 10.0) is State.ROLLED_BACK
        assert (numbers(postgresql.connect), all_of(broker, topic)) == ([1], [1])

    def test_a_mark_goes_when_its_block_is_long_over(self, postgresql, rows, broker, topic, monkeypatch):
        with contextlib.closing(postgresql.connect()) as database:

            async def is_lost(adapter, commit, *arguments):
                await adapter.close()
                raise LOST["postgresql"]

            tx = block(database, broker, topic, 1, is_lost)
        assert broker.wait_outcome(tx.xid, 10.0) is State.ROLLED_BACK
        assert len(rows_of(postgresql.connect)) == 1
        deliver_all(postgresql.connect, broker)
        assert len(rows_of(postgresql.connect)) == 1
        monkeypatch.setattr("txbroker.databases.outbox.keeper.KEPT", 0.0)
        deliver_all(postgresql.connect, broker)
        assert rows_of(postgresql.connect) == []


def test_a_row_that_others_deliver_while_it_is_asked_for_has_committed(
    open_database, database, broker, topic, lost, monkeypatch
):
    """Between the claim of who asks and its look at the row others claim, deliver, and delete the row."""

    async def loses_the_answer(adapter, commit, *arguments):
        await commit(*arguments)
        raise lost

    send(database, broker, topic, 1, wait="commit")
    tx = block(database, broker, topic, 2, loses_the_answer)
    with txbroker.Resolver(open_database, broker) as asks:
        asks.look()
        keeper, look = asks.keeper, asks.keeper._row_outcome
        xid = tx.xid.global_id.decode().split("-")

        def late(*arguments):
            deliver_all(open_database, broker)
            return look(*arguments)

        monkeypatch.setattr(keeper, "_row_outcome", late)
        assert keeper.outcome(xid[1], int(xid[2], 16)) is State.COMMITTED
        assert all_of(broker, topic) == [1, 2]
        assert rows_of(open_database) == []


def test_a_row_that_others_refuse_while_it_is_asked_for_has_committed(
    open_database, database, shared_broker, broker, topic, lost, monkeypatch
):
    async def loses_the_answer(adapter, commit, *arguments):
        await commit(*arguments)
        raise lost

    send(database, broker, topic, 1, wait="commit")
    tx = block(database, broker, topic, 2, loses_the_answer)
    with (
        txbroker.Resolver(open_database, broker) as asks,
        txbroker.connect(shared_broker.address) as operator,
    ):
        asks.look()
        keeper, look = asks.keeper, asks.keeper._row_outcome
        xid = tx.xid.global_id.decode().split("-")
        operator.delete_topic(topic)

        def late(*arguments):
            deliver_all(open_database, operator)
            return look(*arguments)

        monkeypatch.setattr(keeper, "_row_outcome", late)
        for _ in range(2):
            assert keeper.outcome(xid[1], int(xid[2], 16)) is State.COMMITTED
        assert len(rows_of(open_database, "txbroker_outbox_refused")) == 1
        assert rows_of(open_database) == []


def test_a_block_that_was_rolled_back_at_its_end_is_known_to_be_though_later_ones_are_delivered(
    database, broker, topic
):
    send(database, broker, topic, 1, wait="commit")

    def no_more():
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError), txbroker.atomic(database, broker, mode="outbox") as tx:
        execute(database, "INSERT INTO orders VALUES (2)")
        tx.send(topic, b"2")
        tx.deciding.last_moment = no_more
    send(database, broker, topic, 3, wait="commit")
    assert broker.wait_outcome(tx.xid, 10.0) is State.ROLLED_BACK
    assert all_of(broker, topic) == [1, 3]


def test_a_committed_block_is_known_though_another_process_has_taken_its_stream_over(
    open_database, database, mortal_broker, tmp_path
):
    with txbroker.connect(mortal_broker.address, timeout=30.0) as broker:
        broker.create_topic("orders")
        send(database, broker, "orders", 1, wait="commit")
        tx = send(database, broker, "orders", 2)
        asked = []
        thread = threading.Thread(target=lambda: asked.append(broker.wait_outcome(tx.xid, 20.0)))
        with txbroker.connect(mortal_broker.address, timeout=30.0) as other:
            thread.start()
            deliver_all(open_database, other)
            thread.join()
        assert asked == [State.COMMITTED]
        assert all_of(broker, "orders") == [1, 2]

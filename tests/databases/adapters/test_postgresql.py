"""Test blocks on PostgreSQL: what only it can do, refuse or lose."""

# ruff: noqa: PT012, SIM117 - a whole block is what raises

import contextlib
import time

import psycopg
import pytest
from psycopg.rows import dict_row

import txbroker
from tests.databases.resolver.step_scene import all_rows
from tests.databases.topic_content import values
from txbroker import State, errors
from txbroker.databases.adapters.adapter import adapt

pytestmark = pytest.mark.slow


@pytest.fixture
def database(postgresql):
    with contextlib.closing(postgresql.connect()) as connection:
        connection.execute("CREATE TABLE orders (number INTEGER PRIMARY KEY, state TEXT)")
        connection.commit()
        txbroker.create_decision_table(connection)
        yield connection


def numbers(database):
    try:
        return [number for (number,) in database.execute("SELECT number FROM orders ORDER BY number")]
    finally:
        database.rollback()


def order(database, number):
    database.execute("INSERT INTO orders VALUES (%s, 'new')", (number,))


def resolved(postgresql, broker):
    with txbroker.Resolver(postgresql.connect, broker) as resolver:
        return resolver.resolve()


def test_a_row_and_a_message_become_one(database, broker, topic):
    with txbroker.atomic(database, broker, application="shop", wait="commit", mode="two-phase") as tx:
        order(database, 42)
        tx.send(topic, b"order 42", key=b"42")
    assert tx.outcome is State.COMMITTED
    assert numbers(database) == [42]
    assert values(broker, topic) == [b"order 42"]


def test_rows_as_dictionaries_and_prepared_statements_do_not_matter(postgresql, database, broker, topic):
    with contextlib.closing(postgresql.connect(row_factory=dict_row)) as other:
        for number in range(10):  # psycopg prepares what it has seen five times
            with txbroker.atomic(other, broker, wait="commit", mode="two-phase") as tx:
                order(other, number)
                tx.send(topic, b"%d" % number)
    assert len(numbers(database)) == len(values(broker, topic)) == 10


def test_a_connection_that_has_read_is_in_a_transaction_and_joined(database, broker, topic):
    database.execute("SELECT 1")
    with txbroker.atomic(database, broker, wait="commit", mode="two-phase") as tx:
        order(database, 1)
        tx.send(topic, b"1")
    assert (numbers(database), values(broker, topic)) == ([1], [b"1"])


def test_a_failed_transaction_is_refused(database, broker):
    with pytest.raises(psycopg.errors.DivisionByZero):
        database.execute("SELECT 1 / 0")
    with pytest.raises(errors.Misuse, match=r"failed.*roll it back first"):
        txbroker.atomic(database, broker, mode="two-phase").__enter__()


def test_autocommit_is_refused(postgresql, database, broker):
    refused = pytest.raises(errors.Misuse, match="autocommit")
    with contextlib.closing(postgresql.connect(autocommit=True)) as by_itself, refused:
        txbroker.atomic(by_itself, broker, mode="two-phase").__enter__()


def test_a_transaction_block_of_psycopg_is_refused(database, broker):
    with database.transaction(), pytest.raises(errors.Misuse, match=r"connection\.transaction\(\)"):
        txbroker.atomic(database, broker, mode="two-phase").__enter__()


def test_pipeline_mode_is_refused(database, broker):
    with database.pipeline(), pytest.raises(errors.Misuse, match="pipeline mode"):
        txbroker.atomic(database, broker, mode="two-phase").__enter__()


def test_a_read_only_transaction_is_refused(database, broker):
    database.read_only = True
    with pytest.raises(errors.Misuse, match=r"read-only.*primary"):
        txbroker.atomic(database, broker, mode="two-phase").__enter__()
    database.read_only = False


def test_a_missing_table_is_named_with_what_makes_it(postgresql, broker):
    with contextlib.closing(postgresql.connect()) as database:
        with pytest.raises(errors.DecisionTableMissing, match="txbroker resolve --database URL --create"):
            txbroker.atomic(database, broker, mode="two-phase").__enter__()
        assert database.info.transaction_status == psycopg.pq.TransactionStatus.IDLE


def test_a_commit_inside_of_the_block_is_found_before_anything_is_prepared(database, broker, topic):
    with (
        pytest.raises(errors.Misuse, match="committed it"),
        txbroker.atomic(database, broker, mode="two-phase") as tx,
    ):
        order(database, 1)
        tx.send(topic, b"1")
        database.commit()
        order(database, 2)
    assert numbers(database) == [1]
    assert values(broker, topic) == []
    with pytest.raises(errors.UnknownTransaction):
        broker.outcome(tx.xid)


def test_a_swallowed_error_in_the_block_leaves_nothing(database, broker, topic):
    with (
        pytest.raises(psycopg.errors.InFailedSqlTransaction),
        txbroker.atomic(database, broker, mode="two-phase") as tx,
    ):
        tx.send(topic, b"1")
        order(database, 1)
        with contextlib.suppress(psycopg.Error):
            database.execute("SELECT 1 / 0")
    assert (numbers(database), values(broker, topic)) == ([], [])


def test_a_serialization_failure_is_a_no(postgresql, database, broker, topic):
    with contextlib.closing(postgresql.connect()) as other:
        for connection in (database, other):
            connection.isolation_level = psycopg.IsolationLevel.SERIALIZABLE
        with pytest.raises(psycopg.errors.SerializationFailure) as caught:
            with txbroker.atomic(database, broker, mode="two-phase") as tx:
                database.execute("SELECT count(*) FROM orders")
                order(database, 1)
                tx.send(topic, b"1")
                other.execute("SELECT count(*) FROM orders")
                order(other, 2)
                other.commit()
    assert tx.outcome is State.ROLLED_BACK
    assert "can be run again" in caught.value.__notes__[-1]
    assert (numbers(database), values(broker, topic)) == ([2], [])


def test_a_deferred_constraint_that_commit_refuses_is_a_no(database, broker, topic):
    database.execute("CREATE TABLE lines (number INTEGER REFERENCES orders DEFERRABLE INITIALLY DEFERRED)")
    database.commit()
    with (
        pytest.raises(psycopg.errors.ForeignKeyViolation),
        txbroker.atomic(database, broker, mode="two-phase") as tx,
    ):
        database.execute("INSERT INTO lines VALUES (99)")
        tx.send(topic, b"1")
    assert tx.outcome is State.ROLLED_BACK
    assert broker.wait_outcome(tx.xid, 5.0) is State.ROLLED_BACK


def test_a_commit_that_would_not_be_forced_is_forced_here_and_only_here(database, broker, topic):
    database.execute("SET synchronous_commit = off")
    database.commit()
    seen = []
    adapter = adapt(database)
    with txbroker.atomic(database, broker, mode="two-phase") as tx:
        tx.send(topic, b"1")
        commit = tx.database.commit

        async def look_and_commit():
            seen.append(database.execute("SHOW synchronous_commit").fetchone()[0])
            await commit()

        tx.database.commit = look_and_commit
    assert seen == ["on"]
    assert database.execute("SHOW synchronous_commit").fetchone()[0] == "off"
    assert adapter.handle is database


class LosesTheAnswer(psycopg.Connection):
    """Its COMMIT arrives, and its answer does not."""

    def commit(self):
        super().commit()
        self.close()
        raise psycopg.OperationalError("the connection was lost")


class LosesTheQuestion(psycopg.Connection):
    """Its COMMIT never arrives, which nobody here can know."""

    def commit(self):
        self.close()
        raise psycopg.OperationalError("the connection was lost")


@pytest.mark.parametrize(
    ("kind", "state"), [(LosesTheAnswer, "COMMITTED"), (LosesTheQuestion, "ROLLED_BACK")]
)
def test_a_lost_answer_to_commit_is_found_out_by_the_resolver(
    postgresql, database, broker, topic, kind, state
):
    with (
        contextlib.closing(kind.connect(postgresql.url)) as lossy,
        pytest.raises(
            errors.OutcomeUnknown, match=r"wait_outcome\(xid\).*Do not do the work again"
        ) as caught,
        txbroker.atomic(lossy, broker, mode="two-phase") as tx,
    ):
        order(lossy, 1)
        tx.send(topic, b"1")
    assert caught.value.xid == tx.xid
    assert tx.outcome is State.PREPARED
    assert broker.wait_outcome(tx.xid, 15.0) is State[state]  # the resolver in the background
    there = [1] if state == "COMMITTED" else []
    assert numbers(database) == there
    assert values(broker, topic) == [b"%d" % number for number in there]


@pytest.mark.parametrize(
    ("error", "known"),
    [
        (psycopg.errors.SerializationFailure, True),
        (psycopg.errors.UniqueViolation, True),
        (psycopg.errors.TransactionResolutionUnknown, False),
        (psycopg.errors.StatementCompletionUnknown, False),
        (psycopg.errors.AdminShutdown, False),
        (psycopg.OperationalError, False),  # without an SQLSTATE it comes from here, not from the server
        (KeyboardInterrupt, False),
    ],
)
def test_only_an_answer_of_the_server_is_a_no(database, error, known):
    assert adapt(database).did_not_commit(error()) is known


def test_a_backend_that_is_terminated_before_commit_leaves_nothing(postgresql, database, broker, topic):
    with contextlib.closing(postgresql.connect()) as victim:
        with pytest.raises(psycopg.OperationalError), txbroker.atomic(victim, broker, mode="two-phase") as tx:
            order(victim, 1)
            tx.send(topic, b"1")
            database.execute("SELECT pg_terminate_backend(%s)", (victim.info.backend_pid,))
        assert tx.outcome is State.ROLLED_BACK
    assert (numbers(database), values(broker, topic)) == ([], [])


def test_a_restored_dump_decides_nothing(postgresql, postgresql_server, database, broker):
    (identity,) = database.execute("SELECT identity FROM txbroker_identity").fetchone()
    database.rollback()
    copy = postgresql_server.create_database()
    try:
        with contextlib.closing(copy.connect()) as restored:
            txbroker.create_decision_table(restored)
            restored.execute("UPDATE txbroker_identity SET identity = %s", (identity,))
            restored.commit()
            with pytest.raises(errors.DecisionTableRefused, match="is a copy"):
                txbroker.atomic(restored, broker, mode="two-phase").__enter__()
            assert txbroker.create_decision_table(restored, adopt="replacement")
            with txbroker.atomic(restored, broker, mode="two-phase"):
                pass
    finally:
        broker.resolver.stop(5.0)
        broker.resolver = None
        copy.drop()


def test_a_resolver_waits_for_a_program_that_is_still_open(postgresql, database, broker, topic):
    """The slow program, for real: it stops between prepare and COMMIT while a resolver passes twice."""
    results = []
    with txbroker.atomic(database, broker, wait="commit", mode="two-phase") as tx:
        order(database, 1)
        tx.send(topic, b"1")
        commit = tx.database.commit

        async def slow_commit():
            with txbroker.Resolver(postgresql.connect, broker, lock_timeout=0.1) as resolver:
                results.extend([resolver.resolve(), resolver.resolve()])
            await commit()

        tx.database.commit = slow_commit
    assert [found.waiting for found in results] == [[tx.xid], [tx.xid]]
    assert (numbers(database), values(broker, topic)) == ([1], [b"1"])


def test_a_slow_program_that_comes_back_after_the_resolver_can_not_commit(
    postgresql, database, broker, topic
):
    """Its database transaction was ended while it slept; the mark is gone again when it wakes up."""
    with (
        pytest.raises((errors.OutcomeUnknown, psycopg.Error)),
        txbroker.atomic(database, broker, mode="two-phase") as tx,
    ):
        order(database, 1)
        tx.send(topic, b"1")
        commit = tx.database.commit

        async def slow_commit():
            with contextlib.closing(postgresql.connect(autocommit=True)) as operator:
                operator.execute("SELECT pg_terminate_backend(%s)", (database.info.backend_pid,))
                deadline = time.monotonic() + 10.0
                while not (found := resolved(postgresql, broker)).rolled_back:
                    assert time.monotonic() < deadline
                assert found.rolled_back == [tx.xid]
                left = operator.execute("SELECT xid FROM txbroker_decision").fetchall()
                assert left == []
            await commit()

        tx.database.commit = slow_commit
    with contextlib.closing(postgresql.connect()) as after:
        assert numbers(after) == []
    assert values(broker, topic) == []


def test_a_forced_outcome_against_the_database_is_told_and_its_row_kept(postgresql, database, broker, topic):
    with pytest.raises(errors.HeuristicallyRolledBack) as caught:
        with txbroker.atomic(database, broker, wait="commit", mode="two-phase") as tx:
            order(database, 1)
            tx.send(topic, b"1")
            commit = tx.database.commit

            async def forced_meanwhile():
                await commit()
                broker.rollback_transaction(tx.xid, by="ann", why="too impatient")

            tx.database.commit = forced_meanwhile
    assert "the rows are committed" in caught.value.__notes__[-1]
    assert numbers(database) == [1]
    with txbroker.Resolver(postgresql.connect, broker) as resolver:
        removed, contradicted = resolver.sweep_rows(all_rows(resolver))
        assert (removed, len(contradicted)) == (0, 1)
        assert all_rows(resolver)[0][1] == "contradicted"
        assert resolver.sweep_rows(all_rows(resolver)) == (0, contradicted)


def test_xids_of_another_table_are_left_alone(postgresql, postgresql_server, database, broker, topic):
    other = postgresql_server.create_database()
    try:
        with contextlib.closing(other.connect()) as elsewhere:
            txbroker.create_decision_table(elsewhere)
        with txbroker.atomic(database, broker, wait="commit", mode="two-phase") as tx:
            order(database, 1)
            tx.send(topic, b"1")
            commit = tx.database.commit

            async def resolve_elsewhere():
                found = resolved(other, broker)
                assert (found.rolled_back, found.elsewhere) == ([], 1)
                await commit()

            tx.database.commit = resolve_elsewhere
        assert values(broker, topic) == [b"1"]
    finally:
        other.drop()


def test_the_adapter_tells_that_a_statement_is_under_way(database):
    with database.cursor() as cursor, cursor.copy("COPY orders FROM STDIN"):
        assert adapt(database).condition().name == "OPEN"

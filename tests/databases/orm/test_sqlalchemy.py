"""``txbroker.atomic`` with SQLAlchemy's Sessions and Connections, on real databases."""

# ruff: noqa: PT012, SIM117 - a whole block is what raises

import psycopg
import pytest
from sqlalchemy import create_engine, event, insert, text
from sqlalchemy.exc import DBAPIError, IntegrityError, InvalidRequestError, OperationalError
from sqlalchemy.orm import Session, scoped_session, sessionmaker

import txbroker
from tests.databases.deaths.sigkill import DIES_AT_COMMIT
from tests.databases.orm.orm import Line, Order, make_shop, numbers
from tests.databases.topic_content import values
from tests.support.waiting import eventually
from txbroker import State, errors

pytestmark = pytest.mark.slow


# -- what it promises ------------------------------------------------------------------------------


def test_a_session_and_its_messages_become_one(any_engine, broker, topic):
    with Session(any_engine) as session:
        for number in (1, 2):
            with txbroker.atomic(session, broker, wait="commit", mode="two-phase") as tx:
                session.add(Order(number=number))
                tx.send(topic, b"%d" % number)
                assert values(broker, topic) == [b"1"] * (number - 1)
            assert tx.outcome is State.COMMITTED
            assert not session.in_transaction()
    assert (numbers(any_engine), values(broker, topic)) == ([1, 2], [b"1", b"2"])
    eventually(lambda: decisions(any_engine) == [])
    assert broker.resolver.status.failure == ""


def test_a_joined_transaction_that_gets_no_write_lock_fails_as_sqlalchemy_does(sqlite, lite, broker, topic):
    engine = create_engine(f"sqlite:///{sqlite}", connect_args={"timeout": 0.05})
    lite.execute("INSERT INTO orders VALUES (7)")  # has the lock
    with engine.connect() as connection:
        connection.exec_driver_sql("BEGIN")
        with pytest.raises(OperationalError, match="take the write lock"):
            with txbroker.atomic(connection, broker, mode="two-phase") as tx:
                tx.send(topic, b"8")
    engine.dispose()
    assert values(broker, topic) == []


def decisions(engine):
    with engine.connect() as connection:
        return connection.execute(text("SELECT xid FROM txbroker_decision")).fetchall()


def test_an_exception_takes_both_back(any_engine, broker, topic):
    with Session(any_engine) as session:
        with (
            pytest.raises(ZeroDivisionError) as caught,
            txbroker.atomic(session, broker, mode="two-phase") as tx,
        ):
            session.add(Order(number=1))
            session.flush()
            tx.send(topic, b"1")
            _ = 1 / 0
        assert "neither rows nor messages" in caught.value.__notes__[0]
        assert not session.in_transaction()
    assert (numbers(any_engine), values(broker, topic)) == ([], [])


def test_a_connection_and_its_messages_become_one(any_engine, broker, topic):
    with any_engine.connect() as connection:
        with txbroker.atomic(connection, broker, wait="commit", mode="two-phase") as tx:
            connection.execute(insert(Order), {"number": 1, "state": "new"})
            tx.send(topic, b"1")
        with pytest.raises(ZeroDivisionError), txbroker.atomic(connection, broker, mode="two-phase") as tx:
            connection.execute(insert(Order), {"number": 2, "state": "new"})
            tx.send(topic, b"2")
            _ = 1 / 0
        connection.execute(insert(Order), {"number": 3, "state": "new"})
        connection.commit()  # free again
    assert (numbers(any_engine), values(broker, topic)) == ([1, 3], [b"1"])


def test_what_the_session_holds_back_is_flushed_before_the_decision(any_engine, broker, topic):
    with Session(any_engine, autoflush=False) as session:
        session.add(Order(number=1))
        session.commit()
        with pytest.raises(IntegrityError), txbroker.atomic(session, broker, mode="two-phase") as tx:
            tx.send(topic, b"1")
            session.expunge_all()
            session.add(Order(number=1))
        assert tx.outcome is State.ROLLED_BACK
    assert values(broker, topic) == []


def test_a_message_that_a_flush_sends_is_part_of_it(engine, broker, topic):
    """The block is not taken for an empty one before the flush."""
    sender = []
    event.listen(
        Order, "after_insert", hook := lambda mapper, connection, order: sender[0].send(topic, b"hook")
    )
    try:
        with Session(engine) as session:
            with txbroker.atomic(session, broker, wait="commit", mode="two-phase") as tx:
                sender.append(tx)
                session.add(Order(number=1))
    finally:
        event.remove(Order, "after_insert", hook)
    assert (numbers(engine), values(broker, topic)) == ([1], [b"hook"])


def test_a_commit_that_the_database_refuses_is_sqlalchemys_error_and_leaves_no_message(engine, broker, topic):
    with Session(engine) as session:
        with (
            pytest.raises(IntegrityError) as caught,
            txbroker.atomic(session, broker, mode="two-phase") as tx,
        ):
            session.add(Line(number=1, of_order=99))
            tx.send(topic, b"1")
        assert "neither rows nor messages" in caught.value.__notes__[-1]
        assert tx.outcome is State.ROLLED_BACK
        assert broker.wait_outcome(tx.xid, 10.0) is State.ROLLED_BACK
        with txbroker.atomic(session, broker, wait="commit", mode="two-phase") as tx:
            session.add(Order(number=2))
            tx.send(topic, b"2")
    assert (numbers(engine), values(broker, topic)) == ([2], [b"2"])


def test_a_database_that_dies_in_commit_is_an_unknown_outcome_that_the_resolver_ends(engine, broker, topic):
    with engine.begin() as connection:
        for statement in DIES_AT_COMMIT:
            connection.execute(text(statement))
    with Session(engine) as session:
        with (
            pytest.raises(errors.OutcomeUnknown) as caught,
            txbroker.atomic(session, broker, mode="two-phase") as tx,
        ):
            session.add(Order(number=1))
            tx.send(topic, b"1")
        assert caught.value.xid == tx.xid
        assert broker.wait_outcome(tx.xid, 20.0) is State.ROLLED_BACK
        session.rollback()
    assert (numbers(engine), values(broker, topic)) == ([], [])


def test_an_error_after_commit_is_not_taken_for_a_refusal(engine, broker, topic):
    """It looks like a "no" of a database, and is one of another."""

    def fails(session):
        raise IntegrityError("no", None, psycopg.errors.UniqueViolation("of another database"))

    with Session(engine) as session:
        event.listen(session, "after_commit", fails)
        with pytest.raises(errors.OutcomeUnknown), txbroker.atomic(session, broker, mode="two-phase") as tx:
            session.add(Order(number=1))
            tx.send(topic, b"1")
    assert broker.wait_outcome(tx.xid, 20.0) is State.COMMITTED
    assert (numbers(engine), values(broker, topic)) == ([1], [b"1"])


def test_an_error_of_a_listener_before_commit_is_known(any_engine, broker, topic):
    def fails(session):
        raise ValueError("no")

    with Session(any_engine) as session:
        event.listen(session, "before_commit", fails)
        with (
            pytest.raises(ValueError, match="no") as caught,
            txbroker.atomic(session, broker, mode="two-phase") as tx,
        ):
            session.add(Order(number=1))
            tx.send(topic, b"1")
        assert "neither rows nor messages" in caught.value.__notes__[-1]
    assert broker.wait_outcome(tx.xid, 10.0) is State.ROLLED_BACK
    assert (numbers(any_engine), values(broker, topic)) == ([], [])


def test_sessions_are_expired_or_not_as_they_were_told(engine, broker, topic):
    for expires in (True, False):
        with Session(engine, expire_on_commit=expires) as session:
            with txbroker.atomic(session, broker, mode="two-phase") as tx:
                order = Order(number=int(expires))
                session.add(order)
                tx.send(topic, b"1")
            assert ("state" not in vars(order)) is expires


def test_a_transaction_that_has_begun_is_joined(any_engine, broker, topic):
    with Session(any_engine) as session:
        session.add(Order(number=1))
        session.flush()
        with txbroker.atomic(session, broker, wait="commit", mode="two-phase") as tx:
            tx.send(topic, b"1")
    assert (numbers(any_engine), values(broker, topic)) == ([1], [b"1"])


def test_savepoints_inside_of_the_block_may_be_left_open(any_engine, broker, topic):
    with Session(any_engine) as session:
        with txbroker.atomic(session, broker, wait="commit", mode="two-phase") as tx:
            with pytest.raises(ZeroDivisionError), session.begin_nested():
                session.add(Order(number=1))
                session.flush()
                _ = 1 / 0
            session.begin_nested()
            session.add(Order(number=2))
            tx.send(topic, b"2")
    assert (numbers(any_engine), values(broker, topic)) == ([2], [b"2"])


def test_scoped_sessions_and_subclasses_are_sessions(engine, broker, topic):
    class Mine(Session):
        pass

    scoped = scoped_session(sessionmaker(engine, class_=Mine))
    with txbroker.atomic(scoped, broker, wait="commit", mode="two-phase") as tx:
        scoped.add(Order(number=1))
        tx.send(topic, b"1")
    scoped.remove()
    assert (numbers(engine), values(broker, topic)) == ([1], [b"1"])


def test_a_pool_of_one_serves_block_after_block(any_engine, broker, topic):
    engine = make_shop(any_engine.url, pool_size=1, max_overflow=0, pool_timeout=10)
    for number in range(5):
        with (
            Session(engine) as session,
            txbroker.atomic(session, broker, wait="commit", mode="two-phase") as tx,
        ):
            session.add(Order(number=number))
            tx.send(topic, b"%d" % number)
    assert numbers(engine) == [0, 1, 2, 3, 4]
    engine.dispose()


# -- what it refuses -------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["session", "connection"])
def test_a_commit_inside_of_the_block_commits_nothing(any_engine, broker, topic, kind):
    with Session(any_engine) as session, any_engine.connect() as connection:
        database = session if kind == "session" else connection
        expected = pytest.raises(errors.Misuse, match=r"commit\(\) inside of a block.*nothing was committed")
        with expected, txbroker.atomic(database, broker, mode="two-phase") as tx:
            database.execute(insert(Order), {"number": 1, "state": "new"})
            tx.send(topic, b"1")
            database.commit()
        assert tx.outcome is State.ROLLED_BACK
        assert numbers(any_engine) == []
        database.execute(insert(Order), {"number": 2, "state": "new"})
        database.commit()  # outside of it: as ever
    assert (numbers(any_engine), values(broker, topic)) == ([2], [])


@pytest.mark.parametrize("end", ["rollback", "close", "driver"])
def test_a_transaction_that_ended_inside_of_the_block_is_found(any_engine, broker, topic, end):
    """And nothing is said through the connection, which may be another's by then."""
    with Session(any_engine) as session:
        with (
            pytest.raises(errors.Misuse, match="is gone"),
            txbroker.atomic(session, broker, mode="two-phase") as tx,
        ):
            session.add(Order(number=1))
            session.flush()
            tx.send(topic, b"1")
            if end == "driver":
                session.connection().connection.dbapi_connection.rollback()
            else:
                getattr(session, end)()
            session.add(Order(number=2))
        assert tx.outcome is State.ROLLED_BACK
    assert (numbers(any_engine), values(broker, topic)) == ([], [])


def test_begin_inside_of_the_block_is_sqlalchemys_error(engine, broker):
    with Session(engine) as session:
        with (
            pytest.raises(InvalidRequestError, match="already begun"),
            txbroker.atomic(session, broker, mode="two-phase"),
        ):
            session.begin()


def test_a_with_that_alone_may_commit_is_refused_and_goes_on(engine, broker):
    with Session(engine) as session, session.begin():
        with pytest.raises(errors.Misuse, match=r"with \.\.\.begin\(\).*carry"):
            txbroker.atomic(session, broker, mode="two-phase").__enter__()
        session.add(Order(number=1))
    with engine.begin() as connection:
        with pytest.raises(errors.Misuse, match=r"engine\.connect\(\)"):
            txbroker.atomic(connection, broker, mode="two-phase").__enter__()
        connection.execute(insert(Order), {"number": 2, "state": "new"})
    assert numbers(engine) == [1, 2]


def test_a_block_inside_of_a_savepoint_is_refused(engine, broker):
    with Session(engine) as session, engine.connect() as connection:
        for database in (session, connection):
            database.begin_nested()
            with pytest.raises(errors.Misuse, match="inside of a savepoint"):
                txbroker.atomic(database, broker, mode="two-phase").__enter__()


def test_two_phase_transactions_are_refused(engine, broker):
    with Session(engine, twophase=True) as session, pytest.raises(errors.Misuse, match="two-phase"):
        txbroker.atomic(session, broker, mode="two-phase").__enter__()
    with engine.connect() as connection:
        transaction = connection.begin_twophase()
        with pytest.raises(errors.Misuse, match="two-phase"):
            txbroker.atomic(connection, broker, mode="two-phase").__enter__()
        transaction.rollback()


def test_a_session_that_would_not_commit_its_connection_is_refused(engine, broker, topic):
    with engine.connect() as connection:
        connection.begin()
        for mode in ("rollback_only", "create_savepoint", "conditional_savepoint"):
            with Session(connection, join_transaction_mode=mode) as session:
                with pytest.raises(errors.Misuse, match="has joined a transaction of its Connection"):
                    txbroker.atomic(session, broker, mode="two-phase").__enter__()
            assert connection.in_transaction()
            with Session(connection, join_transaction_mode=mode) as session:
                session.execute(text("SELECT 1"))
                with pytest.raises(errors.Misuse, match="has joined a transaction of its Connection"):
                    txbroker.atomic(session, broker, mode="two-phase").__enter__()
        with Session(connection, join_transaction_mode="control_fully") as session:
            with txbroker.atomic(session, broker, wait="commit", mode="two-phase") as tx:
                session.add(Order(number=1))
                tx.send(topic, b"1")
    assert (numbers(engine), values(broker, topic)) == ([1], [b"1"])


def test_autocommit_is_refused(any_engine, broker):
    engine = any_engine.execution_options(isolation_level="AUTOCOMMIT")
    with Session(engine) as session:
        with pytest.raises(errors.Misuse, match="autocommit mode"):
            txbroker.atomic(session, broker, mode="two-phase").__enter__()
        assert not session.in_transaction()
    with engine.connect() as connection:
        with pytest.raises(errors.Misuse, match="autocommit mode"):
            txbroker.atomic(connection, broker, mode="two-phase").__enter__()
        assert not connection.in_transaction()


def test_a_session_of_several_databases_is_refused(engine, broker, topic, tmp_path):
    other = make_shop(f"sqlite:///{tmp_path / 'other.sqlite'}")
    with Session(binds={Order: engine, Line: other}) as session:
        with pytest.raises(errors.Misuse, match="which of its databases"):
            txbroker.atomic(session, broker, mode="two-phase").__enter__()
    with Session(engine, binds={Line: other}) as session:
        with (
            pytest.raises(errors.Misuse, match="more than one database"),
            txbroker.atomic(session, broker, mode="two-phase") as tx,
        ):
            session.add(Order(number=1))
            session.add(Line(number=1, of_order=1))
            tx.send(topic, b"1")
    with Session(engine, binds={Line: other}) as session:  # one of them only
        with txbroker.atomic(session, broker, wait="commit", mode="two-phase") as tx:
            session.add(Order(number=2))
            tx.send(topic, b"2")
    assert (numbers(engine), values(broker, topic)) == ([2], [b"2"])
    other.dispose()


def test_two_blocks_on_one_connection_are_refused_however_it_is_named(engine, broker):
    with Session(engine) as session, txbroker.atomic(session, broker, mode="two-phase"):
        with pytest.raises(errors.Misuse, match="in a block already"):
            txbroker.atomic(session.connection(), broker, mode="two-phase").__enter__()


def test_engines_and_other_things_are_refused_with_what_to_use(engine, broker):
    with pytest.raises(errors.Misuse, match=r"engine\.connect\(\)"):
        txbroker.atomic(engine, broker, mode="two-phase")
    with pytest.raises(errors.Misuse, match="neither a Session nor a Connection"):
        txbroker.atomic(sessionmaker(engine), broker, mode="two-phase")
    with pytest.raises(errors.Misuse, match="is closed"):
        connection = engine.connect()
        connection.close()
        txbroker.atomic(connection, broker, mode="two-phase").__enter__()


def test_a_missing_table_is_named_and_txbrokers_own_statements_fail_with_sqlalchemys_errors(
    engine, broker, topic
):
    with Session(engine) as session:
        with pytest.raises(DBAPIError), txbroker.atomic(session, broker, mode="two-phase") as tx:
            tx.send(topic, b"1")
            session.execute(text("SET LOCAL statement_timeout = 100"))
            with engine.connect() as other:
                other.execute(text("LOCK TABLE txbroker_decision"))
                txbroker.databases.adapters.adapter.run(tx.deciding.prepare())
    with engine.begin() as connection:
        connection.execute(text("DROP TABLE txbroker_identity"))
    with (
        Session(engine) as session,
        pytest.raises(errors.DecisionTableMissing, match="create_decision_table"),
    ):
        txbroker.atomic(session, broker, mode="two-phase").__enter__()


def test_what_is_asked_once_a_connection_is_not_asked_for_each_session(engine, broker):
    asked = []
    for _ in range(3):
        with Session(engine) as session, txbroker.atomic(session, broker, mode="two-phase"):
            asked.append(session.connection().info.get("txbroker.home"))
    assert asked[0] is not None
    assert asked == [asked[0]] * 3

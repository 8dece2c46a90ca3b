"""Test ``carry`` when something fails: a refused commit, a lost broker or connection, a killed program."""

# ruff: noqa: PT012 - a whole block is what raises

import pytest
from sqlalchemy import insert, text
from sqlalchemy.exc import IntegrityError, OperationalError
from sqlalchemy.orm import Session

import txbroker
from tests.databases.deaths.sigkill import DIES_AT_COMMIT
from tests.databases.orm.orm import Line, Order, carrying, numbers
from tests.databases.topic_content import resolve_until_done, values
from tests.support.dying_program import run_until_killed
from txbroker import State, errors
from txbroker.databases.adapters.adapter import run
from txbroker.databases.blocking import BlockingSide
from txbroker.databases.sqlalchemy.adapters import SessionDatabase

pytestmark = pytest.mark.slow


def test_a_commit_that_the_database_refuses_leaves_no_message(engine, broker, topic, nothing_left):
    factory, messages = carrying(engine, broker)
    with factory() as session:
        session.add(Line(number=1, of_order=99))
        messages.send(session, topic, b"1")
        with pytest.raises(IntegrityError) as caught:
            session.commit()
        assert "neither rows nor messages" in caught.value.__notes__[-1]
        session.rollback()
        session.add(Order(number=2))
        messages.send(session, topic, b"2")
        session.commit()
    assert (numbers(engine), values(broker, topic)) == ([2], [b"2"])
    assert broker.transactions([State.PREPARED]) == []


def test_a_message_that_the_broker_refuses_leaves_no_row(any_engine, broker, topic, nothing_left):
    factory, messages = carrying(any_engine, broker)
    with pytest.raises(errors.UnknownTopic) as caught, factory.begin() as session:
        session.add(Order(number=1))
        messages.send(session, topic, b"1")
        messages.send(session, "no-such-topic", b"1")
    assert "neither rows nor messages" in caught.value.__notes__[-1]
    assert (numbers(any_engine), values(broker, topic)) == ([], [])


def test_a_broker_that_is_gone_leaves_no_row(engine, mortal_broker, nothing_left):
    with txbroker.connect(mortal_broker.address, timeout=1.0) as broker:
        broker.create_topic("t")
        factory, messages = carrying(engine, broker)
        with factory() as session:
            session.add(Order(number=1))
            messages.send(session, "t", b"1")
            mortal_broker.kill()
            with pytest.raises(errors.TxBrokerError):
                session.commit()
        assert numbers(engine) == []


def test_a_database_that_dies_in_commit_is_an_unknown_outcome(engine, broker, topic, nothing_left):
    with engine.begin() as connection:
        for statement in DIES_AT_COMMIT:
            connection.execute(text(statement))
    factory, messages = carrying(engine, broker)
    with pytest.raises(errors.OutcomeUnknown) as caught, factory.begin() as session:
        session.add(Order(number=1))
        messages.send(session, topic, b"1")
    assert broker.wait_outcome(caught.value.xid, 20.0) is State.ROLLED_BACK
    assert (numbers(engine), values(broker, topic)) == ([], [])


def invalidated(session):
    session.invalidate()


def invalidated_below(session):
    session.connection().invalidate()
    session.rollback()


def closed_below(session):
    session.connection().close()
    session.close()


def detached(session):
    session.connection().detach()
    session.close()


def lost(session):
    pid = session.connection().connection.driver_connection.info.backend_pid
    with session.get_bind().begin() as operator:
        operator.execute(text(f"SELECT pg_terminate_backend({pid}, 10000)"))
    with pytest.raises(OperationalError):
        session.execute(text("SELECT 1"))
    session.rollback()


def lost_unseen(session):
    session.connection().connection.driver_connection.close()
    with pytest.raises(OperationalError):
        session.close()


@pytest.mark.parametrize("ends", [invalidated, invalidated_below, closed_below, detached, lost, lost_unseen])
def test_a_lost_connection_drops_its_messages(engine, broker, topic, nothing_left, ends):
    factory, messages = carrying(engine, broker)
    session = factory()
    session.add(Order(number=1))
    session.flush()
    messages.send(session, topic, b"1")
    ends(session)
    nothing_left()
    with factory() as session:
        session.add(Order(number=2))
        messages.send(session, topic, b"2")
        session.commit()
    assert (numbers(engine), values(broker, topic)) == ([2], [b"2"])


def test_nobody_goes_on_with_a_connection_whose_outcome_is_unknown(
    engine, broker, topic, nothing_left, monkeypatch
):
    """Somebody has ended the transaction after the prepare: what the connection is in then is anybody's guess."""
    factory, messages = carrying(engine, broker)
    prepare = BlockingSide.prepare
    with factory() as session:
        session.add(Order(number=1))
        messages.send(session, topic, b"1")
        driver = session.connection().connection.driver_connection

        async def prepare_and_be_ended(side):
            await prepare(side)
            driver.rollback()

        monkeypatch.setattr(BlockingSide, "prepare", prepare_and_be_ended)
        with pytest.raises(errors.OutcomeUnknown) as caught:
            session.commit()
        monkeypatch.undo()
        assert driver.closed
        session.rollback()
        session.add(Order(number=2))
        session.commit()
    assert broker.wait_outcome(caught.value.xid, 20.0) is State.ROLLED_BACK
    assert (numbers(engine), values(broker, topic)) == ([2], [])


def test_a_commit_past_sqlalchemy_is_found(any_engine, broker, topic, nothing_left):
    factory, messages = carrying(any_engine, broker)
    with factory() as session:
        messages.send(session, topic, b"1")
        session.execute(insert(Order), {"number": 1, "state": "kept"})
        session.connection().connection.dbapi_connection.commit()
        session.execute(insert(Order), {"number": 2, "state": "taken back"})
        with pytest.raises(errors.Misuse, match="is gone"):
            session.commit()
    assert (numbers(any_engine), values(broker, topic)) == ([1], [])


@pytest.mark.parametrize(
    "moment", ["before prepare", "after prepare", "after commit", "after the broker's commit"]
)
def test_a_program_that_is_killed_leaves_both_or_neither(any_engine, shared_broker, broker, topic, moment):
    url = any_engine.url.render_as_string(hide_password=False)
    run_until_killed("tests.databases.orm.orm_program", url, shared_broker.address, topic, moment)
    in_doubt = moment in ("after prepare", "after commit")
    with any_engine.connect() as connection:
        connector = SessionDatabase(Session(connection))
        run(connector.open())
        opens = connector.connector()
    resolve_until_done(opens, broker, in_doubt)
    there = moment in ("after commit", "after the broker's commit")
    assert numbers(any_engine) == ([7] if there else [])
    assert values(broker, topic) == ([b"7"] if there else [])

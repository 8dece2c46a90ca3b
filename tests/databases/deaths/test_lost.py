"""Test connections that are closed or lost: what the error says of the block, and what is left behind."""

# ruff: noqa: PT012, SIM117 - a whole block is what raises

import contextlib
import logging
import sqlite3
import threading

import psycopg
import pymysql
import pytest

import txbroker
from tests.databases.orders import between_prepare_and_commit, execute, make_tables, numbers
from tests.databases.topic_content import values
from tests.support.waiting import eventually
from txbroker import State, errors
from txbroker.client.transactions import serials

pytestmark = pytest.mark.slow

GONE = (psycopg.OperationalError, pymysql.Error, sqlite3.ProgrammingError)
"""What the drivers raise."""


def resolvers():
    return [thread for thread in threading.enumerate() if thread.name == "txbroker-resolver"]


@pytest.fixture(params=["postgresql", "mariadb"])
def server(request):
    """A database whose connections others may end."""
    found = request.getfixturevalue(request.param)
    with contextlib.closing(found.connect()) as database:
        make_tables(database)
    return found


def end_connection(server, database):
    """As an operator does it."""
    with contextlib.closing(server.connect()) as operator:
        if isinstance(database, psycopg.Connection):
            execute(operator, f"SELECT pg_terminate_backend({database.info.backend_pid}, 10000)")
        else:
            execute(operator, f"KILL {database.thread_id()}")


def test_a_closed_connection_says_that_the_block_has_not_begun(open_database, broker):
    database = open_database()
    database.close()
    with pytest.raises(GONE) as caught:
        txbroker.atomic(database, broker, mode="two-phase").__enter__()
    assert "has not begun" in caught.value.__notes__[-1]
    assert "can be run again" in caught.value.__notes__[-1]


def test_a_lost_connection_says_that_the_block_has_not_begun(server, broker):
    with contextlib.closing(server.connect()) as database:
        with txbroker.atomic(database, broker, mode="two-phase"):
            pass
        end_connection(server, database)
        with pytest.raises(GONE) as caught:
            txbroker.atomic(database, broker, mode="two-phase").__enter__()
    assert "can be run again" in caught.value.__notes__[-1]


def test_a_connection_closed_in_the_block_says_that_both_are_rolled_back(open_database, broker, topic):
    database = open_database()
    with pytest.raises(GONE) as caught, txbroker.atomic(database, broker, mode="two-phase") as tx:
        execute(database, "INSERT INTO orders VALUES (1)")
        tx.send(topic, b"1")
        database.close()
    assert "can be run again" in caught.value.__notes__[-1]
    assert tx.outcome is State.ROLLED_BACK
    assert (numbers(open_database), values(broker, topic)) == ([], [])


def test_a_connection_lost_in_the_block_says_that_both_are_rolled_back(server, broker, topic):
    with contextlib.closing(server.connect()) as database:
        with pytest.raises(GONE) as caught, txbroker.atomic(database, broker, mode="two-phase") as tx:
            execute(database, "INSERT INTO orders VALUES (1)")
            tx.send(topic, b"1")
            end_connection(server, database)
            execute(database, "INSERT INTO orders VALUES (2)")
    assert "can be run again" in caught.value.__notes__[-1]
    assert tx.outcome is State.ROLLED_BACK
    assert (numbers(server.connect), values(broker, topic)) == ([], [])


def test_a_connection_closed_between_prepare_and_commit_is_for_the_resolver(open_database, broker, topic):
    database = open_database()
    with pytest.raises(errors.OutcomeUnknown), txbroker.atomic(database, broker, mode="two-phase") as tx:
        execute(database, "INSERT INTO orders VALUES (1)")
        tx.send(topic, b"1")
        between_prepare_and_commit(tx, database.close)
    assert broker.wait_outcome(tx.xid, 15.0) is State.ROLLED_BACK
    assert (numbers(open_database), values(broker, topic)) == ([], [])


def test_a_block_that_ended_unknown_and_is_asked_for_by_nobody_keeps_no_outcomes_for_ever(
    sqlite, lite, broker, topic, monkeypatch
):
    """The broker keeps all outcomes of a session behind the first that has not been seen."""
    with pytest.raises(errors.OutcomeUnknown), txbroker.atomic(lite, broker, mode="two-phase") as tx:
        tx.send(topic, b"1")
        between_prepare_and_commit(tx, lite.close)
    number = tx._side.transaction.number

    def one_more():
        with broker.transaction() as later:
            later.send(topic, b"2")
        return broker._serials.seen

    assert [one_more(), one_more()] == [number.serial - 1] * 2
    assert broker.wait_outcome(tx.xid, 15.0) is State.ROLLED_BACK  # it can still be asked for
    monkeypatch.setattr(serials, "KEPT", 0.0)
    broker._serials._left[number.serial].due = 0.0
    eventually(lambda: one_more() > number.serial)
    one_more()  # which tells the broker
    with pytest.raises(errors.UnknownTransaction):
        broker.outcome(tx.xid)


def test_a_decided_block_whose_commit_the_broker_refuses_is_left_to_the_resolver(lite, broker, topic):
    """It will tell the broker by the xid; the serial is asked for by nobody."""

    async def refused(held):
        raise errors.CorruptData("the staged messages of this one are damaged", "staged")

    with txbroker.atomic(lite, broker, mode="two-phase") as tx:
        tx.send(topic, b"1")
        core = tx._side.transaction._core
        between_prepare_and_commit(tx, lambda: setattr(core, "commit", refused))
    assert list(broker._serials._left) == [core.number.serial]
    assert broker.wait_outcome(tx.xid, 15.0) is State.COMMITTED


def test_a_connection_lost_between_prepare_and_commit_is_for_the_resolver(server, broker, topic):
    """It is known here that COMMIT was never sent; who asked for it cannot know."""
    with contextlib.closing(server.connect()) as database:
        with pytest.raises(errors.OutcomeUnknown), txbroker.atomic(database, broker, mode="two-phase") as tx:
            execute(database, "INSERT INTO orders VALUES (1)")
            tx.send(topic, b"1")
            between_prepare_and_commit(tx, lambda: end_connection(server, database))
    assert broker.wait_outcome(tx.xid, 15.0) is State.ROLLED_BACK
    assert (numbers(server.connect), values(broker, topic)) == ([], [])


def test_a_closed_broker_connection_has_no_block_and_nothing_beside_it(shared_broker, lite, caplog):
    caplog.set_level(logging.INFO, "txbroker.resolver")
    broker = txbroker.connect(shared_broker.address, timeout=10.0)
    with txbroker.atomic(lite, broker, mode="two-phase"):
        pass
    broker.close()
    before = resolvers()
    with pytest.raises(errors.ConnectionClosed, match="has been closed"):
        txbroker.atomic(lite, broker, mode="two-phase").__enter__()
    assert resolvers() == before
    assert not lite.in_transaction
    assert caplog.text == ""


def test_closing_a_connection_that_has_failed_for_good_ends_what_works_beside_it(mortal_broker, lite):
    broker = txbroker.connect(mortal_broker.address, timeout=5.0, reconnect=False)
    with txbroker.atomic(lite, broker, mode="two-phase"):
        pass
    background = broker.resolver
    mortal_broker.kill()
    with pytest.raises(errors.TxBrokerError):
        broker.topics()
    broker.close()
    eventually(lambda: not background.status.is_running)

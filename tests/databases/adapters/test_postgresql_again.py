"""Test further blocks on a connection of psycopg: they begin with one message, and are refused by the decision's
insert.
"""

# ruff: noqa: PT012, SIM117 - a whole block is what raises

import asyncio
import contextlib
import tempfile

import psycopg
import pytest

import txbroker
from tests.databases.topic_content import values
from txbroker import State, errors
from txbroker.client.asyncio import connect as connect_asyncio
from txbroker.databases.asyncio import atomic as atomic_asyncio

pytestmark = pytest.mark.slow


@pytest.fixture
def database(postgresql, broker, topic):
    """A connection with a block behind it."""
    with contextlib.closing(postgresql.connect()) as connection:
        connection.execute("CREATE TABLE orders (number INTEGER PRIMARY KEY)")
        connection.commit()
        txbroker.create_decision_table(connection)
        block(connection, broker, topic, 0)
        yield connection


def block(database, broker, topic, number):
    with txbroker.atomic(database, broker, wait="commit", mode="two-phase") as tx:
        database.execute("INSERT INTO orders VALUES (%s)", (number,))
        tx.send(topic, b"%d" % number)
    return tx


def numbers(database):
    try:
        return [number for (number,) in database.execute("SELECT number FROM orders ORDER BY number")]
    finally:
        database.rollback()


def sent_by(database, act):
    """How many messages that ask for an answer ``act`` sends to PostgreSQL."""
    with tempfile.TemporaryFile("w+") as trace:
        database.pgconn.trace(trace.fileno())
        try:
            act()
        finally:
            database.pgconn.untrace()
        trace.seek(0)
        words = [line.split() for line in trace]
    return sum(1 for line in words if "F" in line and {"Query", "Sync"} & set(line))


def test_a_block_asks_postgresql_no_more_often_than_its_own_two_phase_commit(database, broker, topic):
    asked = sent_by(database, lambda: block(database, broker, topic, 1))
    assert asked == len(["BEGIN and mark", "INSERT of the program", "INSERT of the decision", "COMMIT"])


def test_a_commit_inside_of_it_is_found_before_anything_is_prepared(database, broker, topic):
    with pytest.raises(errors.Misuse, match="in which this block began is gone"):
        with txbroker.atomic(database, broker, mode="two-phase") as tx:
            tx.send(topic, b"1")
            database.execute("INSERT INTO orders VALUES (1)")
            database.commit()
            database.execute("INSERT INTO orders VALUES (2)")
    assert tx.outcome is State.ROLLED_BACK
    assert broker.transactions([State.PREPARED]) == []
    assert numbers(database) == [0, 1]
    assert values(broker, topic) == [b"0"]


def test_the_mark_of_the_block_before_is_not_taken_for_its_own(database, broker, topic):
    with pytest.raises(errors.Misuse, match="in which this block began is gone"):
        with txbroker.atomic(database, broker, mode="two-phase") as tx:
            tx.send(topic, b"1")
            database.rollback()
            database.execute("SET LOCAL txbroker.block = 'another'")
    assert values(broker, topic) == [b"0"]


def test_a_transaction_that_has_become_read_only_is_refused_and_nothing_is_sent(database, broker, topic):
    database.execute("SET SESSION CHARACTERISTICS AS TRANSACTION READ ONLY")
    database.commit()
    with pytest.raises(errors.Misuse, match="read-only"):
        with txbroker.atomic(database, broker, mode="two-phase") as tx:
            tx.send(topic, b"1")
    assert tx.outcome is State.ROLLED_BACK
    assert values(broker, topic) == [b"0"]


def test_a_table_that_was_adopted_meanwhile_is_refused_once(postgresql, database, broker, topic):
    with contextlib.closing(postgresql.connect()) as other:
        name = txbroker.create_decision_table(other, adopt="separate")
    with pytest.raises(errors.DecisionTableRefused):
        block(database, broker, topic, 1)
    assert broker.transactions([State.PREPARED]) == []
    again = block(database, broker, topic, 2)
    assert again.xid.global_id.startswith(name.encode())
    assert numbers(database) == [0, 2]
    assert values(broker, topic) == [b"0", b"2"]


def test_a_table_that_is_gone_is_named(database, broker, topic):
    database.execute("DROP TABLE txbroker_identity")
    database.commit()
    for number in (1, 2):
        with pytest.raises(errors.DecisionTableMissing):
            block(database, broker, topic, number)
    assert numbers(database) == [0]


def test_wishes_for_transactions_that_a_connection_has_meanwhile_are_heeded(database, broker, topic):
    database.isolation_level = psycopg.IsolationLevel.SERIALIZABLE
    with txbroker.atomic(database, broker, wait="commit", mode="two-phase") as tx:
        assert database.execute("SHOW transaction_isolation").fetchone() == ("serializable",)
        tx.send(topic, b"1")
    assert values(broker, topic) == [b"0", b"1"]


def test_a_connection_that_has_died_meanwhile_fails_where_the_block_begins(
    postgresql, database, broker, topic
):
    with contextlib.closing(postgresql.connect(autocommit=True)) as other:
        other.execute("SELECT pg_terminate_backend(%s)", (database.info.backend_pid,))
    with pytest.raises(psycopg.OperationalError):
        with txbroker.atomic(database, broker, mode="two-phase"):
            pytest.fail("the block was begun")
    assert values(broker, topic) == [b"0"]


def test_with_asyncio_too(database, postgresql, broker, topic):
    async def both():
        connection = await psycopg.AsyncConnection.connect(**database.info.get_parameters())
        other = await connect_asyncio(f"tcp:{broker.address.host}:{broker.address.port}")
        async with connection, other:
            for number in (1, 2):
                async with atomic_asyncio(connection, other, wait="commit") as tx:
                    await connection.execute("INSERT INTO orders VALUES (%s)", (number,))
                    await tx.send(topic, b"%d" % number)
            with pytest.raises(errors.Misuse, match="in which this block began is gone"):
                async with atomic_asyncio(connection, other) as tx:
                    await tx.send(topic, b"3")
                    await connection.rollback()

    asyncio.run(both())
    assert numbers(database) == [0, 1, 2]
    assert values(broker, topic) == [b"0", b"1", b"2"]

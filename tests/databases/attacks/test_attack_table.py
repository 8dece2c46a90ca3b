"""Test attempts to put the row where it decides nothing: each was a fault, or might become one."""

# ruff: noqa: PT012, SIM117 - a whole block is what raises

import contextlib
import sqlite3

import pytest

import txbroker
from tests.databases.orders import execute, make_tables, numbers
from tests.support.waiting import eventually
from txbroker import State, errors

pytestmark = pytest.mark.slow


def test_another_schema_inside_of_the_block_decides_nothing(rows, broker, topic):
    """One connection, a schema per tenant: the row would be in a table that does not decide this xid."""
    rows.execute("CREATE SCHEMA tenant")
    rows.commit()
    rows.execute("SET search_path = tenant")
    rows.commit()
    make_tables(rows)
    rows.execute("SET search_path = public")
    rows.commit()
    with (
        pytest.raises(errors.DecisionTableRefused, match="another one"),
        txbroker.atomic(rows, broker, mode="two-phase") as tx,
    ):
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
                with txbroker.atomic(database, broker, mode="two-phase") as tx:
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
        with txbroker.atomic(tenant, broker, wait="commit", mode="two-phase") as tx:
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
        txbroker.atomic(rows, broker, mode="two-phase").__enter__()
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
                txbroker.atomic(database, broker, mode="two-phase").__enter__()

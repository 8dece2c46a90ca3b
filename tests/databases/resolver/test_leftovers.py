"""Test which rows a sweep looks at: those that should have been deleted, whatever else is in the table."""

import contextlib

import pytest

import txbroker
from tests.databases.orders import execute
from txbroker.databases.adapters.database import COMMITTED, CONTRADICTED
from txbroker.databases.tables import xids

pytestmark = pytest.mark.slow

LISTED = 1000
"""Rows of one listing at most."""


def insert_old(database, broker, keys, decision):
    values = ", ".join(f"('{key}', '{decision}', '{broker.identity}', '2001-01-01 00:00:00')" for key in keys)
    execute(database, f"INSERT INTO txbroker_decision (xid, decision, broker, decided_at) VALUES {values}")
    database.commit()


def key(table, broker, number):
    return xids.row_key(xids.make(table, f"n{number}", broker.identity))


def test_rows_that_wait_for_a_person_keep_no_others_from_being_deleted(open_database, database, broker):
    """They are never deleted by themselves, and once filled the listing of what may go."""
    table = txbroker.create_decision_table(database)
    contradicted = [key(table, broker, number) for number in range(LISTED + 200)]
    insert_old(database, broker, contradicted, CONTRADICTED)
    left = [key(table, broker, number) for number in range(3)]
    insert_old(database, broker, left, COMMITTED)
    with txbroker.Resolver(open_database, broker) as resolver:
        found = resolver.resolve()
        assert found.removed == len(left)
        assert len(found.contradicted) == LISTED
        assert set(found.contradicted) < set(contradicted)
        assert resolver.resolve().removed == 0
    with contextlib.closing(open_database()) as after:
        assert execute(after, "SELECT count(*), min(decision), max(decision) FROM txbroker_decision") == [
            (len(contradicted), CONTRADICTED, CONTRADICTED)
        ]


def test_a_contradiction_is_told_in_the_pass_that_finds_it(open_database, database, broker):
    """Its row is as young as what living programs are about to delete, which a sweep leaves alone."""
    table = txbroker.create_decision_table(database)
    (young,) = [key(table, broker, 1)]
    execute(
        database,
        "INSERT INTO txbroker_decision (xid, decision, broker) VALUES "
        f"('{young}', '{CONTRADICTED}', '{broker.identity}')",
    )
    database.commit()
    with txbroker.Resolver(open_database, broker) as resolver:
        assert resolver.resolve().contradicted == [young]

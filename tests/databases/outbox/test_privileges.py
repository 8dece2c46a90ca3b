"""Test that programs need no more rights on the tables than docs/operations.md says."""

import contextlib
import re
import secrets

import psycopg
import pytest

import txbroker
from tests.databases.orders import make_tables
from tests.databases.outbox.left_rows import leave, packed
from tests.databases.outbox.scene import all_of, is_empty, rows_of, send
from tests.support.repository import ROOT
from tests.support.waiting import eventually

TABLE = re.compile(r"^\| `(txbroker_\w+)` \|([A-Z, ]+)\|([A-Z, ]*)\|", re.MULTILINE)


def documented(column):
    """The rights on each table, as the page has them: of programs (1), of people who look after what is refused (2)."""
    page = (ROOT / "docs" / "operations.md").read_text(encoding="utf-8")
    return {found[1]: found[1 + column].strip() for found in TABLE.finditer(page)}


@pytest.fixture
def as_shop(postgresql):
    """What opens connections of a role that has the rights of programs, and no others."""
    role = f"shop_{secrets.token_hex(4)}"
    with contextlib.closing(postgresql.connect(autocommit=True)) as owner:
        make_tables(owner)
        owner.execute(f"CREATE ROLE {role} LOGIN")
        owner.execute(f"GRANT SELECT, INSERT ON orders TO {role}")
        for table, rights in documented(1).items():
            owner.execute(f"GRANT {rights} ON {table} TO {role}")
        yield lambda: psycopg.connect(postgresql.url, user=role)
        owner.execute(f"DROP OWNED BY {role} CASCADE")
        owner.execute(f"DROP ROLE {role}")


@pytest.mark.slow
def test_a_program_does_all_with_the_rights_that_are_documented(
    as_shop, postgresql, shared_broker, broker, topic
):
    assert len(documented(1)) == 4
    with (
        txbroker.connect(shared_broker.address, timeout=30.0) as own,
        contextlib.closing(as_shop()) as database,
    ):
        for number in range(3):
            send(database, own, topic, number)
        send(database, own, topic, 3, mode="two-phase", wait="commit")
        eventually(lambda: sorted(all_of(broker, topic)) == [0, 1, 2, 3])
        is_empty(postgresql.connect)
        assert own.resolver.status.failure == ""
    leave(postgresql.connect, broker, secrets.token_hex(16), 1, packed(topic, b"4"))
    leave(postgresql.connect, broker, secrets.token_hex(16), 1, packed(f"{topic}-gone", b"5"))
    with txbroker.Resolver(as_shop, broker) as resolver:
        swept = resolver.resolve().outbox
    assert (swept.delivered, swept.refused) == (1, 1)
    assert len(rows_of(postgresql.connect, "txbroker_outbox_refused")) == 1

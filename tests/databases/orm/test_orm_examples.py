"""The examples of docs/orms.md do what they say."""

import re
from types import SimpleNamespace

import pytest
from sqlalchemy import create_engine, inspect
from sqlalchemy.orm import Session, sessionmaker

import txbroker
from tests.databases.looking import eventually, values
from tests.databases.orm.orm import Order, make_shop, numbers
from tests.support.repository import DOCS

pytestmark = pytest.mark.slow

DOCUMENT = DOCS / "orms.md"


def examples():
    """The two of Alembic, and the two of blocks and commits."""
    blocks = re.findall(r"```python\n(.*?)```", DOCUMENT.read_text().partition("## Django")[0], re.DOTALL)
    assert len(blocks) == 4
    return blocks


def test_the_migration_makes_the_table_and_keeps_alembic_from_dropping_it(sqlite):
    """What Alembic gives a migration is a Connection; all of it was tried by hand, with three databases."""
    engine = create_engine(f"sqlite:///{sqlite}")
    with engine.connect() as connection:
        names = {"txbroker": txbroker, "op": SimpleNamespace(get_bind=lambda: connection)}
        for block in examples()[:2]:
            exec(block, names)
        names["upgrade"]()
        names["upgrade"]()
        names["downgrade"]()
    tables = inspect(engine).get_table_names()
    assert tables == ["txbroker_decision", "txbroker_identity"]
    assert not any(names["include_name"](table, "table", {}) for table in tables)
    assert names["include_name"]("orders", "table", {})
    engine.dispose()


def test_the_examples_for_sqlalchemy_run_as_they_stand(sqlite, mortal_broker):
    blocks = examples()[2:]
    engine = make_shop(f"sqlite:///{sqlite}")
    with txbroker.connect(mortal_broker.address, timeout=10.0) as broker:
        broker.create_topic("orders")
        names = {"txbroker": txbroker, "Session": Session, "sessionmaker": sessionmaker, "Order": Order}
        for block in blocks:
            exec(block, {**names, "engine": engine, "broker": broker})
        eventually(lambda: values(broker, "orders") == [b"order 42", b"order 43"])
        assert numbers(engine) == [42, 43]
    engine.dispose()

"""The examples of docs/orms.md do what they say."""

import re
from pathlib import Path

import pytest
from sqlalchemy.orm import Session, sessionmaker

import txbroker
from tests.databases.orm import Order, eventually, make_shop, numbers, values

pytestmark = pytest.mark.slow

DOCUMENT = Path(__file__).resolve().parent.parent.parent / "docs" / "orms.md"


def test_the_examples_for_sqlalchemy_run_as_they_stand(sqlite, mortal_broker):
    blocks = re.findall(r"```python\n(.*?)```", DOCUMENT.read_text().partition("## Django")[0], re.DOTALL)
    assert len(blocks) == 2
    engine = make_shop(f"sqlite:///{sqlite}")
    with txbroker.connect(mortal_broker.address, timeout=10.0) as broker:
        broker.create_topic("orders")
        names = {"txbroker": txbroker, "Session": Session, "sessionmaker": sessionmaker, "Order": Order}
        for block in blocks:
            exec(block, {**names, "engine": engine, "broker": broker})
        eventually(lambda: values(broker, "orders") == [b"order 42", b"order 43"])
        assert numbers(engine) == [42, 43]
    engine.dispose()

"""Test that the examples of docs/orms.md do what they say."""

import re
import subprocess
import sys
from types import SimpleNamespace

import pytest
from sqlalchemy import create_engine, inspect
from sqlalchemy.orm import Session, sessionmaker

import txbroker
from tests.databases.orm.orm import Order, make_shop, numbers
from tests.databases.topic_content import values
from tests.support.repository import DOCS, ROOT
from tests.support.waiting import eventually

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
    assert tables == ["txbroker_decision", "txbroker_identity", "txbroker_outbox", "txbroker_outbox_refused"]
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


DJANGO = """
import sys
import django
from django.conf import settings
from django.core.management import call_command
from django.db import transaction
from tests.databases.orm.django_shop import model

path, configuring, sending = sys.argv[1:]
chosen = {"INSTALLED_APPS": []}
exec(configuring, chosen)
databases = {"default": {"ENGINE": "django.db.backends.sqlite3", "NAME": path}}
settings.configure(
    DATABASES=databases, INSTALLED_APPS=chosen["INSTALLED_APPS"], TXBROKER=chosen["TXBROKER"], USE_TZ=True
)
django.setup()
call_command("migrate", verbosity=0)
Order = model()
exec(sending, {"transaction": transaction, "Order": Order})
print(list(Order.objects.values_list("number", flat=True)))
call_command("txbroker_resolve", stdout=sys.stderr)
"""
"""A Django project in a process of its own, for settings can be made once in a process.

It ends at once: what it has decided and not told the broker yet is for whoever resolves.
"""


def test_the_examples_for_django_run_as_they_stand(sqlite, mortal_broker):
    configuring, sending = re.findall(
        r"```python\n(.*?)```", DOCUMENT.read_text().partition("## Django")[2], re.DOTALL
    )
    with txbroker.connect(mortal_broker.address, timeout=10.0) as broker:
        broker.create_topic("orders")
        configuring = configuring.replace("tcp:127.0.0.1:7654", mortal_broker.address)
        ran = subprocess.run(
            [sys.executable, "-c", DJANGO, str(sqlite), configuring, sending],
            cwd=ROOT, capture_output=True, text=True, timeout=120, check=False,
        )  # fmt: skip
        assert (ran.returncode, ran.stdout) == (0, "[42]\n"), ran.stderr
        eventually(lambda: values(broker, "orders") == [b"order 42"])

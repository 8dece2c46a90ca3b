"""PostgreSQL that can prepare, and two brokers, all real: the participants of a coordinator's transactions."""

import shutil
import tempfile
import uuid
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

import txbroker
from tests.support.broker_process import BrokerProcess
from txbroker.coordinator import Coordinator

SOON, PATIENT = 5.0, 60.0
"""Seconds: for participants that are killed, and for those that are there: a disk that is written full beside the tests
keeps a force waiting for longer than the first."""


@dataclass
class Scene:
    """A coordinator's directory, its participants, and what they hold."""

    directory: Path
    database: Any
    orders: BrokerProcess
    audit: BrokerProcess
    topic: str = field(default_factory=lambda: f"t-{uuid.uuid4().hex[:12]}")

    @property
    def participants(self):
        """Those that find out soon that somebody is away, for coordinators: they try again."""
        return self.within(SOON)

    def within(self, seconds):
        """What connects to the participants, each waiting so long for a broker's answers."""
        return {
            "pg": self.database.connect,
            "orders": lambda: txbroker.connect(self.orders.address, timeout=seconds),
            "audit": lambda: txbroker.connect(self.audit.address, timeout=seconds),
        }

    def prepare(self):
        with self.database.connect() as connection:
            connection.execute("CREATE TABLE orders (number int PRIMARY KEY)")
        for broker in (self.orders, self.audit):
            with txbroker.connect(broker.address, timeout=10.0) as connection:
                connection.create_topic(self.topic)

    def coordinator(self, **options):
        return Coordinator(self.directory, self.participants, **{"interval": 0.2, **options})

    def open(self, seconds=SOON):
        """A connection to each participant."""
        return {name: connect() for name, connect in self.within(seconds).items()}

    def rows(self):
        with self.database.connect() as connection:
            return [number for (number,) in connection.execute("SELECT number FROM orders ORDER BY number")]

    def messages(self, name):
        with self.within(PATIENT)[name]() as connection:
            return [int(message.value) for message in connection.read(self.topic, 0, 0)]

    def prepared(self):
        """What is prepared anywhere: (participant, global id)."""
        found = [("pg", gid) for gid in self.database.prepared()]
        for name in ("orders", "audit"):
            with self.within(PATIENT)[name]() as connection:
                found += [(name, str(xid)) for xid in connection.tpc_recover()]
        return found

    def everywhere(self):
        """The numbers that are at all three."""
        rows = self.rows()
        assert rows == self.messages("orders") == self.messages("audit")
        return rows


@pytest.fixture(scope="session")
def two_brokers():
    folder = Path(tempfile.mkdtemp(prefix="txbroker-coordinator-", dir="/dev/shm"))
    try:
        with BrokerProcess(folder / "orders") as orders, BrokerProcess(folder / "audit") as audit:
            yield orders, audit
    finally:
        shutil.rmtree(folder)


@pytest.fixture
def scene(tmp_path, postgresql_two_phase, two_brokers):
    found = Scene(tmp_path / "decisions", postgresql_two_phase, *two_brokers)
    found.prepare()
    yield found
    assert found.prepared() == []


@pytest.fixture
def mortal_orders(tmp_path):
    with BrokerProcess(tmp_path / "data") as process:
        yield process

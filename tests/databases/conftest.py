"""A real broker for the tests of blocks: one for all of a worker, or one that a test may kill."""

import shutil
import tempfile
import uuid
from pathlib import Path

import pytest

import txbroker
from tests.broker_process import BrokerProcess


@pytest.fixture(scope="session")
def shared_broker():
    folder = Path(tempfile.mkdtemp(prefix="txbroker-blocks-", dir="/dev/shm"))
    try:
        with BrokerProcess(folder / "data") as process:
            yield process
    finally:
        shutil.rmtree(folder)


@pytest.fixture
def broker(shared_broker):
    """A connection to a broker that other tests use too: topics have names of their own."""
    with txbroker.connect(shared_broker.address, timeout=10.0) as connection:
        yield connection


@pytest.fixture
def topic(broker):
    name = f"t-{uuid.uuid4().hex[:12]}"
    broker.create_topic(name)
    return name


@pytest.fixture
def mortal_broker(tmp_path):
    with BrokerProcess(tmp_path / "data") as process:
        yield process

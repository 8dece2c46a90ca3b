"""A real broker for each file of tests, a connection to it, and the name of a queue of the test's own."""

import uuid

import pytest

import txbroker
from tests.support.broker_process import BrokerProcess


@pytest.fixture(scope="module")
def process(tmp_path_factory):
    with BrokerProcess(tmp_path_factory.mktemp("broker") / "data") as running:
        yield running


@pytest.fixture
def broker(process):
    with txbroker.connect(process.address, timeout=10.0) as connection:
        yield connection


@pytest.fixture
def free_name():
    """Of a queue that is not there."""
    return f"q-{uuid.uuid4().hex[:12]}"


@pytest.fixture
def name(broker, free_name):
    """Of a queue that is there."""
    broker.declare_queue(free_name)
    return free_name

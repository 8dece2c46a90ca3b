"""A real broker for the tests of workers, a connection to it, and a topic for each test."""

import uuid

import pytest

import txbroker
from tests.support.broker_process import BrokerProcess


@pytest.fixture(scope="session")
def worker_broker(tmp_path_factory):
    with BrokerProcess(tmp_path_factory.mktemp("workers") / "data") as process:
        yield process


@pytest.fixture
def url(worker_broker):
    return worker_broker.address


@pytest.fixture
def broker(url):
    with txbroker.connect(url, timeout=60.0) as connection:
        yield connection


@pytest.fixture
def topic(broker):
    name = f"t-{uuid.uuid4().hex[:12]}"
    broker.create_topic(name)
    return name

"""A broker that decides quickly about members, its operator, further connections, and a topic of four partitions."""

import uuid

import pytest

import txbroker
from tests.support.broker_process import BrokerProcess

SETTINGS = ("assignment_delay=50ms", "reconnect_grace=300ms")


@pytest.fixture(scope="module")
def process(tmp_path_factory):
    with BrokerProcess(tmp_path_factory.mktemp("broker") / "data", *SETTINGS) as running:
        yield running


@pytest.fixture
def connections(process):
    opened = []

    def connection(name):
        opened.append(txbroker.connect(process.address, timeout=10.0, client=name))
        return opened[-1]

    yield connection
    for each in opened:
        each.close()


@pytest.fixture
def broker(connections):
    return connections("operator")


@pytest.fixture
def topic(broker):
    name = f"t-{uuid.uuid4().hex[:12]}"
    broker.create_topic(name, partitions=4)
    return name

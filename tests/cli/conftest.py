"""A real broker for the tests of one file, commands that are sent to it, and a topic for each test."""

import json
from hashlib import sha256

import pytest

import txbroker
from tests.cli.in_doubt import prepare
from tests.cli.invocations import runner
from tests.support.broker_process import BrokerProcess


@pytest.fixture(scope="module")
def broker_settings():
    """A file that needs a broker with others says so."""
    return []


@pytest.fixture(scope="module")
def url(tmp_path_factory, broker_settings):
    with BrokerProcess(tmp_path_factory.mktemp("broker") / "data", *broker_settings) as broker:
        yield broker.address
        broker.stop()


@pytest.fixture
def connection(url):
    with txbroker.connect(url) as connection:
        yield connection


@pytest.fixture
def run(url):
    return runner(url)


@pytest.fixture
def run_json(run):
    def run_json(*arguments, **more):
        return json.loads(run(*arguments, "--json", **more).stdout)

    return run_json


@pytest.fixture
def topic(connection, request):
    name = "t-" + sha256(request.node.nodeid.encode()).hexdigest()[:12]
    connection.create_topic(name, partitions=2)
    return name


@pytest.fixture
def prepared(url, topic):
    return prepare(url, topic, "order")[0]

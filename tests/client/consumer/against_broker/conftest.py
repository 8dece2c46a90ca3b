"""A real broker for each file of tests, and two connections to it."""

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
def other(process):
    with txbroker.connect(process.address, timeout=10.0, client="other") as connection:
        yield connection

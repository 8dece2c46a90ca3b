"""A broker for the examples of one page: they name their topics and groups themselves, so no other test may use it."""

import pytest

from tests.support.broker_process import BrokerProcess


@pytest.fixture
def broker_process(tmp_path):
    with BrokerProcess(tmp_path / "data") as process:
        yield process

"""A plugin of pytest, ``-p tests.client.over_tls``: every broker of the clients' tests speaks TLS."""

import pytest

from benchmarks.fair.certificate import write_certificate
from tests.client.scripted_broker import ScriptedServer
from tests.support.broker_process import BrokerProcess


@pytest.fixture(scope="session", autouse=True)
def certificate(tmp_path_factory):
    file = write_certificate(tmp_path_factory.mktemp("tls") / "both.pem")
    ScriptedServer.certificate = BrokerProcess.certificate = file

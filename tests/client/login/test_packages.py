"""Test what a login needs to be installed, and what it imports."""

import subprocess
import sys

import pytest

from tests.support.repository import ROOT
from txbroker.client.login.choice import choose
from txbroker.client.login.credentials import Credentials
from txbroker.client.login.verifier import verifier_of
from txbroker.errors import Misuse


def test_without_the_package_an_error_names_the_extra_that_brings_it(monkeypatch):
    monkeypatch.setitem(sys.modules, "scramp", None)
    exchange = choose(["SCRAM-SHA-256"], Credentials(user="alice", password="geheim"), secure=True)
    for work in (exchange.first, lambda: verifier_of("geheim")):
        with pytest.raises(Misuse, match=r"pip install 'txbroker\[login\]'") as caught:
            work()
        assert "geheim" not in str(caught.value)


def test_a_client_pays_for_the_package_only_when_it_logs_in_by_a_password():
    code = (
        "import sys\n"
        "from txbroker.client.login.choice import choose\n"
        "from txbroker.client.login.credentials import Credentials\n"
        "import txbroker.client.login.verifier\n"
        "choose(['OAUTHBEARER'], Credentials(token='a'), secure=True).first()\n"
        "choose(['PLAIN'], Credentials(user='a', password='b'), secure=True).first()\n"
        "import txbroker.login.logins\n"
        "print([n for n in ('scramp', 'jwt', 'asn1crypto', 'cryptography', 'twisted') if n in sys.modules])"
    )
    ran = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert ran.stdout.strip() == "[]"

"""Test ``txbroker sessions`` against a broker, as an operator uses it."""

import json
import time

import pytest

import txbroker
from tests.cli.invocations import runner
from tests.support.broker_process import BrokerProcess

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def broker(tmp_path_factory):
    with BrokerProcess(tmp_path_factory.mktemp("sessions") / "data") as broker:
        yield broker


@pytest.fixture
def run(broker):
    return runner(broker.address)


def listed(run):
    return json.loads(run("sessions", "list", "--json").stdout)


def test_a_session_is_found_by_its_client_and_closed_and_its_client_goes_on(broker, run, caplog):
    with txbroker.connect(broker.address, client="billing-3") as client:
        client.create_topic("t")
        client.send("t", b"1")
        [mine] = [each for each in listed(run) if each["client"] == "billing-3"]
        table = run("sessions", "list").stdout
        assert "billing-3" in table
        assert str(mine["session"]) in table
        closed = run("sessions", "close", str(mine["session"]), "--why", "it hangs", "--by", "ann", "--yes")
        assert closed.stdout == f"Closed: {mine['session']} (billing-3).\n"
        began = time.monotonic()
        client.send("t", b"2")
        assert 0.5 < time.monotonic() - began < 20.0
        [again] = [each for each in listed(run) if each["client"] == "billing-3"]
        assert again["session"] > mine["session"]
        assert client.topics(["t"])[0].partitions[0].high_watermark == 2
    assert "the session was closed by ann: it hangs" in caplog.text
    assert f"session {mine['session']} of 'billing-3'" in broker.output
    assert "is closed by ann: it hangs" in broker.output


def test_the_command_itself_is_among_them(run):
    assert any(each["client"] == "txbroker-cli" for each in listed(run))


def test_what_is_no_session_is_told_and_nothing_is_closed(run):
    failed = run("sessions", "close", "7", "--why", "x", "--yes", code=1)
    assert "there is no session 7 (any more); nothing was done" in " ".join(failed.stderr.split())
    run("sessions", "close", "0", "--why", "x", code=2)
    run("sessions", "close", "7", code=2)


def test_a_question_that_is_answered_no_closes_nothing(broker, run):
    with txbroker.connect(broker.address, client="stays") as client:
        client.ping()
        [mine] = [each for each in listed(run) if each["client"] == "stays"]
        said = run("sessions", "close", str(mine["session"]), "--why", "x", stdin=b"n\n", code=1)
        assert "Nothing was changed." in said.stderr
        assert mine["session"] in [each["session"] for each in listed(run)]

"""Test the audit of real brokers: logins, refusals and rules in its file, over kills, SIGHUP and a stop.

Seen to fail: with the audit stopped before the last checkpoint, and without the hooks of the entrance and of refusals.
"""

import json
import os
import signal

import pytest

import txbroker
from journal.records.access_entries import Effect, Resource, Right, Rule, User
from tests.server.test_tap import parsed, refusal
from tests.support.broker_process import told_broker
from tests.support.waiting import eventually
from txbroker import errors
from txbroker.client.login.verifier import verifier_of
from txbroker.wire.messages import Switch

PASSWORD = "not so secret"


def lines(path):
    return [json.loads(line) for line in path.read_bytes().splitlines()]


def whats(path):
    return [line["what"] for line in lines(path)]


def audited(tmp_path, where=None):
    return told_broker(tmp_path / "data", "--set", f"audit={where or tmp_path / 'audit.json'}")


def admin(tmp_path):
    return txbroker.connect(f"unix:{tmp_path}/data/admin.sock", timeout=10)


def demand_logins(tmp_path):
    with admin(tmp_path) as connection:
        connection.add_user(User("root1", verifier_of(PASSWORD, 4_096)))
        connection.add_user(User("app", verifier_of(PASSWORD, 4_096)))
        connection.allow(Rule("root1", Effect.ALLOW, Resource.BROKER, "", False, [Right.ADMINISTER]))
        connection.switch_access(Switch.ENABLE)


@pytest.mark.slow
def test_logins_refusals_and_administration_are_in_the_file_and_no_password_is(tmp_path):
    path = tmp_path / "audit.json"
    with audited(tmp_path) as process:
        url = f"tcp:127.0.0.1:{process.ready()}"
        demand_logins(tmp_path)
        with pytest.raises(errors.AuthenticationFailed):
            txbroker.connect(url, user="app", password="wrong", timeout=10)
        with (
            txbroker.connect(url, user="app", password=PASSWORD, timeout=10) as app,
            pytest.raises(errors.AccessDenied),
        ):
            app.create_topic("t")
        process.terminate()
        assert process.wait() == 0
    found = {line["what"]: line for line in lines(path)}
    assert whats(path)[:6] == [
        "audit.begun", "broker.started", "access.set", "user.set", "user.set", "rule.set",
    ]  # fmt: skip
    assert whats(path)[-1] == "audit.through"
    assert found["login.refused"]["principal"] == "app"
    assert found["login.refused"]["address"] == "127.0.0.1"
    assert found["access.denied"]["details"] == ["create topic t"]
    assert {line["principal"] for line in lines(path) if line["what"] == "login"} == {"@admin", "app"}
    assert PASSWORD.encode() not in path.read_bytes()
    with audited(tmp_path) as process:
        process.ready()
        eventually(lambda: whats(path)[-1] == "broker.started")
        assert "audit.gap" not in whats(path)


@pytest.mark.slow
def test_every_topic_is_told_once_over_many_kills(tmp_path):
    path = tmp_path / "audit.json"
    made = []
    for start in range(4):
        with audited(tmp_path) as process:
            process.ready()
            with admin(tmp_path) as connection:
                for number in range(5):
                    connection.create_topic(f"t{start}-{number}")
                    made.append(f"t{start}-{number}")
            process.kill()
    with audited(tmp_path) as process:
        process.ready()
    assert [line["topic"] for line in lines(path) if line["what"] == "topic.created"] == made


@pytest.mark.slow
def test_at_sighup_it_goes_on_in_the_file_of_the_name(tmp_path):
    path, moved = tmp_path / "audit.json", tmp_path / "audit.json.1"
    with audited(tmp_path) as process:
        process.ready()
        eventually(lambda: path.exists() and "broker.started" in whats(path))
        path.rename(moved)
        os.kill(process.pid, signal.SIGHUP)
        eventually(lambda: path.exists() and path.stat().st_size)
        assert whats(path) == ["audit.continued"]
        process.terminate()
        assert process.wait() == 0
    assert "broker.started" in whats(moved)


@pytest.mark.slow
def test_standard_output_takes_it(tmp_path):
    with audited(tmp_path, "-") as process:
        process.ready()
        assert '"what":"broker.started"' in process.wait_for('"what":"broker.started"')


@pytest.mark.slow
def test_a_file_that_cannot_be_opened_ends_the_start_with_the_reason(tmp_path):
    with audited(tmp_path, tmp_path / "absent" / "audit.json") as process:
        assert process.wait() == 1
        assert "cannot be opened" in process.output


def test_it_is_never_in_the_directory_of_the_data():
    assert "in the directory of the data" in refusal("--data", "d", "--set", "audit=d/audit.json")
    assert parsed("--data", "d", "--set", "audit=-").service.audit == "-"
    assert os.path.isabs(parsed("--data", "d", "--set", "audit=a.json").service.audit)

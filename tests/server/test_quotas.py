"""Test quotas at a real broker, given by the command line.

Seen to fail: without the judgement of sessions at the entrance, and without waiting at the sockets.
"""

import json
import time

import pytest

import txbroker
from journal.records.access_entries import Effect, Resource, Right, Rule
from tests.cli.invocations import runner
from tests.support.broker_process import told_broker
from txbroker import errors
from txbroker.wire.messages import Switch

pytestmark = pytest.mark.slow

PASSWORD = "not so secret"


@pytest.fixture
def run(tmp_path):
    """What runs commands against a broker in which everybody has to log in, over its socket for administrators."""
    secret = tmp_path / "secret"
    secret.write_text(PASSWORD)
    secret.chmod(0o600)
    with told_broker(tmp_path / "data") as process:
        port = process.ready()
        run = runner(f"unix:{tmp_path}/data/admin.sock")
        run.url = f"tcp:127.0.0.1:{port}"
        for name in ("root1", "app"):
            run("users", "add", name, "--password-file", str(secret), "--iterations", "4096")
        with txbroker.connect(f"unix:{tmp_path}/data/admin.sock", timeout=10) as admin:
            admin.allow(Rule("root1", Effect.ALLOW, Resource.BROKER, "", False, [Right.ADMINISTER]))
            every = [Right.READ, Right.WRITE, Right.CREATE]
            for name in ("root1", "app"):
                admin.allow(Rule(name, Effect.ALLOW, Resource.TOPIC, "", True, every))
            admin.switch_access(Switch.ENABLE)
        yield run


def connect(run, name="app", timeout=20.0):
    return txbroker.connect(run.url, user=name, password=PASSWORD, timeout=timeout)


def test_quotas_are_given_shown_replaced_and_lifted(run):
    run(
        "users",
        "alter",
        "app",
        "--quota",
        "bytes_in=1MiB",
        "--quota",
        "prepared_age=10m",
        "--quota",
        "topics=3",
    )
    users = {each["name"]: each for each in json.loads(run("--json", "users", "list").stdout)}
    assert users["app"]["quotas"] == {"bytes_in": 1 << 20, "topics": 3, "prepared_age": 600_000_000}
    assert users["root1"]["quotas"] == {}
    assert "bytes_in=1MiB, topics=3, prepared_age=10m" in " ".join(run("users", "list").stdout.split())
    run("users", "alter", "app", "--quota", "topics=4")
    users = {each["name"]: each for each in json.loads(run("--json", "users", "list").stdout)}
    assert users["app"]["quotas"] == {"topics": 4}
    run("users", "alter", "app", "--no-quotas")
    users = {each["name"]: each for each in json.loads(run("--json", "users", "list").stdout)}
    assert users["app"]["quotas"] == {}


@pytest.mark.parametrize(
    "given", ["speed=7", "topics", "topics=1KiB", "bytes_in=1s", "bytes_out=0", "prepared_age=5"]
)
def test_quotas_that_are_none_are_refused(run, given):
    assert "quota" in run("users", "alter", "app", "--quota", given, code=2).stderr


def test_sessions_and_topics_are_refused_by_name(run):
    run("users", "alter", "app", "--quota", "sessions=1", "--quota", "topics=1")
    with connect(run) as app, connect(run, "root1") as other:
        with pytest.raises(errors.ConnectionUnavailable, match="quota sessions of app is 1, and there are 1"):
            connect(run, timeout=4.0)
        app.create_topic("a")
        with pytest.raises(errors.LimitExceeded) as caught:
            app.create_topic("b")
        assert (caught.value.quota, caught.value.principal) == ("topics", "app")
        assert (caught.value.limit, caught.value.present) == (1, 1)
        other.create_topic("b")
    connect(run).close()


def test_who_sends_and_reads_too_much_takes_the_time_for_it_and_others_none(run):
    run("users", "alter", "app", "--quota", "bytes_in=100KiB", "--quota", "bytes_out=100KiB")
    with connect(run) as app, connect(run, "root1") as other:
        app.create_topic("a")
        other.create_topic("b")
        begun = time.monotonic()
        for _ in range(4):
            app.send("a", b"x" * 50_000)
        sent = time.monotonic()
        for _ in range(4):
            other.send("b", b"x" * 50_000)
        assert time.monotonic() - sent < sent - begun
        assert sent - begun > 0.4
        begun = time.monotonic()
        assert sum(len(app.read("a", 0, offset, max_wait=20.0)) for offset in (0, 0)) >= 2
        assert len(app.read("a", 0, 0, max_wait=20.0)) >= 1
        assert time.monotonic() - begun > 0.4

"""Test Django's transactions with messages, on real databases: each test runs a project in a process of its own."""

import os
import signal
import subprocess
import sys

import pytest

from tests.support.repository import PACKAGES, ROOT

pytestmark = pytest.mark.slow


def shop_url(request, kind):
    found = request.getfixturevalue(kind)
    return f"sqlite:///{found}" if kind == "sqlite" else found.url


def django(url, address, *arguments, status=0):
    ran = subprocess.run(
        [
            sys.executable,
            "-W",
            "error::ResourceWarning",
            "-m",
            "tests.databases.orm.django_shop",
            url,
            address,
            *arguments,
        ],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": PACKAGES},
        capture_output=True,
        text=True,
        timeout=120.0,
        check=False,
    )
    assert ran.returncode == status, ran.stdout + ran.stderr
    return ran.stdout.splitlines()


@pytest.fixture(params=["sqlite", "postgresql"])
def url(request):
    return shop_url(request, request.param)


def test_messages_follow_transactions_and_savepoints(url, broker, shared_broker, topic):
    rows, messages = django(url, shared_broker.address, topic, "everything")
    assert rows == "[1, 3, 4, 10]"
    assert messages == str(["1", "a", "b", "c", "d", "e", "after 1", "by hand", "y" * 10])


def test_scheduled_messages_are_taken_back_with_the_commit(sqlite, shared_broker, broker, topic):
    [said] = django(f"sqlite:///{sqlite}", shared_broker.address, topic, "taken_back")
    assert said == "cancelled waits waits 0"


def test_a_commit_that_the_database_refuses_leaves_no_message(postgresql, shared_broker, broker, topic):
    assert django(postgresql.url, shared_broker.address, topic, "refused_commit") == [
        "IntegrityError True",
        "['1']",
    ]


@pytest.mark.parametrize("action", ["unknown", "unknown_and_away"])
def test_a_database_that_dies_in_commit_is_an_unknown_outcome(
    postgresql, shared_broker, broker, topic, action
):
    said = django(postgresql.url, shared_broker.address, topic, action)
    assert said == ["OutcomeUnknown ROLLED_BACK", "0 []"]


def test_threads_share_a_connection_to_the_broker_and_children_get_their_own(
    postgresql, shared_broker, broker, topic
):
    assert django(postgresql.url, shared_broker.address, topic, "threads_and_forks") == ["True", "20"]


def test_a_testcase_sends_nothing_and_shows_what_waits(sqlite, shared_broker, broker, topic):
    assert django(f"sqlite:///{sqlite}", shared_broker.address, topic, "tests") == ["[]"]


@pytest.mark.parametrize(
    "moment", ["before prepare", "after prepare", "after commit", "after the broker's commit"]
)
def test_a_program_that_is_killed_leaves_both_or_neither(url, shared_broker, broker, topic, moment):
    address = shared_broker.address
    django(url, address, topic, "die", moment, status=-signal.SIGKILL)
    (said,) = django(url, address, topic, "resolve")
    done = {"after prepare": "1 rolled back", "after commit": "1 committed"}
    assert said == done.get(moment, "nothing was in doubt")
    there = moment in ("after commit", "after the broker's commit")
    assert [message.value for message in broker.read(topic, 0, 0)] == ([b"7"] if there else [])
    assert rows(url) == ([7] if there else [])


def test_messages_may_travel_in_the_database(url, broker, shared_broker, topic):
    messages, left = django(url, shared_broker.address, topic, "outbox")
    assert messages == str(["1", "a", "b"])
    assert left == "(0,)"


@pytest.mark.parametrize("moment", ["before commit", "after commit"])
def test_a_killed_program_leaves_its_messages_to_whoever_resolves(url, shared_broker, broker, topic, moment):
    address = shared_broker.address
    django(url, address, topic, "die_leaving", moment, status=-signal.SIGKILL)
    (said,) = django(url, address, topic, "resolve")
    is_there = moment == "after commit"
    assert said == ("1 block delivered from the outbox" if is_there else "nothing was in doubt")
    assert [message.value for message in broker.read(topic, 0, 0)] == ([b"7"] if is_there else [])
    assert rows(url) == ([7] if is_there else [])


def test_resolving_a_database_that_was_set_back_ends_with_what_to_do(sqlite, shared_broker, broker, topic):
    url, address = f"sqlite:///{sqlite}", shared_broker.address
    django(url, address, topic, "resolve")
    copy = sqlite.read_bytes()
    django(url, address, topic, "outbox")
    sqlite.write_bytes(copy)
    django(url, address, topic, "die_leaving", "after commit", status=-signal.SIGKILL)
    (said,) = django(url, address, topic, "resolve")
    assert said.startswith("OutboxSetBack: the database of the decision table")
    assert "--adopt restored" in said


def test_impossible_settings_are_named(sqlite, shared_broker, broker, topic):
    said = django(f"sqlite:///{sqlite}", shared_broker.address, topic, "settings")
    assert said == [
        f"{name} True" for name in ["max_backlog"] * 4 + ["mode", "outbox_bytes", "on_refused", "modes"]
    ]


def rows(url):
    from txbroker.databases.urls import connector

    database = connector(url)()
    cursor = database.cursor()
    cursor.execute("SELECT number FROM orders")
    found = [number for (number,) in cursor.fetchall()]
    cursor.close()
    database.close()
    return found

"""Test workers that die with a message: their group counts an attempt, and gives up what kills again and again."""

import contextlib
import os
import signal
import sqlite3
import subprocess
import sys

import pytest

import txbroker
from tests.support.broker_process import BrokerProcess
from tests.support.repository import PACKAGES, ROOT
from tests.worker.lethal_program import POLICY
from tests.worker.scene import PATIENCE, unfinished

pytestmark = pytest.mark.slow

LETHAL = 3
COUNT = 8


@pytest.fixture(scope="module")
def hasty(tmp_path_factory):
    """A broker that waits for nobody: a member whose connection is gone is lost soon."""
    with BrokerProcess(tmp_path_factory.mktemp("deaths") / "data", "reconnect_grace=200ms") as process:
        yield process


@pytest.fixture
def url(hasty):
    return hasty.address


@pytest.fixture
def filled(broker, topic):
    """Messages in one partition, of which one is lethal."""
    broker.alter_group(topic, retry=POLICY)
    for number in range(COUNT):
        broker.send(topic, b"lethal" if number == LETHAL else b"%d" % number)
    return topic


def runs(program, *words):
    """What each process had begun, one after another, until one ends in order: lists of "offset/attempts"."""
    begun = []
    for _ in range(12):
        ran = subprocess.run(
            [sys.executable, "-m", f"tests.worker.{program}", *map(str, words)],
            cwd=ROOT, env={**os.environ, "PYTHONPATH": PACKAGES},
            capture_output=True, text=True, timeout=PATIENCE, check=False,
        )  # fmt: skip
        begun.append(ran.stdout.splitlines())
        if ran.returncode != -signal.SIGKILL:
            assert ran.returncode == 0, ran.stderr
            return begun
    raise AssertionError(f"it dies for ever: {begun}")


@pytest.mark.parametrize(
    ("face", "transaction"),
    [
        ("blocking", "none"),
        ("blocking", "broker"),
        ("blocking", "sqlite"),
        ("asyncio", "none"),
        ("asyncio", "broker"),
        ("twisted", "none"),
    ],
)
def test_a_message_that_kills_each_process_is_given_up_after_its_attempts(
    broker, url, filled, tmp_path, face, transaction
):
    path = tmp_path / "rows.db"
    if transaction == "sqlite":
        with contextlib.closing(sqlite3.connect(path)) as database:
            database.execute("CREATE TABLE orders (number INTEGER PRIMARY KEY)")
            database.commit()
            txbroker.create_decision_table(database)
    begun = runs("lethal_program", face, url, filled, path if transaction == "sqlite" else transaction, 1)
    assert [each[-1] for each in begun[:-1]] == [f"{LETHAL}/{number}" for number in range(3)]
    assert unfinished(broker, filled, filled) == []
    with broker.consume(f"{filled}.dead", follow=False) as letters:
        [letter] = list(letters)
    assert letter.header("txbroker.dead.attempts") == b"3"
    assert b"lost while it handled this message" in letter.header("txbroker.dead.why")
    if transaction == "sqlite":
        with contextlib.closing(sqlite3.connect(path)) as database:
            rows = [number for (number,) in database.execute("SELECT number FROM orders ORDER BY number")]
        assert rows == [number for number in range(COUNT) if number != LETHAL]


def test_a_batch_that_kills_counts_for_nobody_and_its_messages_come_alone(broker, url, filled):
    begun = runs("lethal_program", "blocking", url, filled, "none", COUNT)
    assert begun[0] == [" ".join(f"{number}/0" for number in range(COUNT))]
    assert [each[-1] for each in begun[1:-1]] == [f"{LETHAL}/{number}" for number in range(3)]
    assert all(len(line.split()) == 1 for each in begun[1:] for line in each)
    assert unfinished(broker, filled, filled) == []


@pytest.mark.parametrize("way", ["iteration", "poll", "receive"])
@pytest.mark.parametrize("face", ["blocking", "asyncio"])
def test_a_consumer_with_a_policy_gives_up_what_kills_its_process(broker, url, filled, face, way):
    """What is handed out one by one; who gets several at a time gets them alone after a death."""
    begun = runs("lethal_reader", face, way, url, filled)
    deaths = [each[-1] for each in begun[:-1]]
    if way == "poll":
        assert deaths[0] == " ".join(f"{number}/0" for number in range(COUNT))
        deaths = deaths[1:]
    assert deaths == [f"{LETHAL}/{number}" for number in range(3)]
    assert unfinished(broker, filled, filled) == []

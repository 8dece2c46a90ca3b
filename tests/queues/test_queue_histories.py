"""Test queues against a model that shares no code with them, in histories from seeds, with crashes; and the histories
themselves: that they find faults, cover what they should, and can be run again.

``python -m tests.queues`` runs more of them, ``python -m tests.queues.queue_teeth`` finds out after how many each fault
is found. What they have found is in tests/broker/queues/test_queue_moments.py.
"""

from __future__ import annotations

import subprocess
import sys

import pytest

from tests.queues.queue_histories import campaign, explain, kind_of, replay, run
from tests.queues.queue_mutants import MUTANTS
from tests.queues.queue_teeth import COPIED, judge
from tests.support.faulty_sources import check_can_be_made, copy_sources, faulty
from tests.support.repository import ROOT
from txbroker.queues.queue_deliveries import LevelDeliveries

COVERED = {
    "Taken": 1650, "Sent": 1200, "Committed": 400, "QueueDeclared": 850, "ExchangeDeclared": 200, "Counted": 200,
    "Refused DeliveryLost": 400, "Refused Unroutable": 650, "Refused QueueInUse": 45, "Refused SequenceOutOfOrder": 5,
    "Refused TransactionCommitted": 60, "Refused AlreadyFinished": 8,
    "Refused QueueFull": 40,
    "GiveBack": 150, "AddOffsets": 100, "settled again": 75, "repetitions": 50, "commits again": 17,
    "prepares again": 15, "sessions lost": 200, "takes of little": 135, "checkpoints": 250, "stops": 200,
    "power cuts": 250, "power cuts in a start": 30, "kills": 100, "logs that begin later": 10,
    "all of what was unforced survives": 30, "a part of what was unforced survives": 2,
    "none of what was unforced survives": 30, "dead letters found by a start": 12,
    "messages expired": 150, "messages maxlen": 200, "dead letters": 400, "dead letters that are refused": 3,
    "expired messages that somebody waited for": 3,
    "circles that end": 45,
    "circles that go on": 3, "alternate ways": 200, "exchanges that go with their last binding": 7,
    "queues that expire": 60, "deliveries that were late": 3, "messages that have waited": 16,
    "messages that waited for nothing": 16, "segments compacted": 40,
}  # fmt: skip
"""How often 200 histories must come to this at least: a half or so of what they do, so that nothing is vacuous."""


def test_some_histories_keep_every_promise():
    found = campaign(1_000_000, histories=3)
    assert found.failed is None, explain(found.failed)


@pytest.mark.slow
def test_histories_keep_every_promise_and_cover_what_they_should():
    found = campaign(0, histories=200)
    assert found.failed is None, explain(found.failed)
    assert {name: found.counts[name] for name, least in COVERED.items() if found.counts[name] < least} == {}


@pytest.mark.deep
@pytest.mark.parametrize("first", range(10_000, 20_000, 2_000))
def test_thousands_of_histories_keep_every_promise(first):
    found = campaign(first, histories=2_000)
    assert found.failed is None, explain(found.failed)


@pytest.mark.slow
def test_a_history_takes_the_same_course_in_every_process():
    def courses(hash_seed):
        code = (
            "from tests.queues.queue_histories import run\n"
            "for seed in range(6):\n"
            "    print('\\n'.join(run(seed, trace=True).trace))"
        )
        environment = {"PYTHONHASHSEED": hash_seed, "PYTHONPATH": str(ROOT), "PATH": "/usr/bin:/bin"}
        ran = subprocess.run(
            [sys.executable, "-c", code],
            cwd=ROOT,
            env=environment,
            capture_output=True,
            text=True,
            check=True,
        )
        return ran.stdout

    one = courses("1")
    assert len(one) > 50_000
    assert one == courses("2")


@pytest.mark.slow
def test_a_violation_is_told_with_few_steps_and_how_to_run_them_again(monkeypatch):
    monkeypatch.setattr(LevelDeliveries, "has", lambda self, holder, offsets: None)
    outcome = next(outcome for outcome in map(run, range(20)) if outcome.problem)
    text = explain(outcome, 3.0)
    [spec] = [line.partition("=")[2] for line in text.splitlines() if line.startswith("python -m tests")]
    again, told = replay(spec)
    assert told == text
    assert kind_of(again.problem) == kind_of(outcome.problem)
    assert "expected: " in text
    assert "found: " in text


@pytest.mark.parametrize("mutant", MUTANTS, ids=[mutant.name for mutant in MUTANTS])
def test_a_fault_can_be_made_where_it_is_said_to_be(mutant):
    check_can_be_made(mutant)


def test_there_are_many_faults_and_each_has_a_name_of_its_own():
    assert len({mutant.name for mutant in MUTANTS}) == len(MUTANTS) >= 50


@pytest.fixture(scope="module")
def copy(tmp_path_factory):
    """The sources, to be changed at will."""
    target = tmp_path_factory.mktemp("sources")
    copy_sources(target, COPIED)
    return target


@pytest.mark.slow
@pytest.mark.parametrize(
    "name",
    [
        "deliver what a prepared transaction holds since an earlier start",
        "put what is published into its first queue alone in a replay",
        "count no attempt when a session ends",
    ],
)
def test_a_fault_is_found_soon_and_nothing_without_it(copy, name):
    [mutant] = [mutant for mutant in MUTANTS if mutant.name == name]
    with faulty(copy, mutant):
        found = judge(copy, name, 100, 0)
    assert found.problem
    assert not judge(copy, "no fault", found.histories, 0).problem


@pytest.mark.deep
@pytest.mark.parametrize("mutant", MUTANTS, ids=[mutant.name for mutant in MUTANTS])
def test_each_fault_is_found(copy, mutant):
    with faulty(copy, mutant):
        assert judge(copy, mutant.name, 2_000, 0).problem

"""Test the simulation itself: it reports no fault without one, covers what it says, finds faults, and replays."""

import json
import os
import re
import subprocess
import sys

import pytest

from journal.engine.engine import Engine
from journal.wal.writer import Journal
from tests.simulation import campaign, history
from tests.simulation.campaign import Campaign, explain, replay
from tests.simulation.shrink import from_text, shrunk, to_text
from tests.support.repository import ROOT

COVERED = {
    "Sent": 1500, "Committed": 500, "Done": 800, "Outcome": 1500, "Fetched": 3000, "Claimed": 80, "GroupOffsets": 2000,
    "retried sends": 400, "sends answered again": 150, "prepared ended at last": 80, "connections lost": 300,
    "Refused TransactionRolledBack": 100, "Refused TransactionCommitted": 50, "Refused OutcomeForgotten": 15,
    "Refused GenerationFenced": 20, "Refused OffsetPending": 15, "Refused ProducerFenced": 10,
    "Refused HeuristicallyCommitted": 1, "Refused HeuristicallyRolledBack": 1, "Refused DiskFull": 20,
    "power cuts": 500, "power cuts in a start": 400, "kills": 200, "stops": 200, "starts": 1000, "failed starts": 150,
    "failures that end the process": 50, "failed force": 30, "failed write": 30, "short write": 30,
    "rotten checkpoints": 30, "rotten partitions": 30, "strangers told BrokerReplaced": 100,
    "topics grown": 200, "rules of groups": 60, "Joined": 160, "Attended": 1000, "members' transactions": 300,
    "members' settlements": 100, "members' work fenced": 4, "members fenced": 20, "members lost": 90,
    "members asked back": 45, "members released": 25, "members' attempts": 2,
    "members at rest": 45, "changes of access": 600, "changes of access refused": 60, "sessions of principals": 300,
    "sessions of nobody": 20, "sessions ended by changes of access": 80, "logins refused": 60,
    "Refused AccessDenied": 600, "denied Send": 100, "denied Commit": 60, "denied Timed": 10,
    "lists of prepared transactions": 60, "lists of topics": 50, "quotas of prepared": 6, "quotas of sessions": 2,
    "quotas of producers": 1, "quotas of topics": 1,
    "scheduled": 1000, "scheduled once": 400, "scheduled in transactions": 1500, "taken back: cancelled": 400,
    "taken back: sent": 140, "taken back: held": 30, "taken back in transactions": 1100,
    "Refused ScheduledForTopic": 20, "Refused ScheduleHeld": 12, "lists of the schedule": 100,
    "approached: came in time": 25, "jumps that the broker has seen": 12, "schedules at their ends": 45,
    "confirms": 1500, "AMQP commits with messages": 90, "AMQP commits with both": 25,
    "AMQP commits with acknowledgements": 15, "first deliveries": 1500, "redeliveries": 4000,
    "deliveries of what waited": 2000, "acknowledgements known to be forced": 2000, "BasicRecoverOk": 20,
    "BasicReject": 60, "TxRollbackOk": 40, "ripened": 25, "queues drained": 45,
}  # fmt: skip
"""How often 500 histories must come to this at least: a third or so of what they do, so that nothing is vacuous."""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("first", "count"),
    [(0, 200), *(pytest.param(first, 500, marks=pytest.mark.deep) for first in range(0, 2000, 500))],
)
def test_hundreds_of_histories_keep_every_promise_and_cover_what_they_should(first, count):
    run = Campaign(first, float("inf"), count)
    run.run(jobs=1)
    assert [explain(outcome)["text"] for outcome in run.failed] == []
    assert run.done == count
    least = {name: -(-number * count // 500) for name, number in COVERED.items()}
    assert {name: run.counts[name] for name in least if run.counts[name] < least[name]} == {}
    assert len(run.sites) >= 50


def test_some_histories_keep_every_promise():
    run = Campaign(10_000, float("inf"), 10)
    run.run(jobs=1)
    assert [explain(outcome)["text"] for outcome in run.failed] == []
    assert run.counts["Committed"] > 6
    assert run.counts["members at rest"] == 1
    assert run.counts["changes of access"] > 10
    assert run.counts["schedules at their ends"] == 1
    assert run.counts["queues drained"] == 1
    assert run.crashes > 25


@pytest.mark.slow
def test_a_history_takes_the_same_course_in_every_process():
    def courses(hash_seed):
        code = (
            "from tests.simulation import history\n"
            "for seed in range(12):\n"
            "    print('\\n'.join(history.run(seed, trace=True).trace))"
        )
        return run_python("-c", code, PYTHONHASHSEED=hash_seed).stdout

    one = courses("1")
    assert len(one) > 100_000
    assert one == courses("2")


# -- with a fault in the broker -------------------------------------------------------------------


@pytest.fixture
def hasty(monkeypatch):
    """A broker that answers before the force."""
    monkeypatch.setattr(Engine, "when_forced", lambda self, deliver, answer: deliver(answer))


@pytest.fixture
def failing(hasty):
    return next(outcome for outcome in map(history.run, range(100)) if outcome.problem)


@pytest.mark.slow
def test_a_violation_says_what_was_expected_and_found_and_how_to_replay_the_shrunk_history(failing):
    told = explain(failing)
    assert told["problem"].startswith("expected: ")
    assert "\nfound: " in told["problem"]
    assert told["steps"] < history.settings_of(failing.seed).steps / 4
    [spec] = re.findall(r"^make simulate ARGS=--replay=(\S+)$", told["text"], re.MULTILINE)
    again, text = replay(spec)
    assert (again.problem, text) == (told["problem"], told["text"])
    assert "client" in text


@pytest.mark.slow
def test_nothing_is_left_to_shrink(failing):
    told = explain(failing)
    [spec] = re.findall(r"--replay=\d+/(\S+)", told["text"])
    kept = from_text(spec)
    for step in kept:
        fewer = history.run(failing.seed, [other for other in kept if other != step])
        assert campaign._kind(fewer.problem) != campaign._kind(failing.problem)


def test_a_campaign_ends_soon_after_a_violation(hasty):
    run = Campaign(0, float("inf"), 10_000)
    run.run(jobs=1)
    assert len(run.failed) == 1
    assert run.done < 200
    assert run.report().startswith("1 history broke a promise\n")


def test_what_counts_is_said_first_and_the_counts_only_if_they_are_asked_for():
    run = Campaign(0, float("inf"), 1)
    run.run(jobs=1)
    verdict, figures = run.report().splitlines()
    assert verdict == "0 histories broke a promise"
    assert figures.startswith("1 histories from seed 0 in ")
    told = run.report(verbose=True)
    assert told.startswith(verdict)
    assert told.endswith(verdict)
    assert all(name in told for name in run.summary()["counts"])
    assert "made fail or write less, on purpose" in told


def test_without_the_force_a_power_cut_is_seen_to_lose_what_was_acknowledged(monkeypatch):
    monkeypatch.setattr(Journal, "force", lambda self: None)
    run = Campaign(0, float("inf"), 300)
    run.run(jobs=1)
    assert run.failed


# -- the command line -----------------------------------------------------------------------------


def run_python(*arguments, **environment):
    return subprocess.run(
        [sys.executable, *arguments],
        cwd=ROOT,
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.slow
def test_the_command_reports_what_it_covered_as_json_and_ends_well():
    ended = run_python("-m", "tests.simulation", "--histories", "25", "--seed", "7", "--jobs", "2", "--json")
    assert ended.returncode == 0, ended.stderr
    told = json.loads(ended.stdout)
    assert (told["histories"], told["seed"], told["violations"]) == (25, 7, [])
    assert told["crashes"] > 20
    assert told["crash_points"] > 5
    assert told["counts"]["starts"] >= 50


@pytest.mark.slow
def test_a_replay_prints_the_whole_history_and_ends_well_if_all_is_well():
    ended = run_python("-m", "tests.simulation", "--seconds", "60", "--replay=3/0-20,30")
    assert ended.returncode == 0, ended.stderr
    assert ended.stdout.startswith("start 1: ")
    assert "[30] " in ended.stdout
    assert "[21] " not in ended.stdout
    assert ended.stdout.endswith("make simulate ARGS=--replay=3/0-20,30\nall promises were kept\n")


# -- shrinking ------------------------------------------------------------------------------------


@pytest.mark.parametrize("wanted", [set(), {0}, {99}, {3, 50, 51}, set(range(0, 100, 7))])
def test_what_is_needed_is_kept_and_nothing_else(wanted):
    tries = []

    def fails(steps):
        tries.append(steps)
        return wanted <= set(steps)

    assert set(shrunk(range(100), fails)) == wanted
    assert len(tries) < 500


def test_shrinking_ends_when_its_time_is_up():
    assert len(shrunk(range(100), lambda steps: True, seconds=0)) == 100


@pytest.mark.parametrize("steps", [[], [0], [5, 6, 7], [0, 2, 3, 4, 9], list(range(300))])
def test_steps_are_written_as_ranges_and_read_back(steps):
    assert from_text(to_text(steps)) == steps


def test_ranges_read_as_people_write_them():
    assert to_text([0, 1, 2, 7, 9, 10]) == "0-2,7,9-10"
    assert to_text([]) == "-"

"""Test the table at the end of the demo."""

import io
import re
from collections import Counter
from dataclasses import replace

from rich.console import Console

from demo.consuming import DeadLetter, Work
from demo.killer import Killed
from demo.kills import Kill, Phase
from demo.producer import Fate
from demo.summary import Run, faults_of, show
from demo.verify import Verdict
from demo.workforce import Death, Watched

WORK = Work(
    rows=336_777,
    watched=Watched(
        deaths=[
            Death("worker-2", [3], 141_824, 1.0, 5.06),
            Death("worker-4", [0, 1], 61_234, 9.0, 5.27),
        ],
        broker_back_after=[0.83],
        seconds=30.0,
    ),
    handled=Counter({"worker-1": 190_000, "worker-2": 10_000, "worker-3": 100_000, "worker-4": 36_776}),
    very_late=40,
    tried_again=43,
    letters=[DeadLetter(0, 5, "MalformedRow: [row] 0 is no flight: '2013,4,1,1434,1435,-1,1747'")],
    verdict=Verdict(rows=Counter(flights=336_776)),
)

GOOD = Run(
    seed=7,
    place="build/demo/run",
    days=365,
    rows_in_source={"flights": 336_776, "weather": 26_115},
    rows_sent=362_892,
    rows_sent_again=994,
    killed=[
        Killed(Kill("2013-03-04", Phase.PREPARED, 0.5), "2013-03-04", Phase.PREPARED, 0.71),
        Killed(Kill("2013-05-06", Phase.COMMITTING, 0.5), "2013-05-07", Phase.ADDING, 0.92),
    ],
    fates={"2013-03-04": Fate.IN_DOUBT},
    recoveries=[0.01, 0.12, 0.34],
    kills_planned=2,
    finished_in_doubt=1,
    send_seconds=20.0,
    read_seconds=2.0,
    total_seconds=23.0,
    verdict=Verdict(rows=Counter(flights=336_776, weather=26_115)),
    work=WORK,
)


def shown(run):
    console = Console(file=io.StringIO(), width=100)
    show(run, console)
    return console.file.getvalue()


def test_a_good_run_shows_every_figure_and_says_so():
    text = shown(GOOD)
    for figure in (
        "365",
        "362,891",
        "362,892",
        "336,776",
        "26,115",
        "994",
        "18,145",
        "181,446",
        "0.71 to 0.92 s",
        "0.12 to 0.34 s",
        "23.0 s",
    ):
        assert figure in text
    assert re.search(r"prepared +2013-03-04 +prepared +in doubt: committed +0.71 s", text)
    assert re.search(r"committing +2013-05-07 +adding rows +was committed +0.92 s", text)
    assert "exactly once" in text
    assert "failed" not in text
    assert faults_of(GOOD) == []


def test_a_broken_promise_fails_the_run_and_says_where_the_evidence_is():
    verdict = Verdict(rows=Counter(flights=336_776))
    verdict.fault("missing", "row 1 of weather, 2013-01-01")
    run = replace(GOOD, verdict=verdict)
    text = shown(run)
    assert faults_of(run) == ["missing: 1 times"]
    assert "missing: row 1 of weather" in text
    assert "build/demo/run" in text
    assert "--seed 7" in text
    assert "came back exactly once" not in text


def test_the_work_is_shown_by_worker_with_its_kills_its_retries_and_its_dead_letter():
    text = shown(GOOD)
    assert re.search(r"worker-1 +190,000 +in order", text)
    assert re.search(r"worker-2 +10,000 +SIGKILL, 141,824 rows left +5.1 s", text)
    assert re.search(r"worker-4 +36,776 +SIGKILL, 61,234 rows left +5.3 s", text)
    assert re.search(r"rows in PostgreSQL +336,776\b", text)
    assert re.search(r"dead letters +1\b", text)
    assert re.search(r"row 0, 5 attempts +MalformedRow: \[row\] 0 is no fl", text)
    assert re.search(r"every row's effect exactly once +yes\b", text)


def test_an_effect_that_is_missing_fails_the_run():
    verdict = Verdict(rows=Counter(flights=336_775))
    verdict.fault("effect missing", "row 7, 2013-01-01")
    run = replace(GOOD, work=replace(WORK, verdict=verdict))
    text = shown(run)
    assert faults_of(run) == ["effect missing: 1 times"]
    assert re.search(r"every row's effect exactly once +no\b", text)
    assert "effect missing: row 7, 2013-01-01" in text
    assert "in the database exactly once" not in text


def test_a_dead_letter_that_is_missing_comes_twice_or_is_of_another_row_fails_the_run():
    (letter,) = WORK.letters
    for letters in ([], [letter, letter], [replace(letter, row=7)]):
        (fault,) = faults_of(replace(GOOD, work=replace(WORK, letters=letters)))
        assert "the malformed row was to be the one dead letter" in fault


def test_a_worker_that_was_not_killed_fails_the_run():
    watched = replace(WORK.watched, deaths=WORK.watched.deaths[:1])
    (fault,) = faults_of(replace(GOOD, work=replace(WORK, watched=watched)))
    assert fault == "2 workers and the broker were to be killed, 1 and 1 were"


def test_a_kill_that_did_not_happen_fails_the_run():
    assert "2 kills were planned, 1 were carried out" in faults_of(replace(GOOD, killed=GOOD.killed[:1]))


def test_rows_that_were_never_sent_fail_the_run_even_if_nothing_else_is_wrong():
    assert len(faults_of(replace(GOOD, rows_sent=362_891))) == 1


def test_a_run_without_kills_has_no_recovery_times():
    assert "–" in shown(replace(GOOD, killed=[], recoveries=[0.1], kills_planned=0))

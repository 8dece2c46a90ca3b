"""Test the table at the end of the demo."""

import io
import re
from collections import Counter
from dataclasses import replace

from rich.console import Console

from demo.killer import Killed
from demo.kills import Kill, Phase
from demo.producer import Fate
from demo.summary import Run, faults_of, show
from demo.verify import Verdict

GOOD = Run(
    seed=7,
    place="build/demo/run",
    days=365,
    rows_in_source={"flights": 336_776, "weather": 26_115},
    rows_sent=362_891,
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
    assert "exactly once" not in text


def test_a_kill_that_did_not_happen_fails_the_run():
    assert "2 kills were planned, 1 were carried out" in faults_of(replace(GOOD, killed=GOOD.killed[:1]))


def test_rows_that_were_never_sent_fail_the_run_even_if_nothing_else_is_wrong():
    assert len(faults_of(replace(GOOD, rows_sent=362_890))) == 1


def test_a_run_without_kills_has_no_recovery_times():
    assert "–" in shown(replace(GOOD, killed=[], recoveries=[0.1], kills_planned=0))

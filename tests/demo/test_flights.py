"""Test the whole demo with few rows."""

import os
import re
import subprocess
import sys
from collections import Counter, defaultdict
from dataclasses import replace
from statistics import mean

import pytest
from click.testing import CliRunner

from demo import flights
from demo.audit import AuditFailed, audited
from demo.delays import LEAST_FLIGHTS
from demo.departures import departure_of
from demo.flights import directory, main
from demo.source import FLIGHTS, TOPICS, WEATHER, columns_of, read_year
from tests.demo.test_report import GOOD
from tests.support.repository import PACKAGES, ROOT


def demo(*options):
    return subprocess.run(
        [sys.executable, "-m", "demo.flights", *options],
        cwd=ROOT,
        env={**os.environ, "COLUMNS": "120", "PYTHONPATH": PACKAGES},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )


@pytest.mark.slow
@pytest.mark.parametrize("days", [8, pytest.param(31, marks=pytest.mark.deep)])
def test_days_get_through_a_broker_that_is_killed_in_every_phase(tmp_path, days):
    rows = f"{sum(len(day.rows) for day in read_year()[:days]) + 1:,}"
    done = demo("--days", str(days), "--kills", "5", "--seed", "20", "--data", str(tmp_path / "run"))
    assert done.returncode == 0, done.stdout + done.stderr
    assert "Seed 20" in done.stdout
    assert len(re.findall(r"2013-01-\d\d: SIGKILL while", done.stdout)) == 5
    assert re.search(rf"rows sent +{rows}\b", done.stdout), done.stdout
    assert re.search(rf"rows read +{rows}\b", done.stdout), done.stdout
    assert re.search(r"kills \(SIGKILL\) +5\b", done.stdout)
    found = re.search(r"prepared transactions found and finished +(\d)", done.stdout)
    assert found
    assert int(found[1]) >= 1, "one kill is aimed between prepare and commit"
    assert "Every row came back exactly once" in done.stdout
    assert_the_work_is_done(done.stdout, days)
    assert "\nsound\n" in done.stdout, done.stdout
    assert str(tmp_path / "run" / "audit" / "index.html") in done.stdout
    assert "Minutes late" not in (tmp_path / "run" / "audit" / "spark.log").read_text()
    shown = re.findall(r"^ +(\w\w) +([\d,]+) +(-?[\d.]+) ", done.stdout, re.MULTILINE)
    assert {(code, int(flights.replace(",", "")), late) for code, flights, late in shown} == delays_by_hand(
        days
    )
    assert (tmp_path / "run" / "data").is_dir()
    assert "txbroker ready" in (tmp_path / "run" / "broker.log").read_text()


def assert_the_work_is_done(said, days):
    flights = [row for day in read_year()[:days] for row in day.rows if row.topic == FLIGHTS]
    assert (
        len(re.findall(r"^worker-\d: SIGKILL, with [\d,]+ rows left in partition", said, re.MULTILINE)) == 2
    )
    assert len(re.findall(r"^worker-\d: partitions? [\d, ]+ taken over by worker-", said, re.MULTILINE)) == 2
    assert len(re.findall(r"^broker: SIGKILL after ", said, re.MULTILINE)) == 1
    handled = re.findall(r"^ +worker-\d +([\d,]+) +(SIGKILL|in order)", said, re.MULTILINE)
    assert sum(int(rows.replace(",", "")) for rows, _ in handled) == len(flights)
    assert sorted(end for _, end in handled) == ["SIGKILL", "SIGKILL", "in order", "in order"]
    late = sum(departure_of(row.number, row.line).is_very_late for row in flights)
    assert late > 0
    assert re.search(rf"done at a later attempt +{late}\b", said), said
    assert re.search(r"dead letters +1\b", said)
    assert re.search(r"row 0, 5 attempts +MalformedRow: row 0 is no flight", said)
    assert re.search(r"every row's effect exactly once +yes\b", said)
    assert "Every row's effect is in the database exactly once" in said


@pytest.mark.deep
def test_without_kills_nothing_is_sent_twice(tmp_path):
    done = demo("--days", "3", "--kills", "0", "--data", str(tmp_path / "run"))
    assert done.returncode == 0, done.stdout + done.stderr
    assert re.search(r"sent again after a rollback +0\b", done.stdout)
    place = tmp_path / "run"
    sound, text = audited(place / "data", place / "again", 4)
    assert not sound, "a day is expected that was never sent"
    assert "expect: missing" in text
    assert "violations" in text


def delays_by_hand(days):
    """Carrier, flights and mean delay of those that left in an hour whose weather is known, in plain Python."""
    year = read_year()[:days]
    names = {topic: columns_of(topic) for topic in TOPICS}
    rows = {
        topic: [
            dict(zip(names[topic], row.line.decode().split(","), strict=True))
            for day in year for row in day.rows if row.topic == topic
        ]
        for topic in TOPICS
    }  # fmt: skip
    known = Counter((row["origin"], row["time_hour"]) for row in rows[WEATHER])
    late = defaultdict(list)
    for row in rows[FLIGHTS]:
        if row["dep_delay"] != "NA":
            late[row["carrier"]] += [int(row["dep_delay"])] * known[row["origin"], row["time_hour"]]
    return {
        (code, len(all_), f"{mean(all_):.1f}") for code, all_ in late.items() if len(all_) >= LEAST_FLIGHTS
    }


@pytest.mark.parametrize(("sent", "code"), [(362_892, 0), (362_891, 1)])
def test_the_exit_code_is_the_verdict_and_a_failed_run_keeps_its_evidence(tmp_path, monkeypatch, sent, code):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(flights, "read_year", list)
    monkeypatch.setattr(flights, "carry_out", lambda *_: replace(GOOD, rows_sent=sent))
    monkeypatch.setattr(flights, "audited", lambda *_: (True, "sound"))
    result = CliRunner().invoke(flights.main, [])
    assert result.exit_code == code
    assert len(list((tmp_path / "build" / "demo").iterdir())) == code
    assert ("is removed; --data" in result.output) == (code == 0)


@pytest.mark.parametrize("finding", [(False, "1 violation"), AuditFailed("no Java")])
def test_so_is_what_the_audit_says(tmp_path, monkeypatch, finding):
    def judged(*_):
        if isinstance(finding, Exception):
            raise finding
        return finding

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(flights, "read_year", list)
    monkeypatch.setattr(flights, "carry_out", lambda *_: replace(GOOD, rows_sent=362_892))
    monkeypatch.setattr(flights, "audited", judged)
    result = CliRunner().invoke(flights.main, [])
    assert result.exit_code == 1
    assert ("no Java" if isinstance(finding, Exception) else "1 violation") in result.output
    assert len(list((tmp_path / "build" / "demo").glob("run-*"))) == 1


def test_a_directory_with_something_in_it_is_left_alone(tmp_path):
    (tmp_path / "precious").write_text("data")
    result = CliRunner().invoke(main, ["--data", str(tmp_path)])
    assert result.exit_code == 2
    assert [path.name for path in tmp_path.iterdir()] == ["precious"]


def test_without_a_wish_every_run_has_a_directory_of_its_own(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert directory(None) != directory(None)
    assert all(path.parent.name == "demo" for path in (tmp_path / "build" / "demo").iterdir())

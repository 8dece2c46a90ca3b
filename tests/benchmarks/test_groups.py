"""Test that the benchmark of workers counts what they handle, and shows each way beside what it is measured by."""

import json

import pytest
from click.testing import CliRunner

import txbroker
from benchmarks.groups import __main__ as groups
from benchmarks.groups.__main__ import RATES, WAYS, Way, main, rate, results, running
from benchmarks.groups.handovers import HANDOVERS, killed, killed_when_prepared
from benchmarks.groups.processes import BenchmarkFailed


def test_the_targets_are_those_of_the_issue():
    wanted = [
        *((Way(kind, *how), Way(kind), factor) for kind in RATES for how, factor in groups_of_rates()),
        (Way("1 % failing", 1, 8), Way("plain", 1, 8), 0.9),
    ]
    for way, beside, factor in wanted:
        for value, is_met in ((factor * 100 - 1, False), (factor * 100 + 1, True)):
            found = {
                each.figure.name: each.is_met for each in results({beside.name: [100.0], way.name: [value]})
            }
            assert found[way.name] is is_met


def groups_of_rates():
    return ((1, 8), 7.0), ((2, 1), 1.9), ((8, 1), 7.0)


def test_so_are_those_of_the_hand_overs():
    for handover, seconds in zip(HANDOVERS, (1.0, 6.0, 4.0, 7.0), strict=True):
        for value, is_met in ((seconds, True), (seconds + 0.01, False)):
            [found] = results({handover.figure.name: [value]})
            assert found.is_met is is_met


@pytest.mark.slow
def test_each_way_is_run_and_the_command_shows_and_writes_it(tmp_path, monkeypatch):
    monkeypatch.setattr(groups, "WAYS", [way for way in WAYS if way.workers < 8 and way.kind != "plain"])
    monkeypatch.setattr(groups, "HANDOVERS", [])
    monkeypatch.setattr(groups, "WARM_UP", 0.1)
    file = tmp_path / "groups.json"
    options = ["--seconds", "0.3", "--repeat", "1", "--json", str(file), "--folder", str(tmp_path / "data")]
    result = CliRunner().invoke(main, options, catch_exceptions=False)
    assert result.exit_code == 0, result.output
    samples = json.loads(file.read_text())["samples"]
    assert set(samples) == {way.name for way in groups.WAYS}
    assert all(20 < values[0] < 2000 for values in samples.values())
    assert "transaction, 1 worker, concurrency=8" in result.output
    assert not any((tmp_path / "data").iterdir())


@pytest.mark.deep
def test_after_deaths_others_go_on_and_the_seconds_are_those_until_then(tmp_path):
    with running(tmp_path) as broker, txbroker.connect(broker.address) as connection:
        for measure in (killed, killed_when_prepared):
            assert 4.0 < measure(connection, broker.address, tmp_path) < 60.0  # reconnect_grace is 5 s


@pytest.mark.slow
def test_a_worker_that_ends_by_itself_fails_the_run(tmp_path, monkeypatch):
    monkeypatch.setitem(groups.KINDS, "wrong", {"transaction": "teleportation"})
    with running(tmp_path) as broker, pytest.raises(BenchmarkFailed):
        rate(broker.address, Way("wrong"), 0.1)

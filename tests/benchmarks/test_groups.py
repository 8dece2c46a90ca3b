"""Test that the benchmark of workers counts what they handle, and shows each way beside one worker."""

import json

import pytest
from click.testing import CliRunner

from benchmarks.groups import __main__ as groups
from benchmarks.groups.__main__ import KINDS, WAYS, BenchmarkFailed, Way, main, rate, results, running


def test_the_targets_are_those_of_the_issue():
    for kind in KINDS:
        one = Way(kind).name
        for way, factor in ((Way(kind, 1, 8), 7.0), (Way(kind, 2, 1), 1.9), (Way(kind, 8, 1), 7.0)):
            for value, is_met in ((factor * 100 - 1, False), (factor * 100 + 1, True)):
                found = results({one: [100.0], way.name: [value]})
                assert [each.is_met for each in found] == [None, is_met]


@pytest.mark.slow
def test_each_way_is_run_and_the_command_shows_and_writes_it(tmp_path, monkeypatch):
    monkeypatch.setattr(groups, "WAYS", [way for way in WAYS if way.workers < 8])
    monkeypatch.setattr(groups, "WARM_UP", 0.1)
    file = tmp_path / "groups.json"
    options = ["--seconds", "0.3", "--repeat", "1", "--json", str(file), "--folder", str(tmp_path / "data")]
    result = CliRunner().invoke(main, options, catch_exceptions=False)
    assert result.exit_code == 0, result.output
    samples = json.loads(file.read_text())["samples"]
    assert set(samples) == {way.name for way in groups.WAYS}
    assert all(20 < values[0] < 2000 for values in samples.values())
    assert "plain, 1 worker, concurrency=8" in result.output
    assert not any((tmp_path / "data").iterdir())


@pytest.mark.slow
def test_a_worker_that_ends_by_itself_fails_the_run(tmp_path, monkeypatch):
    monkeypatch.setitem(groups.KINDS, "wrong", "teleportation")
    with running(tmp_path) as broker, pytest.raises(BenchmarkFailed):
        rate(broker.address, Way("wrong"), 0.1)

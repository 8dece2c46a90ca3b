"""Test that the benchmark of atomic blocks counts only what is there, and shows each way beside the others."""

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from benchmarks.atomic import __main__ as atomic
from benchmarks.atomic.__main__ import TARGETS, WAYS, Bench, BenchmarkFailed, Way, main, results, servers
from benchmarks.atomic.loads import IN_BROKER, IN_DATABASE, LOADS


def test_every_load_is_run_with_one_connection_and_with_many_and_leaves_rows_or_messages():
    for load in LOADS:
        assert Way(load) in WAYS
        assert Way(load, atomic.MANY) in WAYS
    assert set(LOADS) == IN_DATABASE | IN_BROKER


def test_the_targets_are_those_of_the_issue():
    samples = {way.name: [100.0] for way in WAYS}
    ways = {"atomic, 1 connection": 99.0, "atomic, 16 processes": 149.0, "the same, beside the outbox": 49.0}
    for better in (0.0, 2.0):
        for figure, value in ways.items():
            samples[
                next(way.name for way in WAYS if figure in {one.name for one in TARGETS.get(way, ())})
            ] = [value + better]
            found = next(one for one in results(samples) if one.figure.name == figure)
            assert found.is_met is bool(better), figure


@pytest.mark.slow
@pytest.mark.parametrize(
    "loads", [["outbox", "two-phase", "atomic"], pytest.param(list(LOADS), marks=pytest.mark.deep)], ids=len
)
def test_each_way_leaves_what_it_counts_and_the_command_shows_and_writes_it(tmp_path, loads):
    file = tmp_path / "atomic.json"
    options = ["--seconds", "0.3", "--repeat", "1", "--json", file, "--folder", tmp_path / "data"]
    only = [word for load in loads for word in ("--only", load)]
    result = CliRunner().invoke(main, [*map(str, options), *only])
    assert result.exit_code == 0, result.output
    written = json.loads(file.read_text())
    assert (
        {way.name for way in WAYS if way.load in loads}
        == set(written["samples"])
        == set(written["processor"])
    )
    assert "the same, beside the outbox" in result.output
    assert not any((tmp_path / "data").iterdir())


@pytest.mark.slow
def test_work_that_is_counted_and_not_there_fails_the_run(tmp_path, monkeypatch):
    monkeypatch.setattr(atomic, "SETTLE_WITHIN", 0.1)
    with servers(Path(tmp_path)) as (postgresql, broker):
        bench = Bench(postgresql, broker)
        messages = bench._prepare()
        with pytest.raises(BenchmarkFailed, match="1 pieces of work"):
            bench._verify(Way("row"), messages, 1)
        with pytest.raises(BenchmarkFailed, match="0 messages, 1 expected"):
            bench._verify(Way("messages"), messages, 1)


@pytest.mark.slow
def test_a_worker_that_fails_fails_the_run(tmp_path, monkeypatch):
    with servers(Path(tmp_path)) as (postgresql, broker):
        bench = Bench(postgresql, broker)
        with pytest.raises(BenchmarkFailed, match="a worker ended with 1"):
            bench.run(Way("teleportation"), 0.1)

"""Test that the benchmark of atomic blocks counts only what is there, and shows each way beside the others."""

import json
from pathlib import Path

import psycopg
import pytest
from click.testing import CliRunner

from benchmarks.atomic import __main__ as atomic
from benchmarks.atomic import old_snapshot
from benchmarks.atomic.__main__ import TARGETS, WAYS, Bench, BenchmarkFailed, Way, main, results, servers
from benchmarks.atomic.loads import IN_BROKER, IN_DATABASE, LOADS, POLLED


def test_every_load_is_run_with_one_connection_and_with_many_and_leaves_rows_or_messages():
    for load in LOADS:
        assert Way(load) in WAYS
        assert Way(load, atomic.MANY) in WAYS
    assert set(LOADS) == IN_DATABASE | IN_BROKER


def test_the_targets_are_those_of_the_issue():
    samples = {way.name: [100.0] for way in WAYS}
    samples |= {atomic.end_to_end(way): [100.0] for way in WAYS if way.load in IN_BROKER}
    ways = {
        (Way("atomic-outbox"), 0): 94.0,
        (Way("atomic-outbox"), 1): 129.0,
        (Way("atomic-outbox", atomic.MANY), 0): 79.0,
        (Way("atomic-outbox", atomic.MANY, True), 0): 79.0,
        (Way("atomic"), 0): 99.0,
        (Way("atomic"), 1): 59.0,
        (Way("atomic", atomic.MANY), 0): 149.0,
        (Way("atomic", atomic.MANY), 1): 54.0,
    }
    for better in (0.0, 2.0):
        for (way, place), value in ways.items():
            figure = TARGETS[way][place]
            name = figure.name if figure.name in samples else way.name
            found = next(one for one in results({**samples, name: [value + better]}) if one.figure == figure)
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
        == {name for name in written["samples"] if not name.endswith("end to end")}
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


@pytest.mark.slow
def test_the_time_until_a_consumer_has_read_a_message_is_measured(tmp_path, monkeypatch):
    monkeypatch.setattr(atomic, "PIECES", 20)
    with servers(Path(tmp_path)) as (postgresql, broker):
        bench = Bench(postgresql, broker)
        found = [bench.until_read(pause) for pause in atomic.PAUSES.values()]
    assert all(0 < each < 1000 for each in found)
    [slow, _] = [atomic.until_read(pause) for pause in atomic.PAUSES]
    for milliseconds, is_met in ((4.9, True), (5.1, False)):
        [result] = results({slow.name: [milliseconds]})
        assert result.is_met is is_met


@pytest.mark.slow
@pytest.mark.parametrize("way", old_snapshot.WAYS, ids=lambda way: way.load)
def test_rows_that_went_through_an_outbox_are_kept_while_it_is_measured(tmp_path, monkeypatch, way):
    left, run = [], Bench.run

    def counted(bench, *arguments):
        with psycopg.connect(bench._database_url) as database:
            table = "outbox" if way.load in POLLED else "txbroker_outbox"
            left.append(database.execute(f"SELECT pg_relation_size('{table}')").fetchone()[0])
        return run(bench, *arguments)

    monkeypatch.setattr(Bench, "run", counted)
    lines = old_snapshot.measure(Path(tmp_path), way, [0, 5000], 0.3, 1)
    assert [(load, rows) for load, rows, *_ in lines] == [(way.load, 0), (way.load, 5000)]
    assert all(rates[0] > 0 for _, _, rates, *_ in lines)
    assert left[1] - left[0] > 5000 * 100

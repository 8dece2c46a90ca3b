"""Test that the benchmark of workers counts what they handle, and shows each way beside what it is measured by; and
that its sessions share partitions, and are seen to fail.
"""

import json

import pytest
from click.testing import CliRunner

import txbroker
from benchmarks.groups import __main__ as groups
from benchmarks.groups import sessions
from benchmarks.groups.__main__ import RATES, WAYS, Way, main, rate, results, running
from benchmarks.groups.handovers import HANDOVERS, is_even, killed, killed_when_prepared
from benchmarks.groups.processes import BenchmarkFailed
from benchmarks.groups.sessions import EVEN, IDLE, TOPIC, Scene, measured

FEW = Scene(sessions=20, partitions=210, seconds=1.5, wait=0.3, session_timeout=3.0)


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


def test_so_are_those_of_the_hand_overs_and_of_the_sessions():
    figures = [*(each.figure for each in HANDOVERS), EVEN, IDLE]
    for figure, most in zip(figures, (1.0, 6.0, 4.0, 7.0, 15.0, 3.0), strict=True):
        for value, is_met in ((most, True), (most + 0.01, False)):
            [found] = results({figure.name: [value]})
            assert found.is_met is is_met
    assert Scene()[:3] == (1_000, 10_000, 30.0)


@pytest.mark.slow
def test_each_way_is_run_and_the_command_shows_and_writes_it(tmp_path, monkeypatch):
    monkeypatch.setattr(groups, "WAYS", [way for way in WAYS if way.workers < 8 and way.kind != "plain"])
    monkeypatch.setattr(groups, "HANDOVERS", [])
    monkeypatch.setattr(groups, "WARM_UP", 0.1)
    monkeypatch.setattr(groups, "SCENE", FEW)
    file = tmp_path / "groups.json"
    options = ["--seconds", "0.3", "--repeat", "1", "--json", str(file), "--folder", str(tmp_path / "data")]
    result = CliRunner().invoke(main, options, catch_exceptions=False)
    assert result.exit_code == 0, result.output
    samples = json.loads(file.read_text())["samples"]
    names = {way.name for way in groups.WAYS}
    assert set(samples) == names | {EVEN.name, IDLE.name}
    assert all(20 < samples[name][0] < 2000 for name in names)
    assert "transaction, 1 worker, concurrency=8" in result.output
    assert EVEN.name in result.output
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


@pytest.mark.slow
def test_sessions_are_measured_from_their_join_and_then_while_they_only_wait(tmp_path, monkeypatch):
    used = iter((0.0, 0.25, 1.0, 2.5))  # half of a core without them, all of it with them
    monkeypatch.setattr(sessions, "processor_seconds", lambda pid: next(used))
    with running(tmp_path) as broker:
        found = measured(FEW, broker)
        with txbroker.connect(broker.address) as connection:
            partitions = connection.describe_group(TOPIC).partitions
    assert 0 < found.until_even < 60
    assert 25 < found.idle < 75
    assert found.heartbeats >= 20  # each attends for a second at most
    assert found.polls >= 20
    assert len(partitions) == 210


@pytest.mark.slow
def test_sessions_that_lose_their_broker_fail_the_run(tmp_path, monkeypatch):
    with running(tmp_path) as broker:
        monkeypatch.setattr(sessions, "is_even", lambda *_: broker.kill() or True)
        with pytest.raises(BenchmarkFailed, match="a connection was lost"):
            measured(FEW, broker)


@pytest.mark.slow
def test_so_does_one_that_joins_while_the_others_are_to_have_nothing_to_do(tmp_path, monkeypatch):
    with running(tmp_path) as broker, txbroker.connect(broker.address) as connection:
        consumers = []

        def are_even(group, count):
            if is_even(group, count):
                consumers.append(connection.consume(TOPIC, group=TOPIC))
                consumers[0].poll(0.1)
            return bool(consumers)

        monkeypatch.setattr(sessions, "is_even", are_even)
        monkeypatch.setattr(sessions, "SETTLED", 0.0)
        with pytest.raises(BenchmarkFailed, match="moved"):
            measured(FEW._replace(seconds=4.0), broker)

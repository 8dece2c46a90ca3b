"""Test whole runs: our own broker under every load, failures that do not end a run, and all installed peers."""

import json
import os
import subprocess
import sys
import tempfile
from contextlib import contextmanager
from pathlib import Path

import pytest
from rich.progress import Progress

from benchmarks.peers import charts, forces
from benchmarks.peers.__main__ import CONTENDERS, KEYS, Bench, chosen
from benchmarks.peers.contender import Contender, Measure
from benchmarks.peers.goals import KAFKA, OWN
from benchmarks.peers.server import PeerFailed, PeerMissing
from txbroker.drill.broker.broker_process import BrokerFailed


class Pretended(Contender):
    """Does nothing, or fails where it is told to."""

    peer = "pretended"
    durability = "nothing at all"

    def __init__(self, name, fails="", rate=10.0):
        self.name = name
        self._fails = fails
        self._rate = rate

    def version(self):
        if self._fails == "version":
            raise PeerMissing("there is none here")
        return f"{self.name} 1"

    @contextmanager
    def open(self, folder):
        if self._fails == "open":
            raise BrokerFailed("it did not start")
        yield

    def runs(self):
        return {"depth-1": self._run, "singles": self._run}

    def _run(self, warm_up, seconds):
        if self._fails == "run":
            raise PeerFailed("it broke")
        return {"depth-1": Measure(self._rate, 0.1, 0.2, 5)}

    def processes(self):
        return [os.getpid()]

    def settings(self):
        return ["none"]

    def clients(self):
        return ["none"]


@pytest.fixture(autouse=True)
def _no_forces(monkeypatch):
    def counted(processes, run):
        raise forces.NotCounted("not in these tests")

    monkeypatch.setattr(forces, "counted", counted)


def run(*contenders, repeat=1, loads=("depth-1",)):
    bench = Bench(contenders, loads, 0.0, 0.01)
    with bench.servers(Path()), Progress(disable=True) as progress:
        bench.all(repeat, progress)
    return bench.run


@pytest.fixture(autouse=True)
def _no_pause(monkeypatch):
    monkeypatch.setattr("benchmarks.peers.__main__.IDLE", 0.01)


@pytest.mark.parametrize("fails", ["version", "open", "run"])
def test_what_fails_with_one_system_is_reported_and_the_others_are_measured(fails):
    found = run(Pretended("good"), Pretended("bad", fails), repeat=2)
    assert list(found.results()) == [("depth-1", "good")]
    assert len(found.results()["depth-1", "good"].samples) == 2
    expected = {
        "version": "missing: there is none",
        "open": "did not start: it did",
        "run": "depth-1 failed: it broke",
    }
    assert any(expected[fails] in trouble for trouble in found.systems["bad"].trouble)


def test_what_acknowledges_nothing_has_no_figure_but_a_failure():
    found = run(Pretended("idle", rate=0.0))
    assert found.results() == {}
    assert "nothing was acknowledged" in found.systems["idle"].trouble[-1]


def test_who_begins_changes_from_turn_to_turn():
    bench = Bench([Pretended("a"), Pretended("b")], ["depth-1", "singles"], 0.0, 0.01)
    with bench.servers(Path()):
        turns = [[(one.name, load) for one, load, _ in bench.steps(turn)] for turn in range(2)]
    assert turns[0] == [("a", "depth-1"), ("b", "depth-1"), ("a", "singles"), ("b", "singles")]
    assert turns[1] == [("b", "depth-1"), ("a", "depth-1"), ("b", "singles"), ("a", "singles")]


def test_only_names_systems_or_loads_and_ours_is_always_there():
    contenders, loads = chosen(["redis", "singles"])
    assert [one.name for one in contenders] == [OWN, "Redis streams"]
    assert loads == ["singles"]
    assert next(one.peer for one in chosen([])[0]) == "txbroker"
    assert (len(chosen([])[0]), tuple(chosen([])[1])) == (len(CONTENDERS), KEYS)


@pytest.mark.slow
def test_charts_are_drawn_and_are_the_same_for_the_same_figures(tmp_path):
    found = run(Pretended(OWN), Pretended(KAFKA)).results()
    svg, png = charts.draw(found, [KAFKA], tmp_path / "a")
    again, _ = charts.draw(found, [KAFKA], tmp_path / "b")
    assert svg.read_bytes() == again.read_bytes()
    assert png.read_bytes().startswith(b"\x89PNG")
    assert charts.draw({}, [], tmp_path / "c") == []


@pytest.mark.slow
def test_ours_does_every_load_and_all_that_it_acknowledges_is_there(tmp_path):
    ours = CONTENDERS["txbroker"]()
    with ours.open(tmp_path / "broker"):
        found = {}
        for run_load in ours.runs().values():
            found |= run_load(0.1, 0.3)
    assert set(found) == {*KEYS, "python-send", "python-read"} - {"python"}
    assert all(measure.rate > 0 for measure in found.values())


@pytest.mark.slow
def test_forces_of_the_broker_are_counted_and_there_is_one_for_each_answer(tmp_path, monkeypatch):
    monkeypatch.undo()
    ours = CONTENDERS["txbroker"]()
    with ours.open(tmp_path / "broker"):
        run_load = ours.runs()["depth-1"]
        found = forces.counted(ours.processes(), lambda: run_load(0.1, 0.5)["depth-1"].acknowledged)
    assert 0.99 < found.each < 1.2


@pytest.fixture
def open_folder():
    """One that servers with a user of their own get through; pytest's is closed to them."""
    with tempfile.TemporaryDirectory(prefix="txbroker-peers-") as folder:
        os.chmod(folder, 0o755)
        yield Path(folder)


@pytest.mark.deep
def test_a_quick_run_has_figures_for_every_system_that_is_installed(open_folder):
    data, out = open_folder / "data", open_folder / "out"
    command = [sys.executable, "-m", "benchmarks.peers", "--quick", "--only", "depth-1"]
    subprocess.run([*command, "--folder", str(data), "--out", str(out)], check=True, timeout=900)
    found = json.loads((out / "peers.json").read_text())
    measured = {figure["system"] for figure in found["figures"]}
    for system in found["systems"]:
        if not any(trouble.startswith("missing:") for trouble in system["trouble"]):
            assert system["trouble"] == [], system["name"]
            assert system["name"] in measured
            assert system["settings"], system["name"]
            calls = system["forces"]["calls"]
            each = (calls.get("fsync", 0) + calls.get("fdatasync", 0)) / system["forces"]["acknowledged"]
            # Of one that does not force, a busy machine acknowledges few beside what it forces for itself.
            assert each >= 0.99 if system["forced"] else "NOT forced" in system["durability"], system
    assert list(data.iterdir()) == []
    assert (out / "peers.svg").is_file()

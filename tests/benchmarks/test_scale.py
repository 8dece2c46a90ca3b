"""Test the benchmark of scale: every scene with a real broker, small; and the tables."""

import io
import json
import resource

import pytest
from rich.console import Console

from benchmarks.harness.crowd import burst
from benchmarks.harness.peer import UnexpectedAnswer
from benchmarks.harness.process_memory import Memory, allow_descriptors, memory_of
from benchmarks.harness.processes import broker
from benchmarks.scale import __main__ as scale
from benchmarks.scale import tables
from benchmarks.scale.scenes import DESCRIPTORS, WORK, Measured, Scene, measure, typical
from journal.constants import MIB


def figures(kind, number, rate=100.0, peak=100, resident=90, stop=1.0):
    memory = Memory(resident * MIB, peak * MIB)
    return Measured(
        Scene(kind, number, 1.0), 0.3, 0.5, rate, 1.0, 2.0, memory, stop, 0.4, {"note": 7.0}, (rate,)
    )


@pytest.mark.slow
@pytest.mark.parametrize("kind", WORK)
def test_every_scene_can_be_measured_and_finds_what_it_should(kind, tmp_path):
    number = {"connections at 1,000 descriptors": 200, "MiB in one transaction": 20}.get(kind, 12)
    found = measure(Scene(kind, number, 0.2), tmp_path / "data")
    assert found.rate > 0
    assert 0 < found.p50 <= found.p99
    assert MIB < found.memory.resident <= found.memory.peak
    assert min(found.start, found.stop, found.restart) > 0
    if kind in DESCRIPTORS:
        assert found.notes["welcomed"] + found.notes["refused: LimitExceeded"] == number


@pytest.mark.slow
def test_a_crowd_that_is_closed_is_found_out(tmp_path):
    with broker(tmp_path / "data") as server, burst(server.port, 3) as crowd:
        assert len(crowd.sockets) == 3
        crowd.check()
        server.kill()
        with pytest.raises(UnexpectedAnswer, match="3 idle connections were closed"):
            crowd.check()


def test_each_target_is_judged_beside_the_smallest_of_its_kind():
    base = figures("partitions", 1)
    for number, least in ((1_000, 80.0), (10_000, 60.0)):
        assert tables.judged(figures("partitions", number, least), base).met is True
        assert tables.judged(figures("partitions", number, least - 0.1), base).met is False
    assert tables.judged(figures("partitions", 100, 1.0), base) == ("", None)
    opened = figures("open transactions", 10_000, peak=376)
    assert tables.judged(opened, opened).met is True
    assert tables.judged(figures("open transactions", 10_000, peak=377), opened).met is False


def test_the_tables_tell_the_ratio_the_price_of_one_more_and_the_notes():
    measured = [figures("partitions", 1), figures("partitions", 1_001, 50.0, resident=100, stop=3.0)]
    shown = io.StringIO()
    tables.show(measured, Console(file=shown, width=200))
    text = shown.getvalue()
    assert "0.50" in text
    assert "1,001 partitions" in text
    assert "note" in text
    assert " 10.2 " in text, "KiB a partition"
    assert " 2 " in text, "ms of stopping a partition"


def test_of_several_turns_the_medians_are_told_the_spread_and_the_most_memory():
    turns = [figures("partitions", 1, rate, peak=rate, resident=rate / 2) for rate in (300, 100, 120)]
    turns[0].notes["note"] = 1.0
    found = typical(turns)
    assert (found.rate, found.rates, found.memory) == (120, (300, 100, 120), Memory(150 * MIB, 300 * MIB))
    assert (found.stop, found.notes) == (1.0, {"note": 7.0})
    shown = io.StringIO()
    Console(file=shown, width=200).print(tables.table([found]))
    assert "100 – 300" in shown.getvalue()


def test_all_scenes_are_gone_through_before_any_comes_again(tmp_path, monkeypatch):
    order = []

    def measured(scene, data):
        order.append(scene.number)
        return figures(scene.kind, scene.number, rate=len(order))

    monkeypatch.setattr(scale, "measure", measured)
    found = scale.run([Scene("partitions", number, 1.0) for number in (1, 2)], tmp_path / "scale", 3)
    assert order == [1, 2, 1, 2, 1, 2]
    assert [each.rates for each in found] == [(1, 3, 5), (2, 4, 6)]


def test_numbers_of_different_kinds_are_not_compared():
    measured = [figures("partitions", 1), figures("idle connections", 10)]
    assert tables.growth(measured).row_count == 0


def test_the_json_has_everything():
    measured = [figures("partitions", 1), figures("partitions", 1_000, 10.0)]
    document = json.loads(tables.document(measured, {"quick": True}))
    assert document["settings"] == {"quick": True}
    one, thousand = document["scenes"]
    assert one["scene"] == {"kind": "partitions", "number": 1, "seconds": 1.0}
    assert (one["met"], thousand["met"]) == (None, False)
    assert thousand["memory"] == {"resident": 90 * MIB, "peak": 100 * MIB}


def test_quick_is_a_tenth_but_for_what_depends_on_a_limit():
    assert scale.small(Scene("partitions", 10_000, 12.0)) == Scene("partitions", 1_000, 0.3)
    [kind] = DESCRIPTORS
    assert scale.small(Scene(kind, 300, 1.0)).number == 300


def test_memory_is_read_from_outside_and_descriptors_are_what_the_system_allows():
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    try:
        assert allow_descriptors() == hard
        assert resource.getrlimit(resource.RLIMIT_NOFILE) == (hard, hard)
        with open("/proc/self/stat") as file:
            pid = int(file.read().split()[0])
        memory = memory_of(pid)
        assert MIB < memory.resident <= memory.peak
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))

"""Test the measurement of restarts: the scenes, the tables, and one real run of a hundredth."""

import io
import json

import pytest
from click.testing import CliRunner
from rich.console import Console

from benchmarks.recovery.measurement import SCENES, main, small, tables
from benchmarks.recovery.restarts import Measured, Restart
from benchmarks.recovery.scenes import LOADS, SETTINGS, TITLES, Builder, Scene, build
from journal.constants import MIB
from journal.folds.table import client_folds
from journal.recovery.start import recover
from journal.vfs.clock import SystemClock
from journal.vfs.filesystem import OSFilesystem


def measured(scene, seconds, records, size, checked=0.1):
    restarts = [Restart(each, each / 2, records, size, scene.prepared, 99.0, checked) for each in seconds]
    return Measured(scene, restarts)


NONE = measured(Scene(), [0.3, 0.4, 0.5], 3, 1000)
SOME = measured(Scene("singles", 64), [1.4], 400_000, 64 * MIB)
MORE = measured(Scene("singles", 512), [5.4, 4.4, 6.4], 3_000_000, 512 * MIB)


def shown(*scenes):
    output = io.StringIO()
    tables.show(scenes, Console(file=output, width=200))
    return [" ".join(line.replace("│", " ").split()) for line in output.getvalue().splitlines()]


def test_a_line_holds_median_range_rates_limit_target_and_verdict():
    line = next(line for line in shown(NONE, SOME, MORE) if "512 MiB of 100 B singles" in line)
    for part in ("5.40", "4.40 – 6.40", "2.70", "3,000,000", "1,111,111", "199", "5,369", "≤ 4 NO"):
        assert part in line


def test_growth_is_told_from_each_scene_to_the_next_larger_of_its_kind():
    lines = shown(NONE, SOME, MORE)
    assert "100 B singles 0 64 +1.00 15.6 ms a MiB 2.5" in lines
    assert "100 B singles 64 512 +4.00 8.93 ms a MiB 1.54" in lines


def test_every_kind_has_its_scenes_and_every_load_its_title_and_target():
    assert TITLES.keys() == LOADS.keys()
    for load in LOADS:
        assert tables.target(Scene(load, 512)) == 4.0
    every = {scene for scenes in SCENES.values() for scene in scenes}
    assert {scene for scene, _ in tables.TARGETS} <= every


@pytest.mark.slow
@pytest.mark.parametrize("load", LOADS)
def test_a_scene_holds_just_what_it_says_above_its_checkpoint(load, tmp_path):
    scenes = [Scene(load, size, 3, 7) for size in (1, 2)]
    for scene, data in build(tmp_path / "scenes", scenes):
        engine = recover(OSFilesystem(data), SystemClock(), SETTINGS, client_folds())
        try:
            assert len(engine.catalog.stores) == 3
            assert len(engine.transactions.prepared) == 7
            assert scene.mebibytes * MIB <= engine.report.bytes < (scene.mebibytes + 1) * MIB
        finally:
            engine.close()
    assert not (tmp_path / "scenes").exists()


@pytest.mark.slow
def test_what_was_built_can_be_built_on(tmp_path):
    builder = Builder(tmp_path / "built", 1)
    builder.fill("singles", 1)
    first = builder.engine.catalog.stores[1].end_offset
    builder.fill("singles", 2)
    assert builder.engine.catalog.stores[1].end_offset > 1.9 * first
    builder.close()


def test_a_small_scene_is_a_hundredth_and_never_nothing():
    assert small(Scene("singles", 512, 10_000, 100_000)) == Scene("singles", 6, 100, 1000)
    assert small(Scene()) == Scene()
    assert small(Scene("kib", 64)) == Scene("kib", 1)


@pytest.mark.slow
def test_the_command_restarts_real_brokers_and_writes_all_as_json(tmp_path):
    file = tmp_path / "recovery.json"
    options = ["--quick", "--json", file, "--folder", tmp_path / "data"]
    result = CliRunner().invoke(main, ["prepared", "stopped", *map(str, options)])
    assert result.exit_code == 0, result.output
    written = json.loads(file.read_text())
    scenes = {one["title"]: one for one in written["scenes"]}
    assert scenes["SIGKILL, 1,000 prepared"]["restarts"][0]["in_doubt"] == 1000
    assert scenes["SIGKILL, 1,000 prepared"]["restarts"][0]["records"] >= 1000
    assert scenes["clean stop"]["restarts"][0]["records"] == 0
    assert scenes["clean stop"]["target"] == 0.7
    assert not (tmp_path / "data").exists()

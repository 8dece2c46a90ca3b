"""Test the benchmark of the pool: it measures each way, and sees from outside of Python what an hour leaves."""

import json

import pytest
from click.testing import CliRunner

from benchmarks.buffers.__main__ import allocations, main
from benchmarks.buffers.churn import KINDS


@pytest.mark.slow
def test_each_allocation_is_released_so_that_it_can_be_measured_again():
    for _, ways in allocations():
        for _ in range(2):
            for way in ways:
                way()


@pytest.mark.slow
def test_the_command_shows_costs_uses_memory_and_targets_and_writes_them(tmp_path):
    file = tmp_path / "buffers.json"
    options = ["--seconds", "1", "--sample", "0.01", "--json", file, "--folder", tmp_path / "data"]
    result = CliRunner().invoke(main, list(map(str, options)))
    assert result.exit_code == 0, result.output
    written = json.loads(file.read_text())
    assert set(written) == {"machine", "allocate_and_release", "uses", "hour"}
    assert set(written["hour"]) == set(KINDS)
    assert all(
        hour["steps"] and hour["live_high"] >= hour["live_low"] > 0 for hour in written["hour"].values()
    )
    for text in ("cache hit, 512 B", "read of 1 MiB", "target ≤ 1,500", "target ≤ 1.3"):
        assert text in result.output

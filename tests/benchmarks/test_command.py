"""Test the command ``benchmarks``: what it writes, and that it measures only what it was asked for."""

import json

import pytest
from click.testing import CliRunner

from benchmarks.__main__ import main


@pytest.mark.slow
def test_the_figures_asked_for_are_shown_beside_the_machines_and_written_as_json(tmp_path):
    file = tmp_path / "figures.json"
    options = ["--seconds", "0.1", "--repeat", "2", "--json", file, "--folder", tmp_path / "data"]
    result = CliRunner().invoke(main, ["depth-1", *map(str, options)])
    assert result.exit_code == 0, result.output
    assert "depth 1, one client, p50" in result.output
    written = {one["name"]: one for one in json.loads(file.read_text())["figures"]}
    assert len(written["depth 1, one client, p50"]["samples"]) == 2
    assert written["depth 1, one client, p50"]["limit"] == written["fdatasync after 4 KiB, p50"]["median"]
    assert "batches of 64 × 1 KiB" not in written


def test_an_unknown_name_is_refused():
    result = CliRunner().invoke(main, ["teleportation"])
    assert result.exit_code == 2
    assert "teleportation" in result.output

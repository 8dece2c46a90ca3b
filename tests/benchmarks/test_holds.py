"""Test that ``make bench-holds`` carries out every kind of request, and finds which one holds the reactor."""

import json
import subprocess
import sys

import pytest

from benchmarks.holds import scenes
from benchmarks.holds.__main__ import GOAL, Hold, table


@pytest.mark.slow
def test_every_scene_is_measured_and_what_is_over_a_limit_is_refused(tmp_path):
    file = tmp_path / "holds.json"
    command = [sys.executable, "-m", "benchmarks.holds", "--json", file, "--folder", tmp_path / "holds"]
    subprocess.run(command, check=True, timeout=300)
    holds = {hold["name"]: hold for hold in json.loads(file.read_text())}
    for name, hold in holds.items():
        is_over = name.endswith(("100,000 names", "200,000", " of 10,000", " of 6,000"))
        assert hold["refused"] == ("LimitExceeded" if is_over else ""), name
        assert 0 < hold["longest"] <= hold["total"]


def test_a_request_that_holds_the_reactor_for_too_long_is_marked():
    holds = [Hold("a", GOAL, 1.0, 9, ""), Hold("b", GOAL * 1.1, 1.0, 9, "")]
    assert [*table(holds).columns[1].cells] == ["5.0", "5.5 *"]


def test_the_requests_are_as_large_as_they_may_be():
    assert len(scenes.HUGE) <= scenes.MAX_REQUEST_DATA < len(scenes.HUGE) + 200

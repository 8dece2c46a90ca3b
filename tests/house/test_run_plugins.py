"""Test the plugins of a test run: the table of the slowest files, and samples of parameters."""

import os
import subprocess
import sys

import pytest

from tests.support.repository import ROOT
from tests.support.sampling import sample

SAMPLED = """
import pytest

@pytest.mark.sampled
@pytest.mark.parametrize("number", range(9))
def test_one(number): pass

@pytest.mark.sampled(3)
@pytest.mark.parametrize("number", range(9))
def test_three(number): pass

@pytest.mark.sampled(99)
@pytest.mark.parametrize("number", range(2))
def test_all(number): pass

@pytest.mark.sampled(test=3)
@pytest.mark.parametrize("number", range(12))
def test_some(number): pass
"""

BUSY = """
import subprocess, sys, time

def test_idle(): time.sleep(0.3)

def test_busy():
    end = time.process_time() + 0.3
    while time.process_time() < end: pass

def test_busy_child():
    code = "import time\\nend = time.process_time() + 0.3\\nwhile time.process_time() < end: pass"
    subprocess.run([sys.executable, "-c", code], check=True)
"""


def run(folder, plugin, *options):
    command = (sys.executable, "-m", "pytest", "-c", os.devnull, "-p", f"tests.support.{plugin}", *options)
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    ran = subprocess.run(
        (*command, "--rootdir", folder, folder), cwd=folder, env=environment, capture_output=True, text=True
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
    return ran.stdout


@pytest.mark.slow
@pytest.mark.parametrize("options", [(), ("-n", "2")])
def test_the_slowest_files_are_in_a_table_with_what_their_children_took(tmp_path, options):
    (tmp_path / "test_busy.py").write_text(BUSY)
    (tmp_path / "test_quick.py").write_text("def test_nothing(): pass\n")
    said = run(tmp_path, "slowest_files", *options).splitlines()
    rows = [line.split(maxsplit=3) for line in said[said.index(" seconds processor tests") + 1 :][:3]]
    assert [(tests, name) for _, _, tests, name in rows] == [
        ("3", "test_busy.py"),
        ("1", "test_quick.py"),
        ("4", "all 2 files"),
    ]
    seconds, processor = float(rows[0][0]), float(rows[0][1])
    assert seconds >= 0.9
    assert processor >= 0.6
    assert float(rows[2][1]) >= processor


@pytest.mark.slow
def test_a_sample_of_the_parameters_is_not_slow(tmp_path):
    (tmp_path / "test_sampled.py").write_text(SAMPLED)
    said = run(tmp_path, "sampling", "-m", "not slow and not deep", "--collect-only", "-q")
    assert [line.partition("::")[2] for line in said.splitlines() if "::" in line] == [
        "test_one[0]",
        *(f"test_three[{number}]" for number in (0, 3, 6)),
        *(f"test_all[{number}]" for number in (0, 1)),
        "test_some[0]",
    ]
    said = run(tmp_path, "sampling", "-m", "not deep", "--collect-only", "-q", "-k", "test_some")
    assert [line.partition("::")[2] for line in said.splitlines() if "::" in line] == [
        f"test_some[{number}]" for number in (0, 4, 8)
    ]


@pytest.mark.parametrize(
    ("count", "wanted", "places"), [(9, 1, [0]), (9, 3, [0, 3, 6]), (10, 4, [0, 2, 5, 7]), (2, 9, [0, 1])]
)
def test_a_sample_is_spread_evenly(count, wanted, places):
    assert sample(count, wanted) == places

"""The plugins of a test run: the table of the slowest files."""

import os
import subprocess
import sys

import pytest

from tests.support.repository import ROOT

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

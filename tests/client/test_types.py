"""Test what a program's type checker knows of each client's calls: what they return, and what they do not take."""

import subprocess
import sys

import pytest

from tests.support.repository import ROOT


@pytest.mark.slow
def test_calls_have_the_type_of_their_client(tmp_path):
    ran = subprocess.run(
        [sys.executable, "-m", "mypy", "--cache-dir", tmp_path, "tests/client/types_of_calls.py"],
        cwd=ROOT, capture_output=True, text=True, timeout=600, check=False,
    )  # fmt: skip
    assert (ran.returncode, ran.stderr) == (0, ""), ran.stdout

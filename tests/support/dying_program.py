"""A program of the tests that kills itself at a moment that it is told, run to its end."""

import os
import signal
import subprocess
import sys

from tests.support.repository import ROOT


def run_until_killed(module, *arguments, killed=True):
    """Run ``python -m module``; it must die by SIGKILL, or, if it is not to be killed, succeed."""
    died = subprocess.run(
        [sys.executable, "-m", module, *map(str, arguments)],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        timeout=60.0,
        capture_output=True,
        text=True,
        check=False,
    )
    assert died.returncode == (-signal.SIGKILL if killed else 0), died.stderr

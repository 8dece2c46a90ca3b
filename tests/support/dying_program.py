"""A program of the tests is run to its end, which is a SIGKILL that it sends itself at a given moment."""

import os
import signal
import subprocess
import sys

from tests.support.repository import PACKAGES, ROOT


def run_until_killed(module, *arguments, killed=True):
    """Run ``python -m module``; it must die by SIGKILL, or succeed if it is not to be killed."""
    died = subprocess.run(
        [sys.executable, "-m", module, *map(str, arguments)],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": PACKAGES},
        timeout=60.0,
        capture_output=True,
        text=True,
        check=False,
    )
    assert died.returncode == (-signal.SIGKILL if killed else 0), died.stderr

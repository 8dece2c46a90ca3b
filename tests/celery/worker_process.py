"""A worker of Celery in processes of its own, which tests kill."""

import os
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

from tests.support.repository import PACKAGES, ROOT
from tests.support.waiting import eventually


class WorkerProcess:
    """``celery -A APP worker`` with a pool of processes; its output is in ``log``."""

    def __init__(self, app: str, log: Path, environment: dict[str, str], *options: str) -> None:
        self.log = log
        self._command = [
            sys.executable, "-m", "celery", "-A", app, "worker", "--loglevel", "INFO", "--concurrency", "2",
            "--without-gossip", "--without-mingle", *options,
        ]  # fmt: skip
        self._environment = {**os.environ, "PYTHONPATH": PACKAGES, **environment}
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def output(self) -> str:
        return self.log.read_text(errors="replace")

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def children(self) -> list[int]:
        """The processes of its pool."""
        found = subprocess.run(["pgrep", "-P", str(self.pid)], capture_output=True, text=True, check=False)
        return [int(word) for word in found.stdout.split()]

    def start(self):
        begun = self.output.count("ready.") if self.log.exists() else 0
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                self._command, stdout=log, stderr=log, env=self._environment, cwd=ROOT, start_new_session=True
            )
        eventually(lambda: self._process.poll() is not None or self.output.count("ready.") > begun)
        assert self._process.poll() is None, self.output
        return self

    def kill(self) -> None:
        """Kill it with all of its processes."""
        if self._process is not None and self._process.poll() is None:
            with suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()

    def __enter__(self):
        return self.start()

    def __exit__(self, *_):
        self.kill()

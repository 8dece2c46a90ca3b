"""Servers under measurement, each a process of its own: started, watched, stopped."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import threading
import time
from collections import deque
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

PATIENCE = 60.0
"""Seconds for starting, and again for ending."""

_TICKS = os.sysconf("SC_CLK_TCK")


class ServerFailed(Exception):
    """A server did not start or did not end well; the message has the last lines that it said."""


class ServerProcess:
    """Runs ``command`` until the context ends. ``ready`` matches the line that says so; its group 1 is the port.

    ``started_in`` is the seconds from before the process was made until that line had been read.
    """

    def __init__(self, command: Sequence[str], ready: str) -> None:
        self._lines: deque[str] = deque(maxlen=20)
        self._ready = re.compile(ready)
        self._found = threading.Event()
        self.port = 0
        self.started_in = 0.0
        self.ready_line = ""
        self._killed = False
        self._began = time.monotonic()
        self._process = subprocess.Popen(command, text=True, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        self._reader = threading.Thread(target=self._read, daemon=True)

    def __enter__(self) -> Self:
        self._reader.start()
        if not self._found.wait(PATIENCE) or not self.port:
            self._process.kill()
            self._gone()
            raise ServerFailed(self._said("is not ready"))
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._process.terminate()
        try:
            status = self._process.wait(PATIENCE)
        except subprocess.TimeoutExpired:
            self._process.kill()
            status = self._process.wait()
        self._gone()
        if status and kind is None and not self._killed:
            raise ServerFailed(self._said(f"ended with {status}"))

    @property
    def pid(self) -> int:
        """Of its process."""
        return self._process.pid

    def age(self) -> float:
        """Seconds since just before the process was made."""
        return time.monotonic() - self._began

    def kill(self) -> None:
        """End it with SIGKILL; the context then ends without a complaint about that."""
        self._killed = True
        self._process.kill()
        self._process.wait()

    def _gone(self) -> None:
        self._process.wait()
        self._reader.join(PATIENCE)
        assert self._process.stdout is not None
        self._process.stdout.close()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self._lines.append(line)
            found = self._ready.search(line)
            if found is not None and not self.port:
                self.started_in = self.age()
                self.ready_line = line
                self.port = int(found[1])
                self._found.set()
        self._found.set()

    def _said(self, what: str) -> str:
        return f"{self._process.args!r} {what}; it said:\n{''.join(self._lines)}"

    def peak_resident(self) -> int:
        """The most bytes of memory that were resident so far (VmHWM)."""
        status = Path(f"/proc/{self._process.pid}/status").read_text()
        found = re.search(r"^VmHWM:\s+(\d+) kB", status, re.MULTILINE)
        assert found is not None
        return int(found[1]) * 1024

    def cpu_seconds(self) -> float:
        """Processor time of all its threads so far, in user and system mode."""
        fields = Path(f"/proc/{self._process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / _TICKS


def broker(
    data: Path, *settings: str, descriptors: int | None = None, certificate: Path | None = None
) -> ServerProcess:
    """``twistd -n txbroker`` over a directory, on any free port; default settings but for ``NAME=VALUE`` ones.

    ``descriptors`` is how many files it may open at most, if not what this process may. With a ``certificate``, a file
    that has its key too, it listens over TLS.
    """
    twistd = [os.fspath(Path(sys.executable).with_name("twistd")), "--nodaemon", "--pidfile="]
    listen = "tcp:0:interface=127.0.0.1"
    if certificate is not None:
        listen = f"ssl:0:interface=127.0.0.1:privateKey={certificate}"
    options = ["--data", os.fspath(data), "--listen", listen]
    options += [part for setting in settings for part in ("--set", setting)]
    limit = ["sh", "-c", f'ulimit -n {descriptors}; exec "$@"', "sh"] if descriptors is not None else []
    return ServerProcess(
        [*limit, *twistd, "txbroker", *options], r"txbroker ready listening=\w+:127\.0\.0\.1:(\d+)"
    )


def bare(kind: str) -> ServerProcess:
    """A server of :mod:`benchmarks.harness.bare_servers`."""
    return ServerProcess([sys.executable, "-m", "benchmarks.harness.bare_servers", kind], r"ready on (\d+)")

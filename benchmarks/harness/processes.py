"""The servers of the benchmarks, each a process of its own: brokers, and bare ones that show what the machine can
do.
"""

from __future__ import annotations

import re
import subprocess
import sys
import threading
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Self

from txbroker.drill.broker.broker_process import BrokerProcess

PATIENCE = 60.0
"""Seconds for starting, and again for ending."""


class ServerFailed(Exception):
    """A server did not start or did not end well; the message has the last lines that it wrote."""


class ServerProcess:
    """Runs ``command`` until the context ends. ``ready`` matches the line that it writes when ready; its group 1 is the
    port.
    """

    def __init__(self, command: Sequence[str], ready: str) -> None:
        self._lines: deque[str] = deque(maxlen=20)
        self._ready = re.compile(ready)
        self._found = threading.Event()
        self.port = 0
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
        if status and kind is None:
            raise ServerFailed(self._said(f"ended with {status}"))

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
                self.port = int(found[1])
                self._found.set()
        self._found.set()

    def _said(self, what: str) -> str:
        return f"{self._process.args!r} {what}; it said:\n{''.join(self._lines)}"


@contextmanager
def broker(
    data: Path, *settings: str, descriptors: int | None = None, certificate: Path | None = None
) -> Iterator[BrokerProcess]:
    """Run a broker over a directory; stop it in order at the end unless it was killed. Its log is removed if all went
    well.

    It has default settings but for ``NAME=VALUE`` ones. ``descriptors`` and ``certificate`` are those of BrokerProcess.
    """
    log = data.with_name(f"{data.name}.log")
    options = [part for setting in settings for part in ("--set", setting)]
    with BrokerProcess(data, log, options, certificate=certificate, descriptors=descriptors) as process:
        yield process
        process.stop()
    log.unlink()


def bare(kind: str) -> ServerProcess:
    """Run a server of :mod:`benchmarks.harness.bare_servers`."""
    return ServerProcess([sys.executable, "-m", "benchmarks.harness.bare_servers", kind], r"ready on (\d+)")

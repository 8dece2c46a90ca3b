"""A real broker in a process of its own, for tests that must see it die.

``BrokerProcess(folder).start()`` runs ``twistd -n txbroker`` on a free port of the loopback interface and returns
once it is ready; after :meth:`BrokerProcess.kill` (SIGKILL) or :meth:`BrokerProcess.stop` (SIGTERM) it can be
started again, on the same port and the same data.
"""

from __future__ import annotations

import os
import queue
import re
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from types import TracebackType
from typing import ClassVar, Self

from tests.support.repository import ROOT

READY = re.compile(r"txbroker ready listening=(?:tcp|ssl):(?P<host>[\d.]+):(?P<port>\d+)")


class BrokerProcess:
    """One broker on one data directory. A context manager: starts it, and kills it if it still runs."""

    certificate: ClassVar[Path | None] = None
    """A file with a key and a certificate for 127.0.0.1: if there is one, every broker speaks TLS."""

    def __init__(self, data_dir: Path | str, *settings: str, port: int = 0) -> None:
        self.data_dir = Path(data_dir)
        self.settings = settings
        self.port = port
        self.log: list[str] = []
        self.ready_line = ""
        self.process: subprocess.Popen[str] | None = None
        self._reader: threading.Thread | None = None

    @property
    def address(self) -> str:
        """For ``txbroker.connect``."""
        assert self.port, "the broker has not been started"
        if self.certificate is not None:
            return f"tls:127.0.0.1:{self.port}:ca={self.certificate}"
        return f"tcp:127.0.0.1:{self.port}"

    def start(self, timeout: float = 30.0) -> Self:
        """Start it and wait until it says that it is ready; fails with its log."""
        lines: queue.Queue[str | None] = queue.Queue()
        listen = f"tcp:{self.port}:interface=127.0.0.1"
        if self.certificate is not None:
            listen = f"ssl:{self.port}:interface=127.0.0.1:privateKey={self.certificate}"
        command = [sys.executable, "-c", "from twisted.scripts.twistd import run; run()", "-n", "--pidfile="]
        command += ["txbroker", "--data", str(self.data_dir), "--listen", listen]
        for setting in self.settings:
            command += ["--set", setting]
        environment = {**os.environ, "PYTHONPATH": str(ROOT), "PYTHONUNBUFFERED": "1"}
        self.process = subprocess.Popen(
            command,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            env=environment,
            cwd=self.data_dir.parent,
        )
        self._reader = threading.Thread(target=self._read, args=(self.process, lines), daemon=True)
        self._reader.start()
        self._wait_until_ready(lines, time.monotonic() + timeout)
        return self

    def _wait_until_ready(self, lines: queue.Queue[str | None], deadline: float) -> None:
        while True:
            try:
                line = lines.get(timeout=max(0.0, deadline - time.monotonic()))
            except queue.Empty:
                line = None
            if line is None:
                self.kill()
                raise AssertionError("the broker did not become ready:\n" + "".join(self.log))
            if found := READY.search(line):
                self.ready_line = line
                self.port = int(found["port"])
                return

    def _read(self, process: subprocess.Popen[str], lines: queue.Queue[str | None]) -> None:
        assert process.stdout is not None
        for line in process.stdout:
            self.log.append(line)
            lines.put(line)
        lines.put(None)

    def kill(self) -> None:
        """SIGKILL: the process is gone when this returns."""
        self._end(signal.SIGKILL)

    def stop(self, timeout: float = 30.0) -> int:
        """SIGTERM; wait for the clean end, return the exit status."""
        return self._end(signal.SIGTERM, timeout)

    def _end(self, number: signal.Signals, timeout: float = 30.0) -> int:
        process, self.process = self.process, None
        if process is None:
            return 0
        if process.poll() is None:
            process.send_signal(number)
        try:
            status = process.wait(timeout)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
            raise AssertionError("the broker did not end:\n" + "".join(self.log)) from None
        finally:
            if self._reader is not None:
                self._reader.join(5.0)
            if process.stdout is not None:
                process.stdout.close()
        return status

    def __enter__(self) -> Self:
        return self if self.process else self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.kill()

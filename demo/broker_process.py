"""A broker as its users run it, ``twistd -n txbroker``: started, killed and started again by the demo."""

from __future__ import annotations

import os
import random
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path

READY_WITHIN = 60.0
"""Seconds until a broker that has not said that it is ready is given up."""


class BrokerFailed(Exception):
    """The broker did not start, or ended by itself; the message has the end of its log."""


class BrokerProcess:
    """One broker over its whole life: same directory, same port, one process after another."""

    def __init__(self, data: Path, log: Path) -> None:
        self.port = free_port()
        self.url = f"tcp:127.0.0.1:{self.port}"
        self.log = log
        self._data = data
        self._process: subprocess.Popen[bytes] | None = None
        self._starting = threading.Lock()
        self._ended = False

    def start(self) -> float:
        """Start, wait until it says that it is ready, return how many seconds it took; may raise BrokerFailed."""
        began = time.monotonic()
        starts = len(self.recoveries()) + 1
        process = self._started()
        while len(self.recoveries()) < starts:
            if process.poll() is not None:
                raise BrokerFailed(f"the broker ended with {process.returncode}\n{self._end_of_log()}")
            if time.monotonic() - began > READY_WITHIN:
                self.kill()
                raise BrokerFailed(
                    f"the broker is not ready after {READY_WITHIN:.0f} s\n{self._end_of_log()}"
                )
            time.sleep(0.01)
        return time.monotonic() - began

    def kill(self) -> None:
        """SIGKILL, and wait until the process is gone."""
        if self._process is not None:
            self._process.send_signal(signal.SIGKILL)
            self._process.wait()

    def kill_for_good(self) -> None:
        """SIGKILL, and let no thread start it again."""
        with self._starting:
            self._ended = True
            self.kill()

    def stop(self) -> None:
        """SIGTERM, and wait for the orderly end. Raises :class:`BrokerFailed` if it is not one."""
        if self._process is None:
            return
        self._process.terminate()
        try:
            code = self._process.wait(READY_WITHIN)
        except subprocess.TimeoutExpired:
            self.kill()
            raise BrokerFailed(f"the broker did not stop on SIGTERM\n{self._end_of_log()}") from None
        if code:
            raise BrokerFailed(f"the broker stopped on SIGTERM with {code}\n{self._end_of_log()}")

    def recoveries(self) -> list[float]:
        """How long the recovery of each start took by the broker's own clock, in seconds, from its log."""
        log = self.log.read_text(errors="replace") if self.log.exists() else ""
        return [float(seconds) for seconds in re.findall(r"txbroker ready .*\brecovery=([\d.]+)s", log)]

    def _started(self) -> subprocess.Popen[bytes]:
        with self._starting, self.log.open("ab") as log:
            if self._ended:
                raise BrokerFailed("the demo has ended")
            self._process = subprocess.Popen(
                self._command(), stdout=log, stderr=log, stdin=subprocess.DEVNULL
            )
            return self._process

    def _command(self) -> list[str]:
        twistd = [os.fspath(Path(sys.executable).with_name("twistd")), "-n", "--pidfile="]
        listen = f"tcp:{self.port}:interface=127.0.0.1"
        return [*twistd, "txbroker", "--data", os.fspath(self._data), "--listen", listen]

    def _end_of_log(self) -> str:
        lines = self.log.read_text(errors="replace").splitlines()
        return "\n".join(["The end of its log:", *lines[-20:]])


def free_port() -> int:
    """A TCP port that nobody listens on.

    Not one that outgoing connections are given: a client that tries such a port of its own machine, again and
    again while the broker is down, may at last connect to itself.
    """
    for port in random.sample(range(20_000, 30_000), 100):
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
            return port
    raise BrokerFailed("100 ports between 20000 and 30000 are all taken")

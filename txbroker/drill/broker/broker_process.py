"""A broker process runs as users run it, ``twistd -n txbroker``; whatever needs a real broker starts and kills it."""

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
from collections import deque
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Self

READY_WITHIN = 60.0
"""Seconds after which a broker that has not reported that it is ready counts as failed."""


POLL = 0.005
"""Seconds between two checks whether it is ready."""

READY = re.compile(r"txbroker ready .*\n")


class BrokerFailed(Exception):
    """The broker did not start, or ended by itself; the message has the end of its log."""


class BrokerProcess:
    """One broker over several processes: the same directory and the same port, one process after another.

    ``options`` are of ``twistd txbroker``. ``entry`` starts Python code that behaves as ``twistd`` does; without it,
    that is ``twistd`` itself. What :meth:`tell` says such code reads from its standard input. In a session of its own
    (``own_session``) it does not hear the Ctrl-C that is meant for whoever has started it. With a ``certificate``, a
    file that has its key too, it listens over TLS. ``descriptors`` is how many files it may open at most, if not what
    this process may. As a context manager it is started, and killed if it still runs.
    """

    def __init__(
        self,
        data: Path,
        log: Path,
        options: Sequence[str] = (),
        entry: Sequence[str] = (),
        own_session: bool = False,
        certificate: Path | None = None,
        environment: Mapping[str, str] | None = None,
        descriptors: int | None = None,
    ) -> None:
        self.port = free_port()
        self.log = log
        self._certificate = certificate
        self._environment = environment
        self._descriptors = descriptors
        self.data_dir = data
        self.executed_at = 0.0
        """The time of the last process's execution, on the monotonic clock."""
        self.started_in = 0.0
        """Seconds from the execution until :meth:`start` has seen that the broker is ready."""
        self._log_began = 0
        self._options = options
        self._entry = entry
        self._own_session = own_session
        self._process: subprocess.Popen[bytes] | None = None
        self._starting = threading.Lock()
        self._killed = False
        self._ended = False

    @property
    def address(self) -> str:
        """Return the broker's address for ``txbroker.connect``."""
        if self._certificate is not None:
            return f"tls:127.0.0.1:{self.port}:ca={self._certificate}"
        return f"tcp:127.0.0.1:{self.port}"

    def start(self) -> Self:
        """Start the broker and wait until it reports that it is ready; may raise BrokerFailed."""
        self.launch()
        while not self.ready_line:
            if (code := self.exit_code) is not None:
                raise BrokerFailed(f"the broker ended with {code}\n{self._end_of_log()}")
            if time.monotonic() - self.executed_at > READY_WITHIN:
                self.kill()
                raise BrokerFailed(
                    f"the broker is not ready after {READY_WITHIN:.0f} s\n{self._end_of_log()}"
                )
            time.sleep(POLL)
        self.started_in = time.monotonic() - self.executed_at
        return self

    def launch(self, *first: str) -> None:
        """Execute a new process and return at once; ``first`` are arguments for the entry alone."""
        with self._starting, self.log.open("ab") as log:
            if self._ended:
                raise BrokerFailed("the broker is not wanted any more")
            stdin = subprocess.PIPE if self._entry else subprocess.DEVNULL
            self._close_control()
            self._killed = False
            self._log_began = log.tell()
            self.executed_at = time.monotonic()
            self._process = subprocess.Popen(
                self._command(*first),
                stdout=log,
                stderr=log,
                stdin=stdin,
                start_new_session=self._own_session,
                env=self._environment,
            )

    @property
    def exit_code(self) -> int | None:
        """Return the exit code of the process as ``subprocess`` gives it; None while it runs, 0 before the
        first start.
        """
        return 0 if self._process is None else self._process.poll()

    @property
    def pid(self) -> int:
        """Return the id of the process that runs, or ran last."""
        assert self._process is not None, "the broker has not been started"
        return self._process.pid

    def tell(self, line: str) -> None:
        """Write a line to the entry's standard input; does nothing if the process has just died."""
        if self._process is None or self._process.stdin is None:
            raise BrokerFailed("the broker was started without an entry, so it cannot be told anything")
        with suppress(BrokenPipeError):
            os.write(self._process.stdin.fileno(), line.encode() + b"\n")

    def kill(self) -> None:
        """Send SIGKILL, and wait until the process is gone."""
        if self._process is not None:
            self._killed = True
            self._process.send_signal(signal.SIGKILL)
            self._process.wait()

    def pause(self) -> None:
        """Send SIGSTOP: the process stops, its connections stay open."""
        if self._process is not None:
            self._process.send_signal(signal.SIGSTOP)

    def resume(self) -> None:
        """Send SIGCONT."""
        if self._process is not None:
            self._process.send_signal(signal.SIGCONT)

    def terminate(self) -> None:
        """Send SIGTERM, without waiting."""
        if self._process is not None:
            self._process.terminate()

    def kill_for_good(self) -> None:
        """Send SIGKILL, and prevent every later start."""
        with self._starting:
            self._ended = True
            self.kill()
            self._close_control()

    def stop(self) -> None:
        """Send SIGTERM and wait for the end. Raises :class:`BrokerFailed` if it is not orderly; returns at once after a
        kill.
        """
        if self._process is None or self._killed:
            return
        self._process.terminate()
        code = self.wait()
        self._close_control()
        if code:
            raise BrokerFailed(f"the broker stopped on SIGTERM with {code}\n{self._end_of_log()}")

    def wait(self) -> int:
        """Wait until the process has ended, and return its exit code. Kills and raises BrokerFailed if it does not."""
        assert self._process is not None, "the broker has not been started"
        try:
            return self._process.wait(READY_WITHIN)
        except subprocess.TimeoutExpired:
            self.kill()
            raise self.failed("the broker did not end") from None

    def recoveries(self) -> list[float]:
        """Return how long the recovery of each start took, in seconds by the broker's own clock, from its log."""
        return [
            float(seconds)
            for seconds in re.findall(
                r"txbroker ready .*\brecovery=([\d.]+)s", self._said().decode(errors="replace")
            )
        ]

    @property
    def ready_line(self) -> str:
        """Return the line in which the last process reported that it was ready; empty if it is not ready yet."""
        return next((line for line in self.output.splitlines(True) if READY.search(line)), "").rstrip()

    @property
    def output(self) -> str:
        """Return all output of the last process."""
        return self._said(self._log_began).decode(errors="replace")

    def failed(self, what: str) -> BrokerFailed:
        """Return an error with this text and the end of the log."""
        return BrokerFailed(f"{what}\n{self._end_of_log()}")

    def _close_control(self) -> None:
        if self._process is not None and self._process.stdin is not None:
            self._process.stdin.close()

    def _command(self, *first: str) -> list[str]:
        entry = [*self._entry, *first] or [os.fspath(Path(sys.executable).with_name("twistd"))]
        listen = f"tcp:{self.port}:interface=127.0.0.1"
        if self._certificate is not None:
            listen = f"tls:{self.port}:interface=127.0.0.1:cert={self._certificate}"
        data = ["--data", os.fspath(self.data_dir), "--listen", listen]
        limit = ["sh", "-c", f'ulimit -n {self._descriptors}; exec "$@"', "sh"] if self._descriptors else []
        return [*limit, *entry, "-n", "--pidfile=", "txbroker", *data, *self._options]

    def _said(self, begin: int = 0) -> bytes:
        if not self.log.exists():
            return b""
        with self.log.open("rb") as log:
            log.seek(begin)
            return log.read()

    def _end_of_log(self) -> str:
        said = self._said().decode(errors="replace")
        return "\n".join(["The end of its log:", *said.splitlines()[-20:]])

    def __enter__(self) -> Self:
        return self.start() if self._process is None else self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.kill()
        self._close_control()


_given: deque[int] = deque(maxlen=50)
"""The last ports that :func:`free_port` has returned: who asks for two must not get one twice."""


def free_port() -> int:
    """Return a TCP port that no process listens on.

    The port is outside the range that outgoing connections get: a client that tries such a port of its own machine
    repeatedly while the broker is down may at last connect to itself. Two processes that ask at once get different
    ports, unless their ids differ by a multiple of 97; one process gets none twice among 50.
    """
    ports = range(20_000 + os.getpid() % 97, 30_000, 97)
    left = [port for port in ports if port not in _given]
    for port in random.sample(left, len(left)):
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
        _given.append(port)
        return port
    raise BrokerFailed(f"{len(left)} ports between 20000 and 30000 are all taken")

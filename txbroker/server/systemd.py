"""The service manager that has started the process (systemd): datagrams tell it what the process is doing.

The protocol is that of sd_notify(3): lines of NAME=VALUE, sent to the socket that ``NOTIFY_SOCKET`` names.
"""

from __future__ import annotations

import faulthandler
import os
import socket
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final

from twisted.logger import Logger

from txbroker.monitoring.health import Health, Phase
from txbroker.server.periodic_tasks import PeriodicTask, PeriodicTasks

PROGRESS_PATIENCE: Final = 120
"""Seconds that a recovery may take from each report of its progress to the next one; ``TimeoutStartSec=`` of the unit
that we ship is as long.
"""

STOP_RESERVE: Final = 15
"""Seconds that a stop may take beyond ``stop_timeout``: 2 s for each thread that is still at work, and some more."""

SEND_PATIENCE: Final = 1.0
"""Seconds that a datagram waits for room in the socket of a manager that reads slowly."""

STANDARD_ERROR: Final = 2
"""As a descriptor: twistd has put its log in the place of ``sys.stderr``."""


class Systemd:
    """Tells the service manager each change of ``health``, and at regular intervals that the reactor runs.

    ``stop_timeout`` is that of the settings, in seconds. Without ``NOTIFY_SOCKET`` in the ``environment`` nothing is
    done. What cannot be sent is logged and ends nothing.
    """

    log = Logger()

    def __init__(
        self, reactor: Any, health: Health, stop_timeout: float, environment: Mapping[str, str] = os.environ
    ) -> None:
        self._reactor = reactor
        self._health = health
        self._environment = environment
        self._address = environment.get("NOTIFY_SOCKET", "")
        self._socket: socket.socket | None = None
        self._is_heard = True
        self._pings: PeriodicTasks | None = None
        stopping = ("STOPPING=1", _extend(stop_timeout + STOP_RESERVE))
        self._said_in: Mapping[Phase, tuple[str, ...]] = {
            Phase.RECOVERING: (_extend(PROGRESS_PATIENCE),),
            Phase.WAITING: ("READY=1",),
            Phase.SERVING: ("READY=1",),
            Phase.STOPPING: stopping,
            Phase.FAILED: stopping,
        }
        if self._address:
            health.on_change = self._tell_phase

    def start(self) -> None:
        """Say that the process is starting, and from now on that it is alive, if the manager watches that.

        If it does, the stacks of all threads are written to standard error when it ends the process (SIGABRT).
        """
        if not self._address:
            return
        self._tell_phase()
        interval = self._ping_interval()
        if interval:
            faulthandler.enable(STANDARD_ERROR)
            self._ping()
            task = PeriodicTask("telling the service manager that this is alive", interval, self._ping)
            self._pings = PeriodicTasks(self._reactor, [task])
            self._pings.start()

    def stop(self) -> None:
        """Say nothing more."""
        if self._pings is not None:
            self._pings.stop()
        if self._socket is not None:
            self._socket.close()
            self._socket = None

    def _ping_interval(self) -> float:
        """Return the seconds between two pings, half of what the manager waits for one; 0 if it waits for none."""
        if self._environment.get("WATCHDOG_PID", str(os.getpid())) != str(os.getpid()):
            return 0.0
        microseconds = self._environment.get("WATCHDOG_USEC", "0")
        return int(microseconds) / 2e6 if microseconds.isdecimal() else 0.0

    def _ping(self) -> None:
        self._tell("WATCHDOG=1")

    @contextmanager
    def reloading(self) -> Iterator[None]:
        """Say that settings are read again, and behind it that they were; nothing unless the process has started."""
        tells = self._health.has_started
        if tells:
            self._tell("RELOADING=1", f"MONOTONIC_USEC={time.monotonic_ns() // 1000}")
        try:
            yield
        finally:
            if tells:
                self._tell_phase()

    def _tell_phase(self) -> None:
        status = " ".join(self._health.sentence.split())  # a line of its own is another assignment
        self._tell(*self._said_in[self._health.phase], f"STATUS={status}")

    def _tell(self, *lines: str) -> None:
        if not self._address:
            return
        try:
            if self._socket is None:
                self._socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
                self._socket.settimeout(SEND_PATIENCE)
            self._socket.sendto("\n".join(lines).encode(errors="replace"), _path_of(self._address))
        except OSError as error:
            if self._is_heard:
                self.log.error(
                    "the service manager cannot be told {line} ({address}, NOTIFY_SOCKET): {error}. It may take this "
                    "process for hung, and end it",
                    line=lines[0], address=self._address, error=error,
                )  # fmt: skip
            self._is_heard = False
        else:
            self._is_heard = True


def _extend(seconds: float) -> str:
    return f"EXTEND_TIMEOUT_USEC={int(seconds * 1e6)}"


def _path_of(address: str) -> str:
    """Return the path of a UNIX socket; one that begins with ``@`` is in Linux' abstract namespace."""
    return "\0" + address[1:] if address.startswith("@") else address

"""The client processes of a drill are started, killed, and started again with their next life."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from pathlib import Path

from txbroker.drill.plan.plan import Plan

WRITERS = ("transactor", "sender", "transactor", "plain")
"""The roles of the clients in turn; one relay and one reader are added."""

LOG = "clients.log"
STOP_WITHIN = 90.0
"""Seconds that clients get to finish what they are doing."""


def client_names(count: int) -> list[str]:
    """Return the names of ``count`` writing clients, the relay and the reader."""
    roles = [*(WRITERS[number % len(WRITERS)] for number in range(count)), "relay", "reader"]
    return [f"{role}-{roles[: place + 1].count(role)}" for place, role in enumerate(roles)]


class Crew:
    """All clients of a drill. Only :meth:`is_over` may be called from several threads."""

    def __init__(self, plan: Plan, names: list[str]) -> None:
        self.names = names
        self.deaths = 0
        """How many lives ended by SIGKILL, including those that a client sent to itself."""
        self.failures: list[str] = []
        """The lives that ended with an error."""
        self._plan = plan
        self._lives = dict.fromkeys(names, 0)
        self._processes: dict[str, subprocess.Popen[bytes]] = {}
        self._stopped = self._over = False

    def start(self) -> None:
        """Start every client."""
        for name in self.names:
            self._begin(name)

    def _begin(self, name: str) -> None:
        self._lives[name] += 1
        arguments = [self._plan.folder, name, str(self._lives[name])]
        with (Path(self._plan.folder) / LOG).open("ab") as log:
            self._processes[name] = subprocess.Popen(
                [sys.executable, "-m", "txbroker.drill.clients.client", *arguments],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )

    def look(self) -> None:
        """Start clients again that have ended, until all are to stop."""
        for name, process in list(self._processes.items()):
            if process.poll() is not None and not self._stopped:
                self._note_end(name, process)
                self._begin(name)

    def _note_end(self, name: str, process: subprocess.Popen[bytes]) -> None:
        told_to_stop = self._stopped and process.returncode == -signal.SIGTERM  # before it listens to that
        if process.returncode == -signal.SIGKILL:
            self.deaths += 1
        elif process.returncode and not told_to_stop:
            self.failures.append(f"{name}.{self._lives[name]} ended with {process.returncode}")

    def kill(self, number: int) -> str:
        """Send SIGKILL to one client; returns its name. The client is started again at the next :meth:`look`."""
        name = self.names[number % len(self.names)]
        self._processes[name].kill()
        return name

    def is_over(self, sender: str) -> bool:
        """Return whether that life of a client has ended, so that only the coordinator ends its transactions."""
        name, _, life = sender.rpartition(".")
        return name not in self._lives or int(life) < self._lives[name] or self._over

    @property
    def running(self) -> int:
        """Return how many clients run."""
        return sum(process.poll() is None for process in self._processes.values())

    def stop(self) -> None:
        """Send SIGTERM to all; a client that has not ended in time is killed."""
        self._stopped = True
        for process in self._processes.values():
            process.terminate()
        deadline = time.monotonic() + STOP_WITHIN
        for name, process in self._processes.items():
            try:
                process.wait(max(0.0, deadline - time.monotonic()))
            except subprocess.TimeoutExpired:
                self.failures.append(f"{name}.{self._lives[name]} did not stop within {STOP_WITHIN:.0f} s")
                process.kill()
                process.wait()
            else:
                self._note_end(name, process)
        self._over = True

    def kill_all(self) -> None:
        """Send SIGKILL to all, at once."""
        for process in self._processes.values():
            process.kill()
            process.wait()
        self._stopped = self._over = True

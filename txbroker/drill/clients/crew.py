"""The client processes of a drill are started, killed, and started again with their next life."""

from __future__ import annotations

import math
import signal
import subprocess
import sys
import time
from pathlib import Path

from txbroker.drill.plan.plan import Plan

WRITERS = ("transactor", "sender", "transactor", "plain")
"""The roles of the clients in turn; one relay and one reader are added, and for workers a feeder."""

WORKER = "worker"
SCHEDULER = "scheduler"
QUEUER = "queuer"
AMQP = "amqp"

LOG = "clients.log"
STOP_WITHIN = 90.0
"""Seconds that clients get to finish what they are doing."""


def client_names(
    count: int, workers: int = 0, schedulers: int = 0, queuers: int = 0, amqp: int = 0
) -> list[str]:
    """Return the names of ``count`` writing clients, the relay and the reader, of the workers with their feeder, of the
    schedulers, of the queuers, and of those that speak AMQP.
    """
    roles = [*(WRITERS[number % len(WRITERS)] for number in range(count)), "relay", "reader"]
    roles += ["feeder", *[WORKER] * workers] if workers else []
    roles += [SCHEDULER] * schedulers + [QUEUER] * queuers + [AMQP] * amqp
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
        self._paused: dict[subprocess.Popen[bytes], float] = {}
        """The processes that have got SIGSTOP, and when each is to go on."""
        self._stopped: set[str] = set()
        self._over = False

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
        """Start clients again that have ended and are not to stop, and let those go on whose pause is over."""
        self._resume(time.monotonic())
        for name, process in list(self._processes.items()):
            if process.poll() is not None and name not in self._stopped:
                self._note_end(name, process)
                self._begin(name)

    def _note_end(self, name: str, process: subprocess.Popen[bytes]) -> None:
        # It may be told to stop before it listens to that.
        told_to_stop = name in self._stopped and process.returncode == -signal.SIGTERM
        if process.returncode == -signal.SIGKILL:
            self.deaths += 1
        elif process.returncode and not told_to_stop:
            self.failures.append(f"{name}.{self._lives[name]} ended with {process.returncode}")

    def kill(self, number: int, role: str = "") -> str:
        """Send SIGKILL to one client, of any role or of this one; returns its name. The client is started again at the
        next :meth:`look`.
        """
        name = self._chosen(number, role)
        self._processes[name].kill()
        return name

    def pause(self, number: int, role: str, seconds: float) -> str:
        """Send SIGSTOP to one client of a role; returns its name. It goes on at the first :meth:`look` after so many
        seconds.
        """
        name = self._chosen(number, role)
        process = self._processes[name]
        process.send_signal(signal.SIGSTOP)
        self._paused[process] = time.monotonic() + seconds
        return name

    def _chosen(self, number: int, role: str) -> str:
        names = [name for name in self.names if name.startswith(role)]
        return names[number % len(names)]

    def _resume(self, now: float) -> None:
        for process in [process for process, until in self._paused.items() if until <= now]:
            process.send_signal(signal.SIGCONT)  # which does nothing if it has been killed since
            del self._paused[process]

    def is_over(self, sender: str) -> bool:
        """Return whether that life of a client has ended, so that only the coordinator ends its transactions."""
        name, _, life = sender.rpartition(".")
        return name not in self._lives or int(life) < self._lives[name] or self._over

    @property
    def running(self) -> int:
        """Return how many clients run."""
        return sum(process.poll() is None for process in self._processes.values())

    def stop(self, but: str = "") -> None:
        """Send SIGTERM to all, or to all but those of a role; a client that has not ended in time is killed."""
        self._resume(math.inf)
        stopping = {
            name: process
            for name, process in self._processes.items()
            if name not in self._stopped and not (but and name.startswith(but))
        }
        self._stopped |= stopping.keys()
        for process in stopping.values():
            process.terminate()
        deadline = time.monotonic() + STOP_WITHIN
        for name, process in stopping.items():
            try:
                process.wait(max(0.0, deadline - time.monotonic()))
            except subprocess.TimeoutExpired:
                self.failures.append(f"{name}.{self._lives[name]} did not stop within {STOP_WITHIN:.0f} s")
                process.kill()
                process.wait()
            else:
                self._note_end(name, process)
        self._over = len(self._stopped) == len(self._processes)

    def kill_all(self) -> None:
        """Send SIGKILL to all, at once."""
        for process in self._processes.values():
            process.kill()
            process.wait()
        self._stopped |= self._processes.keys()
        self._over = True

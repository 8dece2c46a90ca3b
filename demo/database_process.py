"""Database servers for tests and demos: real servers in a private folder, run by an unprivileged user on a UNIX socket.

They listen on no port, and touch no cluster that the machine may already have.
"""

from __future__ import annotations

import os
import pwd
import shutil
import signal
import subprocess
import time
from abc import ABC, abstractmethod
from collections.abc import Sequence
from pathlib import Path
from types import TracebackType
from typing import Self

PATIENCE = 60.0
"""Seconds for a server to become ready (after a kill it recovers first), and again to end."""


class DatabaseFailed(Exception):
    """A server is missing, did not start, or ended by itself; the message says which, with the end of its log."""


class DatabaseProcess(ABC):
    """One database server over its whole life: the same folder and socket for one process after another.

    ``folder`` must be new or empty, and short: the path of a UNIX socket has 107 bytes at most. It is handed over
    to the user that the server runs as, which is one of ``users`` if we are root, else ourselves.
    """

    name: str
    package: str
    """The folder where Debian puts the programs."""
    users: tuple[str, ...]
    stop_signal = signal.SIGTERM

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.log = folder / "server.log"
        self.data = folder / "data"
        self._process: subprocess.Popen[bytes] | None = None
        self._user = self._unprivileged()

    @abstractmethod
    def program(self) -> Path:
        """Return the path of the server's executable, which need not exist."""

    @abstractmethod
    def initialise(self) -> None:
        """Make an empty data directory."""

    @abstractmethod
    def arguments(self) -> Sequence[str]:
        """Return the server's command line."""

    @abstractmethod
    def answers(self) -> bool:
        """Return whether the server takes connections and commands."""

    @property
    def pid(self) -> int | None:
        """Return the process id of the running server; None if none runs."""
        return self._process.pid if self._process is not None and self._process.poll() is None else None

    def start(self) -> float:
        """Start the server, wait until it answers, return the seconds that took; may raise :class:`DatabaseFailed`."""
        assert self.pid is None, f"{self.name} runs already"
        self._check_installed()
        began = time.monotonic()
        if not self.data.exists():
            self.folder.mkdir(exist_ok=True)
            if self._user is not None:
                shutil.chown(self.folder, self._user, pwd.getpwnam(self._user).pw_gid)
            self.initialise()
        with self.log.open("ab") as log:
            self._process = self._popen([os.fspath(self.program()), *self.arguments()], log.fileno())
        while not self.answers():
            if self._process.poll() is not None:
                raise DatabaseFailed(self._said(f"ended with {self._process.returncode}"))
            if time.monotonic() - began > PATIENCE:
                self.kill()
                raise DatabaseFailed(self._said(f"is not ready after {PATIENCE:.0f} s"))
            time.sleep(0.01)
        return time.monotonic() - began

    def kill(self) -> None:
        """SIGKILL the server, and wait until it is gone, with the processes that it had for its connections.

        Those see that it is gone and end by themselves, as after a kill by anyone. While one of them is left, the
        server cannot be started again.
        """
        if self._process is None:
            return
        self._process.send_signal(signal.SIGSTOP)  # so that it starts no others while these are listed
        left = children(self._process.pid)
        self._process.kill()
        self._process.wait()
        self._process = None
        deadline = time.monotonic() + PATIENCE
        while any(map(runs, left)):
            if time.monotonic() > deadline:
                raise DatabaseFailed(self._said(f"was killed, and its processes {left} stay"))
            time.sleep(0.005)

    def stop(self) -> None:
        """Stop the server in order: its connections are closed, and the next start needs no recovery."""
        process, self._process = self._process, None
        if process is None:
            return
        process.send_signal(self.stop_signal)
        try:
            process.wait(PATIENCE)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
            raise DatabaseFailed(self._said("did not stop")) from None

    def remove(self) -> None:
        """Kill the server if it runs, and remove its folder."""
        self.kill()
        shutil.rmtree(self.folder)

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.kill()

    def run(self, *command: str) -> None:
        """Run one of the database's tools as the server's user; its output goes to the log."""
        with self.log.open("ab") as log:
            status = self._popen(command, log.fileno()).wait()
        if status:
            raise DatabaseFailed(self._said(f"could not be set up: {command[0]} ended with {status}"))

    def _check_installed(self) -> None:
        if not self.program().is_file():
            raise DatabaseFailed(
                f"{self.name} is not installed: there is no {self.program()}. "
                f"Install it with: .ci/need-debian '{self.program()}={self.package}'"
            )

    def _unprivileged(self) -> str | None:
        """Return the user to run the server as; None for the current one. Servers refuse to run as root."""
        if os.geteuid() != 0:
            return None
        known = {entry.pw_name for entry in pwd.getpwall()}
        return next(user for user in (*self.users, "nobody") if user in known)  # the package makes this user

    def _popen(self, command: Sequence[str], output: int) -> subprocess.Popen[bytes]:
        return subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            cwd=self.folder,
            env={"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "LC_ALL": "C", "HOME": os.fspath(self.folder)},
            start_new_session=True,  # Ctrl-C in a terminal must not reach the server
            user=self._user,
            group=None if self._user is None else pwd.getpwnam(self._user).pw_gid,
            extra_groups=None if self._user is None else [],
        )

    def _said(self, what: str) -> str:
        lines = self.log.read_text(errors="replace").splitlines() if self.log.exists() else []
        return "\n".join([f"{self.name} in {self.folder} {what}. The end of its log:", *lines[-20:]])


def children(pid: int) -> list[int]:
    """Return the processes whose parent is ``pid``."""
    return [
        int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdigit() and _parent(entry) == pid
    ]


def runs(pid: int) -> bool:
    """Return whether a process still runs; one that only waits to be reaped does not."""
    return _stat(Path("/proc", str(pid)))[:1] not in ([], ["Z"], ["X"])


def _parent(entry: Path) -> int | None:
    fields = _stat(entry)
    return int(fields[1]) if fields else None


def _stat(entry: Path) -> list[str]:
    """Return the fields of ``/proc/PID/stat``; empty if the process is gone."""
    try:
        return (entry / "stat").read_text().rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return []

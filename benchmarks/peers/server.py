"""A peer's server: real binaries, private folder, free ports of the loopback interface, ended by its pid."""

from __future__ import annotations

import os
import pwd
import re
import select
import shutil
import signal
import socket
import subprocess
import time
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Any, ClassVar, Self

from benchmarks.harness.process_memory import processor_seconds
from demo.database_process import children

PATIENCE = 90.0
"""Seconds for starting, and again for ending: a Java or Erlang system on a busy machine."""

GRACE = 2.0
"""Seconds for the other processes of a server to end when its first one has ended."""

DIES_WITH_US = ("setpriv", "--pdeathsig", "KILL")
"""What runs a server so that it ends even if we are killed: its folder stays, but no process does."""

ATTEMPTS = 3
"""Starts, where a port that was free is taken by another program just before the server has it."""

_TAKEN = re.compile(r"address (?:is )?already in use|eaddrinuse|failed to bind", re.IGNORECASE)


class PeerMissing(Exception):
    """A peer is not installed; the message says what is missing and how to get it."""


class PeerFailed(Exception):
    """A peer's server or client did not do what it should; the message has the last lines that it said."""


class PeerServer(ABC):
    """One server for as long as the context is open. The folder must be new or empty, and is the caller's to remove.

    ``settings`` are the server's own, by its own names, and win over those that it would have here by default.
    """

    name: str
    defaults: ClassVar[Mapping[str, str]] = {}
    ready: str
    """A pattern of the line that the server says when it takes connections."""
    ports_wanted = 1
    user: str | None = None
    """Who it runs as, if we are root and it must not be."""

    def __init__(self, folder: Path, settings: Mapping[str, str] | None = None) -> None:
        self.folder = folder.resolve()
        self.settings = {**self.defaults, **(settings or {})}
        self.log = self.folder / "server.log"
        self.ports: list[int] = []
        self.started_in = 0.0
        self._process: subprocess.Popen[bytes] | None = None

    @abstractmethod
    def version(self) -> str:
        """Which server it is; raises :class:`PeerMissing` where it is not installed."""

    @abstractmethod
    def prepare(self) -> None:
        """Write its settings and make its data directory; the ports are known."""

    @abstractmethod
    def command(self) -> Sequence[str]:
        """What runs it, in the foreground."""

    def environment(self) -> dict[str, str]:
        """Its environment, which is never ours."""
        return {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "LC_ALL": "C.UTF-8", "HOME": os.fspath(self.folder)}

    @property
    def port(self) -> int:
        """Where its clients connect, at 127.0.0.1."""
        return self.ports[0]

    @property
    def pid(self) -> int:
        """Of its first process."""
        assert self._process is not None, f"{self.name} does not run"
        return self._process.pid

    def __enter__(self) -> Self:
        self.version()
        for attempt in range(1, ATTEMPTS + 1):
            self._empty()
            self.ports = free_ports(self.ports_wanted)
            try:
                self.prepare()
                self._start()
            except BaseException as error:
                self._stop()
                if attempt == ATTEMPTS or not isinstance(error, PeerFailed) or not _TAKEN.search(self.said()):
                    raise
            else:
                break
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop()

    def run(self, *command: str) -> str:
        """Run one of its tools as the server's user; returns what it printed, raises :class:`PeerFailed`."""
        done: subprocess.CompletedProcess[str] = subprocess.run(
            command, capture_output=True, text=True, timeout=PATIENCE, check=False, cwd=self.folder,
            env=self.environment(), **self._identity(),
        )  # fmt: skip
        if done.returncode:
            raise PeerFailed(f"{command[0]} ended with {done.returncode}:\n{done.stdout}{done.stderr}")
        return done.stdout

    def processes(self) -> list[int]:
        """Its first process and all that descend from it."""
        found, left = [], [self.pid]
        while left:
            found.append(left.pop())
            left += children(found[-1])
        return found

    def cpu_seconds(self) -> float:
        """Processor time of all its living processes so far."""
        return sum(processor_seconds(pid) for pid in self.processes())

    def said(self) -> str:
        """The end of its log."""
        lines = self.log.read_text(errors="replace").splitlines() if self.log.exists() else []
        return "\n".join([f"The end of what {self.name} said:", *lines[-25:]])

    def own(self, path: Path) -> None:
        """Hand a file or folder over to the user that the server runs as."""
        if user := self._user():
            shutil.chown(path, user, pwd.getpwnam(user).pw_gid)

    def _user(self) -> str | None:
        return self.user if os.geteuid() == 0 else None

    def _identity(self) -> dict[str, Any]:
        user = self._user()
        return {} if user is None else {"user": user, "group": pwd.getpwnam(user).pw_gid, "extra_groups": []}

    def _empty(self) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        for entry in self.folder.iterdir():
            shutil.rmtree(entry) if entry.is_dir() else entry.unlink()
        self.own(self.folder)

    def _start(self) -> None:
        began = time.monotonic()
        with self.log.open("wb") as log:
            self._process = subprocess.Popen(
                [*DIES_WITH_US, *self.command()], stdin=subprocess.DEVNULL, stdout=log, stderr=log, cwd=self.folder,
                env=self.environment(), start_new_session=True, **self._identity(),
            )  # fmt: skip
        ready = re.compile(self.ready.encode())
        while not ready.search(self.log.read_bytes()):
            if self._process.poll() is not None:
                raise PeerFailed(f"{self.name} ended with {self._process.returncode}. {self.said()}")
            if time.monotonic() - began > PATIENCE:
                raise PeerFailed(f"{self.name} is not ready after {PATIENCE:.0f} s. {self.said()}")
            time.sleep(0.02)
        self.started_in = time.monotonic() - began

    def _stop(self) -> None:
        """End its first process, which ends the others; those that stay are killed, each by its pid."""
        process = self._process
        if process is None:
            return
        with ExitStack() as stack:
            family = [descriptor(stack, pid) for pid in self.processes()] if process.poll() is None else []
            process.terminate()
            try:
                process.wait(PATIENCE)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
            for number in family[1:]:
                end(number)
        self._process = None


def descriptor(stack: ExitStack, pid: int) -> int | None:
    """A descriptor of a process, which stays that process's when its number goes to another; None if it is gone."""
    try:
        number = os.pidfd_open(pid)
    except ProcessLookupError:
        return None
    stack.callback(os.close, number)
    return number


def end(process: int | None) -> None:
    """See a process end that its parent should end; kill it if that takes too long."""
    if process is None:
        return
    ended = select.poll()
    ended.register(process, select.POLLIN)
    if not ended.poll(GRACE * 1000):
        signal.pidfd_send_signal(process, signal.SIGKILL)
        ended.poll()


def free_ports(count: int) -> list[int]:
    """Ports of 127.0.0.1 that are free now. Who takes them must be ready to hear that one no longer is."""
    with ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for one in sockets:
            one.bind(("127.0.0.1", 0))
        return [int(one.getsockname()[1]) for one in sockets]

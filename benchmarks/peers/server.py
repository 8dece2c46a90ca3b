"""The server of a peer: the real program in a private folder, on free ports of the loopback interface, ended by its
pid.
"""

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
"""Seconds for starting, and again for ending: enough for a Java or Erlang system on a busy machine."""

GRACE = 2.0
"""Seconds for the other processes of a server to end when its first one has ended."""

DIES_WITH_US = ("setpriv", "--pdeathsig", "KILL")
"""The command that runs a server so that it ends even if this process is killed."""

ATTEMPTS = 3
"""The number of starts to try: another program may take a free port just before the server does."""

_TAKEN = re.compile(r"address (?:is )?already in use|eaddrinuse|failed to bind", re.IGNORECASE)


class PeerMissing(Exception):
    """A peer is not installed; the message says what is missing and how to get it."""


class PeerFailed(Exception):
    """A peer's server or client did not do its work; the message has the last lines that it wrote."""


class PeerServer(ABC):
    """A server that runs while the context is open. The folder must be new or empty, and the caller removes it.

    ``settings`` are the server's own, by its own names, and override its defaults here.
    """

    name: str
    defaults: ClassVar[Mapping[str, str]] = {}
    ready: str
    """A pattern of the line that the server writes when it takes connections."""
    ports_wanted = 1
    user: str | None = None
    """The user to run the server as, if this process is root and the server must not be."""

    def __init__(self, folder: Path, settings: Mapping[str, str] | None = None) -> None:
        self.folder = folder.resolve()
        self.settings = {**self.defaults, **(settings or {})}
        self.log = self.folder / "server.log"
        self.ports: list[int] = []
        self.started_in = 0.0
        self._process: subprocess.Popen[bytes] | None = None

    @abstractmethod
    def version(self) -> str:
        """Return the version; raises :class:`PeerMissing` where the server is not installed."""

    @abstractmethod
    def prepare(self) -> None:
        """Write the settings and make the data directory; the ports are known."""

    @abstractmethod
    def command(self) -> Sequence[str]:
        """Return the command that runs the server in the foreground."""

    def environment(self) -> dict[str, str]:
        """Return the server's environment, which never includes that of this process."""
        return {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "LC_ALL": "C.UTF-8", "HOME": os.fspath(self.folder)}

    @property
    def port(self) -> int:
        """Return the port of 127.0.0.1 to which clients connect."""
        return self.ports[0]

    @property
    def pid(self) -> int:
        """Return the number of the server's first process."""
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
        """Run one of its tools as the server's user; return the output, or raise :class:`PeerFailed`."""
        done: subprocess.CompletedProcess[str] = subprocess.run(
            command, capture_output=True, text=True, timeout=PATIENCE, check=False, cwd=self.folder,
            env=self.environment(), **self._identity(),
        )  # fmt: skip
        if done.returncode:
            raise PeerFailed(f"{command[0]} ended with {done.returncode}:\n{done.stdout}{done.stderr}")
        return done.stdout

    def processes(self) -> list[int]:
        """Return the first process and all its descendants."""
        found, left = [], [self.pid]
        while left:
            found.append(left.pop())
            left += children(found[-1])
        return found

    def cpu_seconds(self) -> float:
        """Return the processor time of all its living processes so far."""
        return sum(processor_seconds(pid) for pid in self.processes())

    def said(self) -> str:
        """Return the end of its log."""
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
        """End the first process, which ends the others; those that stay are killed, each by its pid."""
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
    """Return a descriptor of a process, which stays valid when the number is used again; None if it is gone."""
    try:
        number = os.pidfd_open(pid)
    except ProcessLookupError:
        return None
    stack.callback(os.close, number)
    return number


def end(process: int | None) -> None:
    """Wait for the end of a process that its parent should end; kill it if that takes too long."""
    if process is None:
        return
    ended = select.poll()
    ended.register(process, select.POLLIN)
    if not ended.poll(GRACE * 1000):
        signal.pidfd_send_signal(process, signal.SIGKILL)
        ended.poll()


def free_ports(count: int) -> list[int]:
    """Return ports of 127.0.0.1 that are free now. Another program may take one at any time."""
    with ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(count)]
        for one in sockets:
            one.bind(("127.0.0.1", 0))
        return [int(one.getsockname()[1]) for one in sockets]

"""A program of a demo: a process that is started, killed and stopped, and what it wrote."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

STOP_WITHIN = 60.0
"""Seconds for a program to end after SIGTERM."""


class ProgramFailed(Exception):
    """A program ended by itself; the message has the end of what it said."""


class Program:
    """One program over its whole life. All its processes write to ``<name>.out`` and ``<name>.err``.

    In a session of its own (``own_session``) it does not hear the Ctrl-C that is meant for whoever has started it.
    ``environment`` is added to this process's.
    """

    def __init__(
        self,
        folder: Path,
        name: str,
        command: Sequence[str],
        own_session: bool = False,
        environment: Mapping[str, str] | None = None,
    ) -> None:
        self.name = name
        self.out = folder / f"{name}.out"
        self._err = folder / f"{name}.err"
        self._command = command
        self._own_session = own_session
        self._environment = environment
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start the program, and wait for nothing."""
        with self.out.open("ab") as out, self._err.open("ab") as err:
            self._process = subprocess.Popen(
                self._command,
                stdin=subprocess.DEVNULL,
                stdout=out,
                stderr=err,
                start_new_session=self._own_session,
                env=None if self._environment is None else {**os.environ, **self._environment},
            )

    def kill(self) -> None:
        """Send SIGKILL, and wait until the process is gone."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()

    def kill_all(self) -> None:
        """Kill all that there is of it: a program that has children takes these with it."""
        self.kill()

    def stop(self) -> int:
        """Send SIGTERM, wait for the orderly end, and return the exit code; 0 if it does not run."""
        process, self._process = self._process, None
        if process is None:
            return 0
        process.send_signal(signal.SIGTERM)
        try:
            return process.wait(STOP_WITHIN)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
            raise self.failed("did not stop on SIGTERM") from None

    def check(self) -> None:
        """Raise :class:`ProgramFailed` if the program has ended by itself."""
        if self._process is not None and self._process.poll() is not None:
            raise self.failed(f"ended by itself with {self._process.returncode}")

    def lines(self) -> list[str]:
        """Return the lines that it wrote, except for one that a kill has cut off."""
        text = self.out.read_text() if self.out.exists() else ""
        return text[: text.rfind("\n") + 1].splitlines()

    def failed(self, what: str) -> ProgramFailed:
        """Return an error with this text and the end of what the program said."""
        lines = self._err.read_text(errors="replace").splitlines()
        return ProgramFailed("\n".join([f"{self.name} {what}. The end of what it said:", *lines[-20:]]))

"""Programs that have children: the web server with its workers, Celery's worker with its pool."""

from __future__ import annotations

import os
import signal
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from demo.database_process import children
from demo.program import Program


class Service(Program):
    """A program with children, in a session of its own."""

    def __init__(
        self, folder: Path, name: str, command: Sequence[str], environment: Mapping[str, str]
    ) -> None:
        super().__init__(folder, name, command, own_session=True, environment=environment)

    @property
    def children(self) -> list[int]:
        """Return the process ids of its children."""
        return [] if self._process is None else children(self._process.pid)

    def start(self) -> None:
        """Start it; what a killed one has left is killed before, as systemd does."""
        self.kill_all()
        super().start()

    def kill_all(self) -> None:
        """Send SIGKILL to the main process and to all that it has left."""
        if self._process is not None:
            with suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()

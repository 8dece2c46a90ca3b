"""Forces of a server: strace counts how often it forces its files while it acknowledges requests."""

from __future__ import annotations

import re
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

CALLS = ("fsync", "fdatasync", "msync", "sync_file_range", "syncfs", "io_submit", "io_uring_enter")
FORCES = ("fsync", "fdatasync")
PATIENCE = 20.0

SECONDS = 2.0
"""Seconds of requests while counting; a quarter of that before counts as well."""


class NotCounted(Exception):
    """The calls could not be counted; the message says why."""


class Forces(NamedTuple):
    """The system calls of all processes of a server while it acknowledged that many requests, one at a time."""

    acknowledged: int
    calls: dict[str, int]

    @property
    def each(self) -> float:
        """Return the forces for each acknowledged request."""
        return sum(self.calls.get(name, 0) for name in FORCES) / self.acknowledged


def counted(processes: Sequence[int], run: Callable[[], int]) -> Forces:
    """Count while ``run`` works; it returns how many requests were acknowledged."""
    if shutil.which("strace") is None:
        raise NotCounted("strace is not installed: .ci/need-debian strace=strace installs it")
    with tempfile.TemporaryDirectory() as scratch:
        summary = Path(scratch, "summary")
        command = ["strace", "-f", "-c", "-qq", "-e", f"trace={','.join(CALLS)}", "-o", str(summary)]
        command += [part for pid in processes for part in ("-p", str(pid))]
        tracer = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
        try:
            _await_attached(tracer, processes)
            acknowledged = run()
        finally:
            tracer.send_signal(signal.SIGINT)
            tracer.communicate()
        return Forces(acknowledged, parsed(summary.read_text()))


def _await_attached(tracer: subprocess.Popen[str], processes: Sequence[int]) -> None:
    deadline = time.monotonic() + PATIENCE
    while not all(map(_is_traced, processes)):
        if tracer.poll() is not None:
            assert tracer.stderr is not None
            raise NotCounted(f"strace cannot attach: {tracer.stderr.read().strip()}")
        if time.monotonic() > deadline:
            raise NotCounted(f"strace did not attach within {PATIENCE:.0f} s")
        time.sleep(0.05)


def _is_traced(pid: int) -> bool:
    """Return whether all threads of a process are traced; a thread that has ended counts as traced."""
    try:
        threads = [path.read_text() for path in Path("/proc", str(pid), "task").glob("*/status")]
    except (FileNotFoundError, ProcessLookupError):
        return False
    return all("TracerPid:\t0\n" not in status for status in threads)


def parsed(summary: str) -> dict[str, int]:
    """Return the calls by name in the table of ``strace -c``; an empty table if there was none."""
    rows = re.findall(r"^\s*[\d.]+\s+[\d.]+\s+\d+\s+(\d+)\s+(?:\d+\s+)?(\w+)$", summary, re.MULTILINE)
    return {name: int(calls) for calls, name in rows if name in CALLS}

"""The watch reads the processor time and the greatest memory of a tree of processes from ``/proc``."""

from __future__ import annotations

import os
import threading
from pathlib import Path
from types import TracebackType
from typing import Self

EVERY: float = 0.2
"""Seconds between two readings."""

_TICKS = os.sysconf("SC_CLK_TCK")


def family(root: int) -> list[int]:
    """Return a process and all its descendants."""
    children: dict[int, list[int]] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and (fields := _stat(int(entry.name))):
            children.setdefault(int(fields[1]), []).append(int(entry.name))
    found, left = [], [root]
    while left:
        found.append(left.pop())
        left += children.get(found[-1], [])
    return found


def processor_seconds(root: int) -> float:
    """Return the processor time of a process and its descendants so far, including ended ones that were reaped."""
    return sum(sum(map(int, fields[11:15])) for pid in family(root) if (fields := _stat(pid))) / _TICKS


def memory(root: int) -> int:
    """Return the bytes that a process and its descendants hold now; shared memory counts once (PSS)."""
    return sum(map(_proportional, family(root)))


class Watch:
    """The processor time and memory of a process and its descendants while the context was open.

    ``memory`` is the most that they held at a time; ``processor`` their seconds, including those of processes not yet
    reaped.
    """

    def __init__(self, root: int) -> None:
        self.memory = 0
        self.processor = 0.0
        self._root = root
        self._ended = threading.Event()
        self._watcher = threading.Thread(target=self._watch, daemon=True)

    def __enter__(self) -> Self:
        self._watcher.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._ended.set()
        self._watcher.join()

    def _watch(self) -> None:
        while not self._ended.wait(EVERY):
            self.memory = max(self.memory, memory(self._root))
            self.processor = max(self.processor, processor_seconds(self._root))


def _stat(pid: int) -> list[str]:
    """Return the fields of ``stat`` behind the name; none if the process is gone."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return []


def _proportional(pid: int) -> int:
    try:
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    except (FileNotFoundError, ProcessLookupError):
        return 0
    return sum(int(line.split()[1]) * 1024 for line in lines if line.startswith("Pss:"))

"""Memory and processor time of a process, as the system counts them; and how many files this process may open."""

from __future__ import annotations

import os
import re
import resource
from pathlib import Path
from typing import NamedTuple

_TICKS = os.sysconf("SC_CLK_TCK")


class Memory(NamedTuple):
    """Bytes that are resident now (VmRSS), and at most so far (VmHWM)."""

    resident: int
    peak: int


def memory_of(pid: int) -> Memory:
    """Return the memory of a process."""
    status = Path(f"/proc/{pid}/status").read_text()
    found = dict(re.findall(r"^(VmRSS|VmHWM):\s+(\d+) kB", status, re.MULTILINE))
    return Memory(int(found["VmRSS"]) * 1024, int(found["VmHWM"]) * 1024)


def processor_seconds(pid: int) -> float:
    """Return the processor time of one process so far, of all its threads, in user and system mode; 0 if it is gone."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except (FileNotFoundError, ProcessLookupError):
        return 0.0
    return (int(fields[11]) + int(fields[12])) / _TICKS


def allow_descriptors() -> int:
    """Let this process open as many files as the system allows; return how many that are."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    return hard

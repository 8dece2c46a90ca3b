"""A process's memory as the system counts it, from outside; and how many files this one may open."""

from __future__ import annotations

import re
import resource
from pathlib import Path
from typing import NamedTuple


class Memory(NamedTuple):
    """Resident bytes now (VmRSS) and at most so far (VmHWM)."""

    resident: int
    peak: int


def memory_of(pid: int) -> Memory:
    """Of the process of that number."""
    status = Path(f"/proc/{pid}/status").read_text()
    found = dict(re.findall(r"^(VmRSS|VmHWM):\s+(\d+) kB", status, re.MULTILINE))
    return Memory(int(found["VmRSS"]) * 1024, int(found["VmHWM"]) * 1024)


def allow_descriptors() -> int:
    """As many files as the system allows this process; returns how many that are."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    return hard

"""The metrics of the process, under the names that all exporters of Prometheus use."""

from __future__ import annotations

import os
import resource
import time
from collections.abc import Iterator
from typing import Final

from txbroker.monitoring.exposition import COUNTER, Metric

STARTED_AT: Final = time.time()

CPU: Final = Metric(
    "process_cpu_seconds_total", "Processor time of all threads, in user and system mode.", COUNTER
)
STARTED: Final = Metric("process_start_time_seconds", "When the process began, in seconds since 1970 UTC.")
RESIDENT: Final = Metric("process_resident_memory_bytes", "Memory that is resident.")
OPEN_FILES: Final = Metric("process_open_fds", "File descriptors that are open.")
MOST_FILES: Final = Metric("process_max_fds", "File descriptors that may be open.")


def families() -> Iterator[str]:
    """Yield the text of each metric."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    yield CPU.only(used.ru_utime + used.ru_stime)
    yield STARTED.only(STARTED_AT)
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != resource.RLIM_INFINITY:
        yield MOST_FILES.only(soft)
    try:
        with open("/proc/self/statm") as file:
            resident = int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
        descriptors = len(os.listdir("/proc/self/fd"))
    except OSError:
        return  # a system without /proc: all others are there
    yield RESIDENT.only(resident)
    yield OPEN_FILES.only(descriptors)

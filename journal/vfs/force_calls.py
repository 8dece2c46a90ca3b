"""The loop of a thread that writes and forces: what one job is, and the calls that it takes.

The function is also in ``force_calls.pxd``, in C, where it takes the interpreter's lock not once
(``journal/compiled.py``). Numbers are signed, of 64 bits, in the machine's own order.
"""

from __future__ import annotations

import errno
import os
import time
from collections.abc import Callable
from typing import Final

FIELDS: Final = 8
DESCRIPTOR, POSITION, SIZE, ERROR, STAGE, BEGUN, WRITTEN, FORCED = range(FIELDS)
"""The numbers at the beginning of an area. A job is descriptor, position in the file and how many bytes; what came of
it is the error's number (0 for none), at which stage, and three times of the monotonic clock in nanoseconds.
"""

WRITING, FORCING = 1, 2
"""The stages."""

HEADER: Final = 8 * FIELDS
"""The bytes of the numbers. The bytes to be written are behind them."""

END: Final = -1
"""The descriptor that ends the loop."""


def serve(
    area: bytearray,
    asked: int,
    done: int,
    write: Callable[[int, memoryview, int], int] = os.pwrite,
    force: Callable[[int], object] = os.fdatasync,
) -> None:
    """Do the job in the area whenever the eventfd ``asked`` is signalled, and signal ``done``; return at the end.

    A short write is continued; one that makes no progress is an EIO. Nothing is tried again after an error. A drill
    gives other calls than the system's, which take a descriptor as they do.
    """
    with memoryview(area) as whole, whole[:HEADER] as head, head.cast("q") as job, whole[HEADER:] as data:
        while os.eventfd_read(asked) and job[DESCRIPTOR] != END:
            descriptor, position, left, start = job[DESCRIPTOR], job[POSITION], job[SIZE], 0
            job[ERROR], job[STAGE] = 0, WRITING
            job[BEGUN] = time.monotonic_ns()
            try:
                if not 0 <= left <= len(data):
                    raise OSError(errno.EINVAL, "not in the area")
                while left:
                    with data[start : start + left] as rest:
                        written = write(descriptor, rest, position + start)
                    if written <= 0:
                        raise OSError(errno.EIO, "no progress")
                    start, left = start + written, left - written
                job[STAGE], job[WRITTEN] = FORCING, time.monotonic_ns()
                force(descriptor)
                job[FORCED] = time.monotonic_ns()
            except OSError as error:
                job[ERROR] = error.errno or errno.EIO
            os.eventfd_write(done, 1)

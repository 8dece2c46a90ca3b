"""How much time of the processor something takes, as little disturbed by other work as can be."""

import time
from collections.abc import Callable


def least_time(call: Callable[[], object]) -> float:
    """Return the least processor time of several calls, in seconds."""
    times = []
    for _ in range(5):
        begin = time.process_time()
        call()
        times.append(time.process_time() - begin)
    return min(times)

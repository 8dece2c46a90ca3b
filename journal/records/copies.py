"""How many bytes are copied for messages that go to several logs: large ones are in memory once for all of them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from journal.constants import KIB, MESSAGE_WEIGHT
from journal.formats.frame_header import HEADER_BYTES
from journal.records.record_parts import Run

SHARED_BYTES: Final = 4 * KIB
"""Messages that are larger, on the average of their run, are shared. Smaller ones are copied: a tail remembers two
chunks more for each that it shares, and a read joins them.
"""


def is_shared(size: int, count: int, logs: int) -> bool:
    """Return whether a run of so many bytes and messages is in memory once for so many logs."""
    return logs > 1 and size > SHARED_BYTES * count


def further_bytes(size: int, count: int, logs: int) -> int:
    """Return how many bytes are copied for each of these logs but the first, which takes all of them."""
    return count * HEADER_BYTES if is_shared(size, count, logs) else size


def weight_of_runs(runs: Sequence[Run], size: int) -> int:
    """Return the cost of putting runs of ``size`` bytes together into all their logs, as bytes that are copied."""
    weight = 0
    for run, end in zip(runs, [*[run.start for run in runs[1:]], size], strict=True):
        logs, own = 1 + len(run.also), end - run.start
        weight += own + (logs - 1) * further_bytes(own, run.count, logs) + MESSAGE_WEIGHT * run.count * logs
    return weight

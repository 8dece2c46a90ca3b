"""A checkpoint's snapshot of ten million messages, every second one finished: how long it holds the reactor."""

from __future__ import annotations

import time
from typing import Final

from journal.folds.groups import GroupsFold
from journal.formats.offset_set_bytes import encode_offsets
from journal.offset_set import OffsetSet
from journal.records.group_entries import Settled
from journal.records.record import OffsetsCommitted

PARTITIONS: Final = 100
MESSAGES: Final = 100_000
"""In each partition: as many as a reader may be ahead of the lowest unfinished one."""
NAME: Final = "snapshot of 10,000,000 messages, every second finished"


def settled_fold() -> GroupsFold:
    """Return a fold in which a group has finished the offsets 1, 3, 5 and so on of each partition."""
    fold = GroupsFold()
    finished = encode_offsets(OffsetSet.from_bits(0, int("10" * (MESSAGES // 2), 2)), 0)
    for partition in range(1, PARTITIONS + 1):
        settled = [Settled(partition, 0, 0, finished)]
        fold.apply(partition, OffsetsCommitted("g", [], 0, b"", settled), b"")
    return fold


def snapshot_time() -> float:
    """Return the seconds of the processor that a snapshot takes; its rows are drawn on another thread, not here."""
    fold = settled_fold()
    began = time.thread_time()
    fold.snapshot()
    return time.thread_time() - began

"""Sends to one partition that follow each other in the journal, to be folded in one go when it is replayed."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate

from journal.record import Messages


class MessageRun:
    """Records of one partition in LSN order with their frames, and what all of them say as columns.

    Columns cost 0.04 µs a value, the calls that would look at each record in turn 0.3 µs and more.
    """

    __slots__ = ("bases", "counts", "frames", "partition", "records", "times")

    def __init__(self, records: Sequence[Messages], frames: Sequence[bytes]) -> None:
        self.partition = records[0].partition
        self.records = records
        self.frames = frames
        self.bases = [record.base_offset for record in records]
        self.counts = [record.count for record in records]
        self.times = [record.at for record in records]

    @property
    def follows(self) -> bool:
        """Whether each begins where the one before it ends."""
        return follows(self.bases, self.counts)


def follows(firsts: list[int], counts: list[int]) -> bool:
    """Whether stretches that begin at ``firsts`` and have ``counts`` lie side by side."""
    return list(accumulate(counts[:-1], initial=firsts[0])) == firsts

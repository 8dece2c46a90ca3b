"""Runs of sends to one partition that follow each other in the journal, folded together when it is replayed."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate
from typing import Self

from journal.log.joined_runs import Joined
from journal.records.record import Messages

Row = tuple[int, int, int, int, int, int, int, bytes]
"""The fields of a :class:`Messages`, in its order, and its frames."""

SHORT_RUN = 4
"""Fewer sends to a partition are folded one by one, at 3 µs each; a run takes 8 µs and 0.3 for each send."""


class MessageRun:
    """Sends in LSN order, as columns: one value of each for every send. All are to one ``partition``.

    A column costs 0.04 µs a send; calls that look at each record in turn take 0.3 µs and more.
    """

    __slots__ = ("bases", "counts", "epochs", "frames", "partition", "producers", "sequences", "times")

    def __init__(self, partition: int, columns: Sequence[Sequence[int]], frames: Joined) -> None:
        self.partition = partition
        self.bases, self.counts, self.times, self.producers, self.epochs, self.sequences = columns
        self.frames = frames

    @classmethod
    def of_records(cls, records: Sequence[Messages], frames: Sequence[bytes]) -> Self:
        """Return the run of some records of one partition."""
        columns = (
            [record.base_offset for record in records],
            [record.count for record in records],
            [record.at for record in records],
            [record.producer_id for record in records],
            [record.epoch for record in records],
            [record.sequence for record in records],
        )
        return cls(records[0].partition, columns, Joined.of(frames))

    @classmethod
    def of_rows(cls, rows: Sequence[Row]) -> Self:
        """Return the run of some rows of one partition."""
        partitions, *columns, frames = zip(*rows, strict=True)
        return cls(partitions[0], columns, Joined.of(frames))

    @property
    def is_of_one_producer(self) -> bool:
        """Return whether all sends are of one producer, or all of none, and each continues the one before it."""
        same = len(self.producers)
        return (
            self.producers.count(self.producers[0]) == same
            and follow(self.bases, self.counts)
            and (
                not self.producers[0]
                or (self.epochs.count(self.epochs[0]) == same and follow(self.sequences, self.counts))
            )
        )


def follow(firsts: Sequence[int], counts: Sequence[int]) -> bool:
    """Return whether the offset ranges that begin at ``firsts`` and have ``counts`` follow each other without gaps."""
    return list(accumulate(counts[:-1], initial=firsts[0])) == list(firsts)

"""The contents of a deciding request that have not been sent before: runs of frames, and positions of groups."""

from __future__ import annotations

import builtins
from collections.abc import Mapping, Sequence
from typing import Final

import msgspec
from crc32c import crc32c

from journal.errors import ContentMismatch
from journal.formats.frame import stamp
from journal.records.copies import further_bytes
from journal.records.group_entries import GroupPositions
from journal.records.outcome import Outcome
from journal.records.record import Run, Scheduled, TakenBack, TransactionCommitted
from journal.records.stream_entries import Delivered
from journal.transaction_states import Totals, TransactionNumber
from journal.transactions.state import Transaction

NO_TOTALS: Final = Totals(0, 0, 0)
"""The totals of what was added before, if nothing was."""

Also = Sequence[int]
UnsentRun = tuple[int, int, bytes | memoryview, Also]
"""A partition, how many messages go to it, their checked, unstamped frames, and the partitions that these go to, too.

Partition 0 is none: an exchange has found no queue for them.
"""


class Unsent:
    """Runs and positions in the order in which they were given; how many ``messages`` and ``bytes`` the runs have.

    ``delivered`` is the number of a stream that is delivered with them, ``taken_back`` are scheduled messages.
    """

    __slots__ = ("bytes", "delivered", "messages", "positions", "runs", "taken_back")

    def __init__(
        self,
        runs: Sequence[UnsentRun] = (),
        positions: list[GroupPositions] | None = None,
        delivered: Delivered | None = None,
        taken_back: list[Scheduled] | None = None,
    ) -> None:
        self.runs = runs
        self.positions = positions or []
        self.delivered = delivered
        self.taken_back = taken_back or []
        self.messages = self.bytes = 0
        for _, count, frames, _ in runs:
            self.messages += count
            self.bytes += len(frames)

    @property
    def settles(self) -> list[GroupPositions | TakenBack | Delivered]:
        """All that a commit settles with it, the number of a stream last."""
        if self.delivered is None and not self.taken_back:
            return self.positions  # type: ignore[return-value]
        found: list[GroupPositions | TakenBack | Delivered] = [*self.positions]
        if self.taken_back:
            found.append(TakenBack(self.taken_back))
        return found if self.delivered is None else [*found, self.delivered]

    def sizes(self) -> dict[int, int]:
        """Return how many bytes of memory each partition takes for them."""
        found: dict[int, int] = {}
        for partition, count, frames, also in self.runs:
            size, targets = len(frames), targets_of(partition, also)
            for target in targets:
                found[target] = found.get(target, 0) + size
                size = further_bytes(len(frames), count, len(targets))
        return found

    def counts(self, before: Mapping[int, int]) -> dict[int, int]:
        """Return how many messages each partition gets, with those that it had ``before``."""
        found = dict(before)
        for partition, count, _, also in self.runs:
            for target in targets_of(partition, also):
                found[target] = found.get(target, 0) + count
        return found

    def checksum(self, before: int) -> int:
        """Return the CRC-32C of the frames sent before, which is ``before``, and of all runs behind them."""
        for _, _, frames, _ in self.runs:
            before = crc32c(frames, before)
        return before

    def as_recorded(self, checksums: Mapping[int, int]) -> list[Run]:
        """Return the runs as a record has them; ``checksums`` are those of the frames sent for each partition
        before.
        """
        if len(self.runs) == 1 and not checksums:
            [(partition, count, frames, also)] = self.runs
            return [Run(partition, count, 0, crc32c(frames), list(also))]
        found, start, sums = [], 0, dict(checksums)
        for partition, count, frames, also in self.runs:
            for target in also:
                sums[target] = crc32c(frames, sums.get(target, 0))
            sums[partition] = checksum = crc32c(frames, sums.get(partition, 0))
            found.append(Run(partition, count, start, checksum, list(also)))
            start += len(frames)
        return found

    def joined(self) -> builtins.bytes:
        """Return the frames of all runs, one after the other."""
        runs = self.runs
        return builtins.bytes(runs[0][2]) if len(runs) == 1 else b"".join([each[2] for each in runs])

    def stamped(self, offsets: Mapping[int, int], appended: int) -> builtins.bytes:
        """Return the same, each run stamped for its first partition, from its offset on, and all with this append
        time.
        """
        following, whole, start = dict(offsets), bytearray(self.joined()), 0
        view = memoryview(whole)
        for partition, count, frames, also in self.runs:
            end = start + len(frames)
            if partition:
                following[partition] = stamp(view[start:end], following[partition], appended)
            for target in also:
                following[target] += count
            start = end
        return builtins.bytes(whole)


def targets_of(partition: int, also: Also) -> Also:
    """Return the partitions that a run goes to."""
    if also:
        return (partition, *also)
    return (partition,) if partition else ()


NOTHING: Final = Unsent()
"""The contents of a request without any: the second phase, or one whose frames were all added before."""


def judge_same_content(
    number: TransactionNumber, known: Transaction | Outcome, totals: Totals | None, unsent: Unsent
) -> None:
    """Raise for a request that comes again under a number with another content than the first time."""
    before = totals or NO_TOTALS
    messages, checksum = before.messages + unsent.messages, unsent.checksum(before.checksum)
    if (known.messages, known.checksum) != (messages, checksum):
        raise ContentMismatch(
            f"transaction {number} was decided with {known.messages} messages (checksum {known.checksum:08x}), this "
            f"request has {messages} ({checksum:08x}): its number was used twice. Nothing was changed"
        )


def with_rest(
    record: TransactionCommitted, transaction: Transaction, unsent: Unsent, wall_offset: int
) -> tuple[TransactionCommitted, bytes]:
    """Return the decision for one that has begun, with what comes behind what was added, and that stamped.

    ``wall_offset`` is the wall clock at journal time 0.
    """
    counts = transaction.staged.counts()
    firsts = {p.partition: p.base_offset + counts.get(p.partition, 0) for p in record.placements}
    whole = msgspec.structs.replace(
        record,
        runs=unsent.as_recorded(transaction.checksums),
        settles=unsent.settles,
        checksum=unsent.checksum(transaction.checksum),
    )
    return whole, unsent.stamped(firsts, record.at + wall_offset)

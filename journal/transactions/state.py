"""One undecided transaction, in memory and in a checkpoint."""

from __future__ import annotations

from collections.abc import Collection, Iterable, KeysView
from dataclasses import dataclass
from itertools import chain
from typing import Final

import msgspec

from journal.formats.checkpoint_rows import Count
from journal.formats.filenames import staged_file
from journal.parties import Actor, Owner
from journal.records.group_entries import PartitionOffset, Settled
from journal.records.outcome import Outcome
from journal.records.record import Placement
from journal.records.transient import durable_run, is_transient
from journal.transaction_states import PREPARED, Cause, State, Totals, TransactionNumber
from journal.transactions.staging import Entry, Staged
from journal.xid import Xid

MOST_NAMED: Final = 10
"""How many transactions a line of the log names."""
SET_BYTES: Final = 16
"""So many bytes of a set of finished offsets count as much as a position."""


class Transaction(msgspec.Struct, eq=False):
    """A transaction that is active, doomed or prepared. ``began`` and ``prepared_at`` are journal time.

    It is a struct, and so are its parts: made in 0.25 µs, a dataclass in 0.65.
    """

    number: TransactionNumber
    began: int
    owner: Owner | None = None
    xid: Xid | None = None
    state: State = State.ACTIVE
    prepared_at: int = 0
    messages: int = 0
    requests: int = 0
    checksum: int = 0
    staged: Staged = msgspec.field(default_factory=Staged)
    offsets: list[tuple[str, PartitionOffset]] = []
    settled: list[tuple[str, int]] = []
    """The groups of which it settles offsets, and what these count against the limit of positions."""
    wall_offset: int = 0
    """The offset that turns its journal times into times of the wall clock, for people."""
    checksums: dict[int, int] = {}
    """CRC-32C of the frames sent for each partition."""

    @property
    def bytes(self) -> int:
        """Bytes of frames sent so far."""
        return self.staged.bytes

    @property
    def partitions(self) -> KeysView[int]:
        """The partitions that it has messages for."""
        return self.checksums.keys()

    def parts(self) -> list[tuple[int, int, int, int]]:
        """Return (partition, messages, bytes, checksum) of the sent frames, in the order of the partitions'
        first frames.
        """
        parts = self.staged.parts.items()
        return [(number, messages, size, self.checksums[number]) for number, (messages, size) in parts]

    @property
    def groups(self) -> frozenset[str]:
        """The consumer groups that it moves, or of which it settles offsets."""
        return frozenset([group for group, _ in chain(self.offsets, self.settled)])

    @property
    def positions(self) -> int:
        """What it counts against the limits of positions."""
        return len(self.offsets) + sum([weight for _, weight in self.settled])

    @property
    def totals(self) -> Totals:
        """Return what has arrived, to be compared with what the client says it sent."""
        return Totals(self.messages, self.requests, self.checksum)


@dataclass(slots=True)
class Amounts:
    """The amounts of all undecided transactions together; bounded by :class:`TransactionLimits`."""

    messages: int = 0
    bytes: int = 0
    offsets: int = 0
    requests: int = 0

    def count(self, transaction: Transaction, sign: int) -> None:
        """Add a transaction's amounts (``sign`` 1), or subtract them (-1)."""
        self.messages += sign * transaction.messages
        self.bytes += sign * transaction.staged.bytes
        self.offsets += sign * len(transaction.offsets)
        if transaction.settled:
            self.offsets += sign * sum([weight for _, weight in transaction.settled])
        self.requests += sign * transaction.requests


class TransactionRow(msgspec.Struct, array_like=True, frozen=True):
    """A transaction in a checkpoint. Frames are in the staged file, the other entries' in the journal."""

    number: TransactionNumber
    began: int
    owner: Owner | None
    xid: Xid | None
    state: State
    prepared_at: int
    totals: Totals
    entries: list[Entry]
    file_entries: int
    offsets: list[tuple[str, PartitionOffset]]
    wall_offset: int
    checksums: dict[int, int] = {}
    salt: int = 0
    """The salt of the staged file."""
    settled: list[tuple[str, Count]] = []

    @classmethod
    def of(cls, transaction: Transaction) -> TransactionRow:
        """Return the row of a transaction as it is now, without what it has for transient queues."""
        return cls(
            transaction.number,
            transaction.began,
            transaction.owner,
            transaction.xid,
            transaction.state,
            transaction.prepared_at,
            transaction.totals,
            list(map(durable_run, transaction.staged.entries)),
            transaction.staged.file_entries,
            list(transaction.offsets),
            transaction.wall_offset,
            {each: at for each, at in transaction.checksums.items() if not is_transient(each)},
            transaction.staged.salt,
            [(group, weight) for group, weight in transaction.settled if weight],
        )

    def transaction(self) -> Transaction:
        """Return the transaction; all its frames are on disk."""
        staged = Staged.of(self.entries, self.file_entries)
        staged.salt = self.salt
        return Transaction(
            self.number,
            self.began,
            self.owner,
            self.xid,
            self.state,
            self.prepared_at,
            self.totals.messages,
            self.totals.requests,
            self.totals.checksum,
            staged,
            list(self.offsets),
            list(self.settled),
            self.wall_offset,
            dict(self.checksums),
        )


def weight_of(settled: Iterable[Settled]) -> int:
    """Return what settled offsets count against the limit of positions: memory of about a position each. Those in
    transient queues count nothing, because a replay does not know of them.
    """
    return sum(
        [
            1 + len(each.unfinished) + len(each.finished) // SET_BYTES
            for each in settled
            if not is_transient(each.partition)
        ]
    )


_FORCED_BY_HAND = (Cause.OPERATOR, Cause.ORPHAN_POLICY)
_NOWHERE: list[Placement] = []


def outcome_of(
    transaction: Transaction,
    state: State,
    cause: Cause,
    at: int,
    wall: int,
    by: Actor | None = None,
    why: str = "",
    placements: list[Placement] = _NOWHERE,
) -> Outcome:
    """Return the outcome of a transaction that ended now, at journal time ``at``, ``wall`` for people."""
    prepared = transaction.state is PREPARED
    heuristic = prepared and cause in _FORCED_BY_HAND
    began = transaction.began + transaction.wall_offset
    prepared_at = transaction.prepared_at + transaction.wall_offset if prepared else 0
    return Outcome(
        transaction.number, state, cause, at, transaction.xid, by, why, placements, heuristic, None,
        transaction.owner, transaction.messages, transaction.staged.bytes, wall, began, prepared_at,
        transaction.checksum,
    )  # fmt: skip


def row_of(each: Transaction | TransactionRow) -> TransactionRow:
    """Return the row of a transaction, or the row itself if it has been made."""
    return TransactionRow.of(each) if isinstance(each, Transaction) else each


def without_files(transactions: Iterable[Transaction], names: Collection[str]) -> str:
    """Return a line about transactions whose staged files are missing; empty if there are none."""
    lost = []
    for each in transactions:
        path = staged_file(each.number.session, each.number.serial)
        if each.staged.file_entries and path.rpartition("/")[2] not in names:
            lost.append(f"{path} (transaction {each.number}, xid {each.xid})")
    if not lost:
        return ""
    more = f", and {len(lost) - MOST_NAMED:,} more" if len(lost) > MOST_NAMED else ""
    return (
        f"missing: {', '.join(lost[:MOST_NAMED])}{more}. What was sent in these transactions lies there: a commit is "
        "refused until the file is restored from a copy, a rollback works"
    )

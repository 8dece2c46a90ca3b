"""One undecided transaction, in memory and in a checkpoint."""

from __future__ import annotations

from collections.abc import Collection, Iterable, KeysView
from dataclasses import dataclass
from typing import Final

import msgspec

from journal.formats.filenames import staged_file
from journal.formats.outcome import Outcome
from journal.formats.record import PartitionOffset, Placement
from journal.parties import Actor, Owner
from journal.transaction import PREPARED, Cause, State, Totals, TransactionNumber, Xid
from journal.transactions.staging import Entry, Staged

MOST_NAMED: Final = 10
"""So many are named in a line of the log."""


class Transaction(msgspec.Struct, eq=False):
    """A transaction that is active, doomed or prepared. ``began`` and ``prepared_at`` are journal time.

    A struct, and its parts too: made in 0.25 µs, a dataclass in 0.65.
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
    wall_offset: int = 0
    """What makes times of the wall clock of its journal times, for people."""
    checksums: dict[int, int] = {}
    """CRC-32C of what was sent for each partition."""

    @property
    def bytes(self) -> int:
        """Bytes of frames sent so far."""
        return self.staged.bytes

    @property
    def partitions(self) -> KeysView[int]:
        """The partitions that it has messages for."""
        return self.checksums.keys()

    def parts(self) -> list[tuple[int, int, int, int]]:
        """(partition, messages, bytes, checksum) of what was sent, in the order in which these were first sent to."""
        parts = self.staged.parts.items()
        return [(number, messages, size, self.checksums[number]) for number, (messages, size) in parts]

    @property
    def totals(self) -> Totals:
        """What has arrived, to be compared with what the client says it sent."""
        return Totals(self.messages, self.requests, self.checksum)


@dataclass(slots=True)
class Amounts:
    """What all undecided transactions have together; bounded by :class:`TransactionLimits`."""

    messages: int = 0
    bytes: int = 0
    offsets: int = 0
    requests: int = 0

    def count(self, transaction: Transaction, sign: int) -> None:
        """Add what a transaction has (``sign`` 1), or take it away (-1)."""
        self.messages += sign * transaction.messages
        self.bytes += sign * transaction.staged.bytes
        self.offsets += sign * len(transaction.offsets)
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
    """That of the staged file."""

    @classmethod
    def of(cls, transaction: Transaction) -> TransactionRow:
        """The row of a transaction as it is now."""
        return cls(
            transaction.number,
            transaction.began,
            transaction.owner,
            transaction.xid,
            transaction.state,
            transaction.prepared_at,
            transaction.totals,
            list(transaction.staged.entries),
            transaction.staged.file_entries,
            list(transaction.offsets),
            transaction.wall_offset,
            dict(transaction.checksums),
            transaction.staged.salt,
        )

    def transaction(self) -> Transaction:
        """The transaction; all its frames are on disk."""
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
            self.wall_offset,
            dict(self.checksums),
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
    """How a transaction ended that ended now, at journal time ``at``, ``wall`` for people."""
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
    """The row of a transaction, or the row itself if it has been made."""
    return TransactionRow.of(each) if isinstance(each, Transaction) else each


def without_files(transactions: Iterable[Transaction], names: Collection[str]) -> str:
    """What to tell of transactions whose staged files are not among those that there are; empty if there are none."""
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

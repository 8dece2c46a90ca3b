"""Transactions of one add each, decided one after the other, to be folded in one go when the journal is replayed."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple, Self, cast

from journal.formats.record import AnyRecord, TransactionAdded, TransactionCommitted, TransactionPrepared
from journal.recovery.record_batches import EvenTransactions
from journal.transaction import TransactionNumber

Pair = tuple[TransactionAdded, TransactionCommitted]
Waiting = tuple[int, TransactionAdded, bytes]
"""LSN, record and frames of an add whose commit is still to come."""


class TransactionRun(NamedTuple):
    """Such transactions in the order of their commits, as columns: one value of each for all. None has an xid.

    ``lsns`` and ``times`` are those of the commits, ``pair`` gives the records. ``seen`` is what the session's client
    had seen when it was decided: as its own two records say, at least.
    """

    lsns: Sequence[int]
    sessions: Sequence[int]
    serials: Sequence[int]
    partitions: Sequence[int]
    counts: Sequence[int]
    bases: Sequence[int]
    times: Sequence[int]
    seen: Sequence[int]
    frames: Sequence[bytes]
    pair: Callable[[int], Pair]

    @classmethod
    def of_even(cls, lsn: int, even: EvenTransactions) -> Self | None:
        """The run of transactions that look alike, from ``lsn`` on; None if a commit is not that of the add before."""
        sessions, serials, partitions, counts, _, at_add, frames, *commits = even.columns
        if [sessions, serials, partitions, counts] != [commits[0], commits[1], commits[2], commits[4]]:
            return None
        seen = at_add if at_add == commits[7] else list(map(max, at_add, commits[7]))
        lsns = range(lsn + 1, lsn + 2 * len(frames), 2)
        return cls(
            lsns, sessions, serials, partitions, counts, commits[3], commits[5], seen, frames, even.pair
        )  # fmt: skip

    @classmethod
    def of_pairs(
        cls, lsns: Sequence[int], pairs: Sequence[Pair], seen: Sequence[int], frames: Sequence[bytes]
    ) -> Self:
        """The run of some for which :func:`belong` holds."""
        return cls(
            lsns,
            [add.session for add, _ in pairs],
            [add.serial for add, _ in pairs],
            [add.partition for add, _ in pairs],
            [add.count for add, _ in pairs],
            [commit.placements[0].base_offset for _, commit in pairs],
            [commit.at for _, commit in pairs],
            seen,
            frames,
            pairs.__getitem__,
        )


class Stretch:
    """Adds and commits as they come, as far as they are usual: ``pairs`` in the order of the commits.

    ``adds`` have no commit yet; commits may be those of adds that waited before, which is what ``waited`` were.
    ``lsns`` are those of the commits; the records begin at ``lsn``.
    """

    __slots__ = ("_latest", "_lsn", "_waiting", "adds", "frames", "lsns", "pairs", "seen", "waited")

    def __init__(self, waiting: Mapping[TransactionNumber, Waiting], lsn: int) -> None:
        self._waiting = waiting
        self._lsn = lsn
        self._latest: dict[int, int] = {}
        self.lsns: list[int] = []
        self.adds: dict[tuple[int, int], int] = {}
        self.waited: list[TransactionNumber] = []
        self.pairs: list[Pair] = []
        self.seen: list[int] = []
        self.frames: list[bytes] = []

    def take(self, records: Sequence[AnyRecord], data: Sequence[bytes], number: int) -> int:
        """Go on from that number of the records; return the number of the first that is not usual."""
        adds, waiting, latest = self.adds, self._waiting, self._latest
        end = len(records)
        while number < end:
            each = records[number]
            if type(each) is TransactionAdded:
                session, seen = each.session, each.seen
                key = session, each.serial
                if key in adds:
                    break
                adds[key] = number
                if seen > latest.get(session, 0):
                    latest[session] = seen
            elif type(each) is TransactionCommitted:
                session, seen = each.session, each.seen
                key = session, each.serial
                place = adds.get(key)
                if place is not None:
                    add, frames = cast(TransactionAdded, records[place]), data[place]
                elif key in waiting:
                    _, add, frames = waiting[TransactionNumber(*key)]
                else:
                    break
                if not belong(add, each):
                    break
                if place is None:
                    self.waited.append(TransactionNumber(*key))
                else:
                    del adds[key]
                latest[session] = seen = max(latest.get(session, 0), seen)
                self.lsns.append(self._lsn + number)
                self.pairs.append((add, each))
                self.seen.append(seen)
                self.frames.append(frames)
            else:
                break
            number += 1
        return self._before_prepare(records, number)

    def _before_prepare(self, records: Sequence[AnyRecord], number: int) -> int:
        """An add before a prepare is most likely what is prepared: it has no commit to wait for."""
        if number < len(records) and type(records[number]) is TransactionPrepared and self.adds:
            key, last = next(reversed(self.adds.items()))
            if last == number - 1:
                del self.adds[key]
                return last
        return number


def belong(add: TransactionAdded, commit: TransactionCommitted) -> bool:
    """Whether the commit says of the add what is true, and of nothing else."""
    placements = commit.placements
    return (
        len(placements) == 1
        and placements[0].partition == add.partition
        and placements[0].count == add.count
        and add.xid is None
    )

"""Commits that also begin their transactions, folded many at a time when the journal is replayed.

Their frames are stamped and go to the logs as those of sends do. The rest is done by the column: few outcomes are still
remembered a moment later, and only those are made.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from itertools import accumulate, compress, repeat
from operator import gt
from typing import Any

from journal.interfaces import ICommitFold, IFold
from journal.log.catalog import Catalog
from journal.log.message_store import MessageStore
from journal.records.outcome import Outcome
from journal.records.outcome_entry import pack_outcome
from journal.records.record import TransactionCommitted
from journal.recovery.record_batches import Commits
from journal.transaction_states import COMMITTED, TransactionNumber
from journal.transactions.table import TransactionTable


class CommittedRuns:
    """Folds runs into the table of transactions and the archive, as the table itself would one by one.

    ``after_commit`` are the other folds that handle a commit.
    """

    def __init__(self, table: TransactionTable, catalog: Catalog, after_commit: Sequence[IFold]) -> None:
        self._table = table
        self._archive = table.archive
        self._catalog = catalog
        self._commit_folds: list[Any] = [fold for fold in after_commit if ICommitFold.providedBy(fold)]
        self._possible = len(self._commit_folds) == len(after_commit)

    def take(self, lsn: int, run: Commits) -> bool:
        """Fold all but the frames of a run from ``lsn`` on; return False, with nothing changed, if it is unusual."""
        sessions, serials = run.sessions, run.serials
        if not self._possible or not self._are_new(sessions, serials):
            return False
        seen = self._seen_through(sessions, serials, run.seen)
        if seen is None:
            return False
        outcomes, wall = self._table.outcomes, self._catalog.wall_offset
        for session, through in seen.items():
            outcomes.prune(session, through)
        for place in _unseen(sessions, serials, seen):
            outcomes.remember_new(_outcome(run.record(place), len(run.frames[place]), wall))
        if self._archive.on:
            self._archive_all(lsn, run)
        return True

    def _are_new(self, sessions: Sequence[int], serials: Sequence[int]) -> bool:
        """Return whether each number occurs once, and is unknown to the table and to the folds."""
        known = [self._table.live.keys(), *(fold.concerned() for fold in self._commit_folds)]
        if not any(known) and sessions.count(sessions[0]) == len(sessions):
            return len(set(serials)) == len(serials)  # 0.1 µs less
        numbers = set(zip(sessions, serials, strict=True))
        return len(numbers) == len(serials) and all(each.isdisjoint(numbers) for each in known)

    def _seen_through(
        self, sessions: Sequence[int], serials: Sequence[int], seen: Sequence[int]
    ) -> dict[int, int] | None:
        """Return what clients have seen after all of these; None if one had been seen before it was decided."""
        forgotten = self._table.outcomes.forgotten_through
        if sessions.count(sessions[0]) == len(sessions):  # 0.1 µs less
            through = list(accumulate(seen, max, initial=forgotten.get(sessions[0], 0)))[1:]
            return {sessions[0]: through[-1]} if all(map(gt, serials, through)) else None
        latest: dict[int, int] = {}
        for session, serial, now in zip(sessions, serials, seen, strict=True):
            latest[session] = told = max(latest.get(session) or forgotten.get(session, 0), now)
            if serial <= told:
                return None
        return latest

    def _archive_all(self, lsn: int, run: Commits) -> None:
        """Queue an archive entry for each, made when it is wanted, because stores or the clock's offset may
        differ then.
        """
        stores = self._catalog.stores
        logs = {partition: stores[partition] for partition in set(run.partitions)}
        later: Callable[[int], bytes] = partial(_entry, lsn, run, logs, self._catalog.wall_offset)
        count = len(run.frames)
        self._archive.note_all(count, map(partial, repeat(later), range(count)))


def _outcome(record: TransactionCommitted, size: int, wall: int) -> Outcome:
    """Return the outcome that the table would make; ``wall`` turns journal time into times of the wall clock."""
    at, [placement] = record.at + wall, record.placements
    return Outcome(
        TransactionNumber(record.session, record.serial), COMMITTED, record.cause, record.at, record.xid, record.by,
        record.why, record.placements, owner=record.owner, messages=placement.count, bytes=size, wall=at, began=at,
        checksum=record.checksum,
    )  # fmt: skip


def _entry(lsn: int, run: Commits, logs: Mapping[int, MessageStore], wall: int, place: int) -> bytes:
    """Return the archive's entry of one, as the archive itself would make it."""
    record, size = run.record(place), len(run.frames[place])
    [placement], log, checksum = record.placements, logs[run.partitions[place]], record.checksum
    part = log.topic, log.index, log.number, placement.base_offset, placement.count, size, checksum
    return pack_outcome(lsn + place, _outcome(record, size, wall), 0, checksum, [part])


def _unseen(sessions: Sequence[int], serials: Sequence[int], seen: Mapping[int, int]) -> list[int]:
    """Return those of them that are remembered."""
    if len(seen) == 1:
        [through] = seen.values()
        return list(compress(range(len(serials)), map(gt, serials, repeat(through))))
    return [place for place, session in enumerate(sessions) if serials[place] > seen[session]]

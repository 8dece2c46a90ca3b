"""Frames of undecided transactions: those of a damaged staged file are looked for in the journal, entry by entry."""

from __future__ import annotations

from dataclasses import dataclass, field

from journal import filenames
from journal.errors import InvalidFrame
from journal.inspect.findings import second_crc32c
from journal.inspect.journal_walk import read_some
from journal.inspect.run_check import messages_of
from journal.interfaces import IFilesystem
from journal.repair.followed import Finder
from journal.repair.pieces import Change, Piece, Slice
from journal.staging import Entry
from journal.transaction_state import TransactionRow


@dataclass(slots=True)
class StagedPlan:
    """Staged files to be written again, and the transactions of which frames are lost for good."""

    changes: list[Change] = field(default_factory=list)
    hopeless: list[TransactionRow] = field(default_factory=list)


def plan_staged(
    filesystem: IFilesystem,
    rows: list[TransactionRow],
    damaged: set[str],
    gaps: list[tuple[int, int]],
    finder: Finder,
) -> StagedPlan:
    """``gaps`` are LSNs (inclusive) that the kept journal lacks, ``finder`` has followed all that is readable."""
    plan = StagedPlan()
    for row in rows:
        path = filenames.staged_file(row.number.session, row.number.serial)
        if _misses(row, gaps):
            plan.hopeless.append(row)
        elif path in damaged:
            pieces = _pieces(filesystem, path, row, finder)
            if pieces is None:
                plan.hopeless.append(row)
            else:
                plan.changes.append(Change(path, pieces, "its frames are still in the journal"))
    return plan


def _misses(row: TransactionRow, gaps: list[tuple[int, int]]) -> bool:
    """Whether frames that only the journal has are in a gap of it."""
    return any(
        first <= entry.lsn <= last for entry in row.entries[row.file_entries :] for first, last in gaps
    )


def _pieces(filesystem: IFilesystem, path: str, row: TransactionRow, finder: Finder) -> list[Piece] | None:
    pieces: list[Piece] = []
    checksum = 0
    for entry in row.entries[: row.file_entries]:
        found = _sound(filesystem, path, entry, checksum, finder)
        if found is None:
            return None
        pieces.append(found)
        checksum = entry.checksum
    return pieces


def _sound(filesystem: IFilesystem, path: str, entry: Entry, before: int, finder: Finder) -> Slice | None:
    places = [Slice(path, entry.position, entry.size)] if filesystem.exists(path) else []
    if entry.lsn in finder.by_lsn:
        places.append(finder.by_lsn[entry.lsn])
    for place in places:
        data = read_some(filesystem, place.path, place.position, place.length)
        try:
            if second_crc32c(data, before) == entry.checksum and messages_of(data, None) == entry.count:
                return place
        except InvalidFrame:
            continue
    return None

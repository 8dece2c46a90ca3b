"""Plan the repair of staged files: frames of undecided transactions are looked for in the journal, record by record."""

from __future__ import annotations

from dataclasses import dataclass, field

from journal.errors import InvalidFrame
from journal.formats import filenames
from journal.formats.staged_header import (
    STAGED_HEADER_BYTES,
    StagedHeader,
    pack_staged_header,
    unpack_staged_header,
)
from journal.interfaces import IFilesystem
from journal.repair.evidence import Finder
from journal.repair.file_pieces import Change, Piece, Slice
from journal.transactions.staging import Entry
from journal.transactions.state import TransactionRow
from journal.vfs.file_window import read_some
from journal.walks.findings import second_crc32c
from journal.walks.frame_walk import messages_of


@dataclass(slots=True)
class StagedPlan:
    """The plan: staged files to be written again, and the transactions whose frames are lost for good."""

    changes: list[Change] = field(default_factory=list)
    hopeless: list[TransactionRow] = field(default_factory=list)


def plan_staged(
    filesystem: IFilesystem,
    rows: list[TransactionRow],
    damaged: set[str],
    gaps: list[tuple[int, int]],
    finder: Finder,
) -> StagedPlan:
    """Plan the staged files; the kept journal lacks ``gaps`` (LSNs, inclusive), ``finder`` followed all
    readable records.
    """
    plan = StagedPlan()
    sources: dict[StagedHeader, str] | None = None
    for row in rows:
        path = filenames.staged_file(row.number.session, row.number.serial)
        if _misses(row, gaps):
            plan.hopeless.append(row)
        elif path in damaged:
            sources = _by_header(filesystem) if sources is None else sources
            header = StagedHeader(row.number, row.salt)
            pieces = _pieces(filesystem, [path, sources.get(header, path)], row, finder)
            if pieces is None:
                plan.hopeless.append(row)
            else:
                moved = header in sources and sources[header] != path
                why = f"it is found as {sources[header]}" if moved else "its frames are still in the journal"
                plan.changes.append(Change(path, [pack_staged_header(header), *pieces], why))
    return plan


def _misses(row: TransactionRow, gaps: list[tuple[int, int]]) -> bool:
    """Return whether frames that only the journal has are in one of its gaps."""
    return any(
        first <= entry.lsn <= last for entry in row.entries[row.file_entries :] for first, last in gaps
    )


def _by_header(filesystem: IFilesystem) -> dict[StagedHeader, str]:
    """Return the staged files by their headers, whatever their names."""
    found: dict[StagedHeader, str] = {}
    for name in filesystem.list_directory(filenames.STAGED_DIRECTORY):
        path = f"{filenames.STAGED_DIRECTORY}/{name}"
        header = unpack_staged_header(read_some(filesystem, path, 0, STAGED_HEADER_BYTES), second_crc32c)
        if header is not None:
            found[header] = path
    return found


def _pieces(
    filesystem: IFilesystem, paths: list[str], row: TransactionRow, finder: Finder
) -> list[Piece] | None:
    pieces: list[Piece] = []
    checksum = 0
    for entry in row.entries[: row.file_entries]:
        found = _sound(filesystem, paths, entry, checksum, finder)
        if found is None:
            return None
        pieces.append(found)
        checksum = entry.checksum
    return pieces


def _sound(
    filesystem: IFilesystem, paths: list[str], entry: Entry, before: int, finder: Finder
) -> Slice | None:
    places = [Slice(path, entry.position, entry.size) for path in paths if filesystem.exists(path)]
    if (entry.lsn, entry.start) in finder.staged:
        places.append(finder.staged[entry.lsn, entry.start])
    for place in places:
        data = read_some(filesystem, place.path, place.position, place.length)
        try:
            if second_crc32c(data, before) == entry.checksum and messages_of(data, None) == entry.count:
                return place
        except InvalidFrame:
            continue
    return None

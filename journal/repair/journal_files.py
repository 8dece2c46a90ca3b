"""Plan the journal files that give exactly the kept runs: a file that does so already stays, others are written anew.

A record is copied byte for byte, under its own LSN and salt, so its checksum still proves where it belongs. Only file
headers, and group headers of groups that lost records, are written anew.
"""

from __future__ import annotations

import secrets
from dataclasses import dataclass, field

from crc32c import crc32c

from journal.constants import START_STRIDE
from journal.formats import filenames
from journal.interfaces import IFilesystem
from journal.records.journal_headers import (
    FIRST_GROUP,
    GROUP_HEADER_BYTES,
    FileHeader,
    blocks,
    pack_file_header,
    pack_group_header,
)
from journal.repair.file_pieces import Change, Piece, Slice
from journal.repair.journal_choice import Choice
from journal.repair.journal_runs import Run, SoundFile
from journal.vfs.file_window import window
from journal.wal.reader import FileReader, Group, journal_files

SKIPPED_STARTS = 1024
"""How many start numbers are skipped when records were lost: the starts they belonged to must not be numbered again."""


@dataclass(slots=True)
class NewJournal:
    """The planned journal: ``changes`` make it what was chosen; its newest file then has LSN ``newest`` first, and
    ``salt``.
    """

    changes: list[Change] = field(default_factory=list)
    newest: int = 0
    salt: int = 0


def plan_journal(
    filesystem: IFilesystem, files: list[SoundFile], choice: Choice, needed: int, start: int
) -> NewJournal:
    """Plan what is to be written and removed. ``start`` is the highest start number known from other files."""
    new = NewJournal()
    stay: set[str] = set()
    previous: tuple[int, int] | None = None
    for run in choice.kept:
        end = min(run.end, choice.end)
        if previous is None:
            before = (run.header.previous_first, min(run.header.previous_end, needed))
        else:
            before = previous
        header = run.header._replace(
            first_lsn=run.first_lsn, previous_first=before[0], previous_end=before[1]
        )
        path = filenames.journal_file(run.first_lsn)
        if path == run.path and _is_as_wanted(files, run, header, end):
            stay.add(path)
        else:
            why = "the records that are kept of it, under a header that says so"
            new.changes.append(Change(path, _pieces(filesystem, run, header, end), why))
        previous = (run.first_lsn, end)
        new.salt = header.salt
    if choice.cut:
        first = _beyond_all(files, choice)
        highest = max([start, *(file.header.start for file in files)])
        before = previous or (0, needed)
        header = FileHeader(
            first, highest + SKIPPED_STARTS, secrets.randbits(32), before[0], before[1], FIRST_GROUP
        )
        why = "begins anew, far above every LSN that was lost"
        new.changes.append(Change(filenames.journal_file(first), [pack_file_header(header)], why))
        previous = (first, first)
        new.salt = header.salt
    new.newest = previous[0] if previous is not None else 0
    new.changes += _removals(filesystem, files, choice, new, stay)
    return new


def _is_as_wanted(files: list[SoundFile], run: Run, header: FileHeader, end: int) -> bool:
    file = next(file for file in files if file.path == run.path)
    return (
        file.is_named_right
        and not file.is_rebuilt
        and not file.end_is_damaged
        and len(file.runs) == 1
        and header == file.header
        and end == run.end
        and all(each.is_whole for each in run.groups)
    )


def _beyond_all(files: list[SoundFile], choice: Choice) -> int:
    highest = max([choice.end, *(run.end for file in files for run in file.runs)])
    return (highest // START_STRIDE + SKIPPED_STARTS) * START_STRIDE


def _pieces(filesystem: IFilesystem, run: Run, header: FileHeader, end: int) -> list[Piece]:
    groups: list[Piece] = []
    size = FIRST_GROUP
    for each in run.groups:
        group = each._replace(sound=min(each.sound, end - each.header.first_lsn))
        if group.sound <= 0:
            break
        if group.is_whole:
            length = GROUP_HEADER_BYTES + group.header.length
            groups.append(Slice(run.path, group.position, length))
        else:
            packed = _shortened(filesystem, run, group)
            length = len(packed)
            groups.append(packed)
        groups.append(bytes(blocks(length) - length))
        size += blocks(length)
    return [pack_file_header(header._replace(size=size)), *groups]


def _shortened(filesystem: IFilesystem, run: Run, group: Group) -> bytes:
    """Return a group that holds only its sound records."""
    start, salt = group.position + GROUP_HEADER_BYTES, run.header.salt
    with window(filesystem, run.path) as bytes_of:
        *_, last = FileReader(bytes_of, run.path, run.header).records(group)
        body = bytes_of.at(start, last.position + last.length - start)
        _, _, first, forced, _ = group.header
        return pack_group_header(len(body), group.sound, first, forced, crc32c(body), salt) + body


def _removals(
    filesystem: IFilesystem, files: list[SoundFile], choice: Choice, new: NewJournal, stay: set[str]
) -> list[Change]:
    """Return the removals of unwanted files that no new file replaces; files that no start needs are left alone."""
    replaced = {change.path for change in new.changes}
    chosen = {run.path for run in [*choice.kept, *choice.lost]}
    known = {file.path for file in files}
    return [
        Change(path, None, "its records are lost, kept elsewhere, or cannot be read")
        for path in journal_files(filesystem)
        if path not in stay and path not in replaced and (path in chosen or path not in known)
    ]

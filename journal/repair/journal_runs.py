"""Find what of the journal is still sound: runs of records without a gap, wherever they lie."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from itertools import pairwise

from journal.constants import START_STRIDE
from journal.errors import Irreparable
from journal.formats import filenames
from journal.interfaces import IFilesystem
from journal.records.journal_headers import FIRST_GROUP, FileHeader
from journal.repair.salt_search import find_salt
from journal.vfs.file_window import window
from journal.wal.reader import Damage, FileReader, Group, JournalEntry, journal_files
from journal.walks.journal_walk import survey_any


@dataclass(slots=True)
class Run:
    """Groups with consecutive LSNs in one file, from ``first_lsn`` to below ``end``.

    ``begins`` says that they are the first groups of their file, so that the file's header says what comes before them.
    """

    path: str
    header: FileHeader
    first_lsn: int
    end: int
    groups: list[Group] = field(default_factory=list)
    begins: bool = False


@dataclass(slots=True)
class SoundFile:
    """A journal file: its runs, and whether the file as a whole is intact and in its place."""

    path: str
    header: FileHeader
    runs: list[Run]
    is_named_right: bool
    is_rebuilt: bool
    """Whether its header was lost, and this one was found again from its records."""
    end_is_damaged: bool
    """Whether its last run ends in damage that a crash cannot have caused."""


def sound_files(filesystem: IFilesystem, damage: list[str]) -> list[SoundFile]:
    """Return every journal file with a sound run, by first LSN; findings about the others are added to ``damage``."""
    found: dict[int, SoundFile] = {}
    paths = journal_files(filesystem)
    for path in paths:
        file = _sound_file(filesystem, path, path == paths[-1], damage)
        if file is None:
            continue
        known = found.get(file.header.first_lsn)
        if known is None or (file.is_named_right and not known.is_named_right):
            found[file.header.first_lsn] = file
    ordered = [found[lsn] for lsn in sorted(found)]
    for number, file in enumerate(ordered):
        if file.is_rebuilt:
            ordered[number] = _placed(ordered, number)
    for file, following in pairwise(ordered):
        if following.header.previous_first == file.header.first_lsn and not following.is_rebuilt:
            _clip(file, following.header.previous_end)
    return ordered


def _clip(file: SoundFile, end: int) -> None:
    """Drop the records that the next file's header says no start accepted: the trace of a crash."""
    for run in file.runs:
        run.groups = [
            each._replace(sound=min(each.sound, end - each.header.first_lsn))
            for each in run.groups
            if each.header.first_lsn < end
        ]
        run.end = min(run.end, max(end, run.first_lsn))
    file.runs[1:] = [run for run in file.runs[1:] if run.groups]


def _sound_file(filesystem: IFilesystem, path: str, newest: bool, damage: list[str]) -> SoundFile | None:
    named = filenames.parse_journal_file(path.rpartition("/")[2])
    assert named is not None
    header, rebuilt = survey_any(filesystem, path).header, False
    with window(filesystem, path) as bytes_of:
        if header is None:
            salt = find_salt(bytes_of, named, path)
            if salt is None:
                damage.append(f"{path}: both copies of its header are damaged, and no group in it is sound")
                return None
            damage.append(f"{path}: both copies of its header are damaged; it is known from its records")
            header, rebuilt = FileHeader(named, 0, salt, 0, named, FIRST_GROUP), True
        elif header.first_lsn != named:
            damage.append(f"{path} is the journal file of LSN {header.first_lsn} under the name of another")
        groups: list[Group] = []
        damaged = bytes_of.size < header.size
        for each in FileReader(bytes_of, path, header).groups(beyond=True):
            if isinstance(each, Group):
                groups += [each] if each.sound else []
                continue
            damaged = damaged or each.header_is_damaged
            if newest and not (each.proof or each.header_is_damaged):
                break  # what lies behind was never believed
        return SoundFile(
            path, header, _runs(path, header, groups), header.first_lsn == named, rebuilt, damaged
        )


def _runs(path: str, header: FileHeader, groups: list[Group]) -> list[Run]:
    runs: list[Run] = []
    for each in groups:
        first = each.header.first_lsn
        if not runs or runs[-1].end != first or not runs[-1].groups[-1].is_whole:
            runs.append(Run(path, header, first, first, begins=first == header.first_lsn))
        runs[-1].groups.append(each)
        runs[-1].end = each.next_lsn
    if not runs:
        runs.append(Run(path, header, header.first_lsn, header.first_lsn, begins=True))
    return runs


def _placed(files: list[SoundFile], number: int) -> SoundFile:
    """Return a file whose header was lost, with what the files before and after it say about it."""
    file, before = files[number], files[number - 1] if number else None
    header = file.header
    if before is not None and before.header.salt == header.salt:
        start, end = before.header.start, header.first_lsn
    else:
        start = max(header.first_lsn // START_STRIDE, before.header.start + 1 if before is not None else 0)
        end = before.runs[-1].end if before is not None else header.first_lsn
    header = header._replace(
        start=start, previous_first=before.header.first_lsn if before is not None else 0, previous_end=end
    )
    return replace(file, header=header, runs=[replace(run, header=header) for run in file.runs])


def entries(filesystem: IFilesystem, run: Run, from_lsn: int = 0) -> Iterator[JournalEntry]:
    """Yield the records of a run from ``from_lsn`` on; raises :class:`Irreparable` for a record of an unknown kind."""
    with window(filesystem, run.path) as bytes_of:
        reader = FileReader(bytes_of, run.path, run.header)
        for group in run.groups:
            if group.next_lsn <= from_lsn:
                continue
            for each in reader.told(group, from_lsn):
                if isinstance(each, Damage):
                    raise Irreparable(
                        f"{run.path}: {each.problem}. Its checksum holds: what it decided is there, and a repair "
                        "would lose it. Nothing was changed. Open the directory with the program that wrote it, or "
                        "restore it from a copy",
                        run.path,
                        each.position,
                    )
                yield each

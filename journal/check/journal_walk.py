"""The journal's files as they lie there: their headers, the chain they make, their records one after the other."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

from journal.check.findings import NOBODY, Affected, Finding, second_crc32c, unreadable
from journal.constants import BLOCK, START_STRIDE
from journal.errors import CorruptJournal
from journal.formats import filenames, record
from journal.formats.journal_headers import (
    FILE_MAGIC,
    FIRST_GROUP,
    GROUP_HEADER_BYTES,
    FileHeader,
    FileScan,
    Group,
    header_copies,
    unpack_file_header,
    unpack_group_header,
)
from journal.formats.record import AnyRecord
from journal.interfaces import IFilesystem
from journal.vfs.file_window import FileWindow, file_size, read_some, window


class JournalEntry(NamedTuple):
    """A record of the journal and where it lies; ``data`` are its frames.

    ``beyond`` says that it was found behind damage, where no start would look for it.
    """

    path: str
    position: int
    lsn: int
    record: AnyRecord
    data: memoryview
    beyond: bool = False
    length: int = 0


@dataclass(frozen=True, slots=True)
class JournalFile:
    """A journal file by its name, and what its header says; None if neither copy of it is sound."""

    path: str
    lsn: int
    header: FileHeader | None
    problem: str = ""
    unreadable: bool = False


def journal_files(filesystem: IFilesystem) -> list[str]:
    """Paths of the journal files, oldest first."""
    if not filesystem.exists(filenames.JOURNAL_DIRECTORY):
        return []
    names = filesystem.list_directory(filenames.JOURNAL_DIRECTORY)
    lsns = sorted(lsn for name in names if (lsn := filenames.parse_journal_file(name)) is not None)
    return [filenames.journal_file(lsn) for lsn in lsns]


def surveyed(filesystem: IFilesystem) -> list[JournalFile]:
    """The journal files with their headers, oldest first. One under another's name has no header here."""
    return [survey(filesystem, path) for path in journal_files(filesystem)]


def survey(filesystem: IFilesystem, path: str) -> JournalFile:
    """One journal file with its header."""
    file = survey_any(filesystem, path)
    lsn = filenames.parse_journal_file(path.rpartition("/")[2])
    assert lsn is not None, path
    if file.header is not None and file.lsn != lsn:
        problem = f"its header says that its first LSN is {file.lsn}: it is another file under this name"
        return JournalFile(path, lsn, None, problem)
    return JournalFile(path, lsn, file.header, file.problem, file.unreadable)


def survey_any(filesystem: IFilesystem, path: str) -> JournalFile:
    """A journal file under whatever name; ``lsn`` is what its header says, 0 without a sound one."""
    try:
        data = read_some(filesystem, path, 0, FIRST_GROUP)
        header = unpack_file_header(data, path, second_crc32c)
    except CorruptJournal:
        return JournalFile(path, 0, None, _no_header(data))
    except OSError as error:
        return JournalFile(path, 0, None, unreadable(path, error).problem, True)
    return JournalFile(path, header.first_lsn, header)


def _no_header(data: bytes) -> str:
    """Why a file has no header that could be read."""
    versions = {copy[-1] for copy in (data[: len(FILE_MAGIC)], data[BLOCK : BLOCK + len(FILE_MAGIC)])
                if copy[:-1] == FILE_MAGIC[:-1] and copy != FILE_MAGIC}  # fmt: skip
    if len(versions) == 1:
        return f"it is of format version {versions.pop()}, which is not known here: its records cannot be checked"
    return "both copies of its header are damaged: its records cannot be checked"


def chain_findings(files: list[JournalFile], needed_from: int) -> Iterator[Finding]:
    """What is wrong with the files as a chain; what ``needed_from`` does not need is harmless.

    A start reads back from the newest file to the one that holds ``needed_from``; see docs/recovery.md. Of the files
    before that one some may be gone already, so there the chain may have gaps.
    """
    following: JournalFile | None = None
    needed = True
    for file in reversed(files):
        if file.header is None:
            yield _header_finding(file, following, not needed)
        elif needed and following is not None and following.header is not None:
            yield from _link_findings(file, file.header, following, following.header)
        if file.header is not None and file.header.previous_end <= needed_from:
            needed = False
        following = file
    if needed and files and following is not None:
        end = following.header.previous_end if following.header is not None else following.lsn
        yield Finding(
            following.path,
            0,
            f"the journal begins here, at LSN {following.lsn}, but records from LSN {needed_from} on are needed",
            affects=Affected(first_lsn=needed_from, last_lsn=max(needed_from, end - 1)),
        )


def _header_finding(file: JournalFile, following: JournalFile | None, harmless: bool) -> Finding:
    end = following.header.previous_end if following is not None and following.header is not None else None
    if end is not None and end <= file.lsn:
        lsns = NOBODY  # it was begun and never written to
    else:
        lsns = Affected(first_lsn=file.lsn, last_lsn=None if end is None else end - 1)
    problem = file.problem + (NOT_NEEDED if harmless else "")
    return Finding(file.path, 0, problem, harmless, lsns, unreadable=file.unreadable and not harmless)


def header_findings(filesystem: IFilesystem, files: list[JournalFile]) -> Iterator[Finding]:
    """Damage of headers, and of lengths, that the other copy, or the records, make good."""
    for file in files:
        if file.header is None:
            continue
        data = read_some(filesystem, file.path, 0, FIRST_GROUP)
        for number, copy in enumerate(header_copies(data, second_crc32c)):
            if copy != file.header:
                problem = f"copy {number} of its header is damaged; the other one is used"
                yield Finding(file.path, number * BLOCK, problem, True)
        size = file_size(filesystem, file.path)
        if size < file.header.size:
            yield Finding(file.path, size, f"it had {file.header.size} bytes when it was begun", True)


NOT_NEEDED = "; nothing needs this file any more"


def _link_findings(
    file: JournalFile, header: FileHeader, following: JournalFile, after: FileHeader
) -> Iterator[Finding]:
    path = following.path
    if after.previous_first != header.first_lsn:
        first = after.previous_first
        problem = f"the file is missing: it lay between {file.path} and {path}"
        lost = Affected(first_lsn=first, last_lsn=max(first, after.previous_end - 1))
        yield Finding(filenames.journal_file(first), 0, problem, affects=lost)
    elif after.start == header.start and (after.first_lsn < after.previous_end or after.salt != header.salt):
        yield Finding(path, 0, f"it does not continue {file.path}, which is of the same start")
    elif leaves_out(header, after):
        missing = Affected(first_lsn=after.previous_end, last_lsn=after.first_lsn - 1)
        yield Finding(path, 0, "a repair has left out what lay before it", True, missing)
    elif after.start != header.start and (after.start < header.start or after.first_lsn % START_STRIDE):
        problem = f"start {after.start} at LSN {after.first_lsn} cannot follow start {header.start}"
        yield Finding(path, 0, problem)


def leaves_out(header: FileHeader, after: FileHeader) -> bool:
    """Whether records are missing between two files that follow each other, as only a repair leaves them.

    A file continues the one before it, or is the first of the next start, at the next stride.
    """
    if after.start == header.start:
        return after.first_lsn > after.previous_end
    return after.start > header.start + 1


def walk_journal(
    filesystem: IFilesystem, from_lsn: int = 0, beyond: bool = False
) -> Iterator[JournalEntry | Finding]:
    """Every record from ``from_lsn`` on, in order, and what is wrong in between.

    A file's records end at the first unsound group; whether that is torn or corrupt is said by the finding. With
    ``beyond`` the groups behind it that are sound again follow, and their entries say so.
    """
    files = surveyed(filesystem)
    for number, file in enumerate(files):
        following = files[number + 1].header if number + 1 < len(files) else None
        if file.header is None:
            yield Finding(file.path, 0, file.problem, affects=Affected(first_lsn=file.lsn))
            continue
        yield from walk_file(filesystem, file.path, file.header, following, from_lsn, beyond)


def walk_file(
    filesystem: IFilesystem,
    path: str,
    header: FileHeader,
    following: FileHeader | None = None,
    from_lsn: int = 0,
    beyond: bool = False,
) -> Iterator[JournalEntry | Finding]:
    """The records of one file; ``following`` is the header of the next one, which says how far this one goes.

    The whole file is held in memory meanwhile.
    """
    end = None
    if following is not None and following.previous_first == header.first_lsn:
        end = following.previous_end
    with window(filesystem, path) as bytes_of:
        scan = FileScan(bytes_of, path, header, end)
        for group in scan.located:
            whole = group in scan.groups[-1:] or scan.partial == 0 or group is not scan.located[-1]
            count = group.header.records if whole else scan.partial
            if whole and not _agrees_on_group(bytes_of, group, header.salt):
                yield Finding(
                    path, group.position, "the two implementations disagree on the group's checksum"
                )
            if group.header.first_lsn + count > from_lsn:
                last = (
                    group.header.first_lsn + count
                    if end is None
                    else min(group.header.first_lsn + count, end)
                )
                yield from walk_group(bytes_of, path, header.salt, group, from_lsn, last)
        finding = judge_end(path, scan, end)
        if finding is not None:
            yield finding
            if beyond:
                yield from _walk_beyond(bytes_of, path, header, scan, from_lsn)


def _agrees_on_group(bytes_of: FileWindow, group: Group, salt: int) -> bool:
    header = unpack_group_header(bytes_of.at(group.position, GROUP_HEADER_BYTES), 0, salt, second_crc32c)
    body = bytes_of.at(group.position + GROUP_HEADER_BYTES, group.header.length)
    return header == group.header and second_crc32c(body) == header.body_crc


def walk_group(
    bytes_of: FileWindow, path: str, salt: int, group: Group, from_lsn: int, end: int, beyond: bool = False
) -> Iterator[JournalEntry | Finding]:
    """The records of a group from ``from_lsn`` to below ``end``, up to the first that is not sound."""
    start, position = group.position + GROUP_HEADER_BYTES, 0
    body = bytes_of.at(start, group.header.length)
    for lsn in range(group.header.first_lsn, end):
        seed = record.seed(salt, lsn)
        try:
            unpacked = record.unpack(body, position, seed, path, start)
        except CorruptJournal as error:
            lost = Affected(first_lsn=lsn, last_lsn=end - 1)
            yield Finding(path, start + position, str(error).removeprefix(f"{path}: "), affects=lost)
            return
        if lsn >= from_lsn:
            at = start + position
            if not _agrees(body, position, unpacked.length, seed):
                problem = f"the two implementations disagree on the checksum of LSN {lsn}"
                yield Finding(path, at, problem, affects=Affected(first_lsn=lsn, last_lsn=lsn))
            yield JournalEntry(path, at, lsn, unpacked.record, unpacked.data, beyond, unpacked.length)
        position += unpacked.length


def _agrees(body: memoryview, position: int, length: int, seed: int) -> bool:
    _, crc, _ = record.HEADER.unpack_from(body, position)
    return bool(second_crc32c(body[position + record.CRC_END : position + length], seed) == crc)


def judge_end(path: str, scan: FileScan, end: int | None) -> Finding | None:
    """What ends a file: nothing special, a tear, or damage below what is known to have been forced."""
    problem = scan.problem.removeprefix(f"{path}: ")
    lost = Affected(first_lsn=scan.next_lsn, last_lsn=None if end is None else end - 1)
    if end is not None and scan.next_lsn < end:
        return Finding(
            path,
            scan.stop,
            f"{problem}, but the next file says that it goes on to LSN {end - 1}",
            affects=lost,
        )
    if end is None and (proof := scan.proof_beyond()) is not None:
        return Finding(
            path,
            scan.stop,
            f"{problem}, but the group at {proof} proves that it had been forced",
            affects=lost,
        )
    if end is None and scan.is_torn:
        return Finding(path, scan.stop, f"torn, never acknowledged: {problem}", harmless=True)
    return None


def groups_beyond(bytes_of: FileWindow, header: FileHeader, scan: FileScan) -> Iterator[Group]:
    """Groups of this start behind the damage that ends a scan, oldest first; their bodies are not checked."""
    position, above = scan.stop + BLOCK, scan.next_lsn
    while position + GROUP_HEADER_BYTES <= bytes_of.size:
        found = unpack_group_header(bytes_of.at(position, GROUP_HEADER_BYTES), 0, header.salt)
        if found is None or found.first_lsn < above:
            position += BLOCK
            continue
        group = Group(position, found)
        yield group
        position, above = group.end, group.next_lsn


def _walk_beyond(
    bytes_of: FileWindow, path: str, header: FileHeader, scan: FileScan, from_lsn: int
) -> Iterator[JournalEntry | Finding]:
    for group in groups_beyond(bytes_of, header, scan):
        yield from walk_group(bytes_of, path, header.salt, group, from_lsn, group.next_lsn, beyond=True)

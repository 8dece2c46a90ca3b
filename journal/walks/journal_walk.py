"""A walk over the journal's files: the chain that they form, their records, and the damage in between."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

from journal.constants import BLOCK, RESTORED_STARTS, START_STRIDE
from journal.errors import CorruptJournal
from journal.formats import filenames
from journal.interfaces import IFilesystem
from journal.records.journal_headers import FILE_MAGIC, FIRST_GROUP, FileHeader
from journal.vfs.file_window import read_some, window
from journal.wal.reader import Damage, FileEnd, FileReader, JournalEntry, file_start, journal_files
from journal.walks.findings import NOBODY, Affected, BothChecksums, Finding, second_crc32c, unreadable


@dataclass(frozen=True, slots=True)
class JournalFile:
    """A journal file by its name, and its header; None if neither copy of it is sound.

    ``damaged`` are the copies that are not used, ``size`` is in bytes.
    """

    path: str
    lsn: int
    header: FileHeader | None
    problem: str = ""
    unreadable: bool = False
    damaged: tuple[int, ...] = ()
    size: int = 0


def surveyed(filesystem: IFilesystem) -> list[JournalFile]:
    """Return the journal files with their headers, oldest first. One under another's name has no header here."""
    return [survey(filesystem, path) for path in journal_files(filesystem)]


def survey(filesystem: IFilesystem, path: str) -> JournalFile:
    """Return one journal file with its header."""
    file = survey_any(filesystem, path)
    lsn = filenames.parse_journal_file(path.rpartition("/")[2])
    assert lsn is not None, path
    if file.header is None:
        return replace(file, lsn=lsn)
    if file.lsn != lsn:
        problem = f"its header says that its first LSN is {file.lsn}: it is another file under this name"
        return JournalFile(path, lsn, None, problem)
    return file


def survey_any(filesystem: IFilesystem, path: str) -> JournalFile:
    """Return a journal file of any name; ``lsn`` is its header's, 0 without a sound one."""
    try:
        header, damaged, size = file_start(filesystem, path, second_crc32c)
    except CorruptJournal:
        return JournalFile(path, 0, None, _no_header(read_some(filesystem, path, 0, FIRST_GROUP)))
    except OSError as error:
        return JournalFile(path, 0, None, unreadable(path, error).problem, True)
    return JournalFile(path, header.first_lsn, header, damaged=damaged, size=size)


def _no_header(data: bytes) -> str:
    """Return why a file has no readable header."""
    versions = {copy[-1] for copy in (data[: len(FILE_MAGIC)], data[BLOCK : BLOCK + len(FILE_MAGIC)])
                if copy[:-1] == FILE_MAGIC[:-1] and copy != FILE_MAGIC}  # fmt: skip
    if len(versions) == 1:
        return f"it is of format version {versions.pop()}, which is not known here: its records cannot be checked"
    return "both copies of its header are damaged: its records cannot be checked"


def chain_findings(files: list[JournalFile], needed_from: int) -> Iterator[Finding]:
    """Yield what is wrong with the files as a chain; damage that ``needed_from`` does not need is harmless.

    A start reads back from the newest file to the one that holds ``needed_from``; see docs/recovery.md. Some files
    before that one may be gone already, so there the chain may have gaps.
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


def header_findings(files: list[JournalFile]) -> Iterator[Finding]:
    """Yield damage of headers, and of lengths, that the other copy, or the records, repair."""
    for file in files:
        if file.header is None:
            continue
        for number in file.damaged:
            problem = f"copy {number} of its header is damaged; the other one is used"
            yield Finding(file.path, number * BLOCK, problem, True)
        if file.size < file.header.size:
            yield Finding(file.path, file.size, f"it had {file.header.size} bytes when it was begun", True)


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
    """Return whether records are missing between two consecutive files, as only a repair leaves them.

    A file continues the one before it, or is the first of the next start, at the next stride. A restore leaves out
    numbers of starts, and no records.
    """
    if after.start == header.start:
        return after.first_lsn > after.previous_end
    return after.start > header.start + 1 and after.start != header.start + 1 + RESTORED_STARTS


def walk_journal(
    filesystem: IFilesystem, from_lsn: int = 0, beyond: bool = False
) -> Iterator[JournalEntry | Finding]:
    """Yield every record from ``from_lsn`` on, in order, and the damage in between.

    A file's records end at the first unsound group; the finding says whether that is torn or corrupt. With ``beyond``
    the sound groups behind it follow, and their entries are marked.
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
    """Yield the records of one file; ``following`` is the header of the next one, which gives this one's end."""
    end = None
    if following is not None and following.previous_first == header.first_lsn:
        end = following.previous_end
    both = BothChecksums()
    with window(filesystem, path) as bytes_of:
        for each in FileReader(bytes_of, path, header, end, both).events(from_lsn, beyond):
            if both.differed:
                both.differed = False
                what = f"LSN {each.lsn}" if isinstance(each, JournalEntry) else "a group"
                yield Finding(
                    path, each.position, f"the two implementations disagree on the checksum of {what}"
                )
            if isinstance(each, JournalEntry):
                yield each
            elif isinstance(each, Damage):
                lost = Affected(first_lsn=each.lsn, last_lsn=each.last_lsn)
                yield Finding(path, each.position, each.problem, affects=lost)
            elif isinstance(each, FileEnd):
                finding = judge_end(path, each, end)
                if finding is None:
                    return
                yield finding


def judge_end(path: str, end: FileEnd, end_lsn: int | None) -> Finding | None:
    """Return the finding for a file's end: none, a tear, or damage below what is known to have been forced."""
    if end.proof:
        lost = Affected(first_lsn=end.next_lsn, last_lsn=None if end_lsn is None else end_lsn - 1)
        return Finding(path, end.position, f"{end.problem}, but {end.proof}", affects=lost)
    if end_lsn is None and end.is_torn:
        return Finding(path, end.position, f"torn, never acknowledged: {end.problem}", harmless=True)
    return None

"""The audit's own reader of the journal's files, independent of the one that brokers and verifications share.

A proof needs a second opinion: what :mod:`journal.wal.reader` misreads, a start and a verification misread alike. So
this module imports neither that one nor anything that stands on it: of the journal it knows the layouts of bytes
(:mod:`journal.formats`), and checks them with the second implementation of the checksum. A test keeps it so.
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from itertools import pairwise
from typing import NamedTuple

from journal.constants import BLOCK, RESTORED_STARTS
from journal.errors import CorruptJournal
from journal.formats import filenames
from journal.interfaces import IFilesystem
from journal.records import record
from journal.records.journal_headers import (
    FIRST_GROUP,
    GROUP_HEADER_BYTES,
    GROUP_MAGIC,
    FileHeader,
    blocks,
    unpack_file_header,
    unpack_group_header,
)
from journal.records.record import AnyRecord
from journal.vfs.file_window import FileWindow, read_some, window
from spark.audit.claims.checksums import second_crc32c

_MAGIC = GROUP_MAGIC.to_bytes(4, "big")


class JournalFile(NamedTuple):
    """A file of the journal, by its name, and its header; None if no copy of that can be believed."""

    path: str
    lsn: int
    header: FileHeader | None


class Decided(NamedTuple):
    """A record, where it lies, the frames that come with it, and the start that wrote it."""

    path: str
    position: int
    lsn: int
    record: AnyRecord
    data: memoryview
    start: int


def journal_files(filesystem: IFilesystem) -> list[JournalFile]:
    """Return the files of the journal, oldest first."""
    if not filesystem.exists(filenames.JOURNAL_DIRECTORY):
        return []
    names = filesystem.list_directory(filenames.JOURNAL_DIRECTORY)
    lsns = sorted(lsn for name in names if (lsn := filenames.parse_journal_file(name)) is not None)
    return [_file(filesystem, filenames.journal_file(lsn), lsn) for lsn in lsns]


def _file(filesystem: IFilesystem, path: str, lsn: int) -> JournalFile:
    try:
        header = unpack_file_header(read_some(filesystem, path, 0, FIRST_GROUP), path, second_crc32c)
    except FileNotFoundError:
        raise
    except (CorruptJournal, OSError):
        return JournalFile(path, lsn, None)
    return JournalFile(path, lsn, header if header.first_lsn == lsn else None)


def needed_files(files: Sequence[JournalFile], needed_from: int) -> list[JournalFile]:
    """Return the files that a start would read: from the newest that begins at or below that LSN on."""
    first = 0
    for number, file in enumerate(files):
        if file.header is not None and file.header.previous_end <= needed_from:
            first = number
    return list(files[first:])


def unbroken_from(files: Sequence[JournalFile]) -> int:
    """Return the LSN from which on no repair has left anything out; 0 without a journal."""
    found = files[0].lsn if files else 0
    for before, file in pairwise(files):
        if before.header is None or file.header is None or _left_out(before.header, file.header):
            found = file.lsn
    return found


def _left_out(before: FileHeader, header: FileHeader) -> bool:
    """Return whether only a repair leaves two files so: a start continues its own file, or is the next one, or the
    first one after a restore.
    """
    if header.start == before.start:
        return header.first_lsn > header.previous_end
    return header.start > before.start + 1 and header.start != before.start + 1 + RESTORED_STARTS


def records(
    filesystem: IFilesystem, file: JournalFile, following: JournalFile | None
) -> Generator[Decided | None]:
    """Yield the records of a file, and at last None if more of them had been forced: these are missing.

    ``following`` is the next file, whose header says how far this one goes.
    """
    header, after = file.header, following.header if following is not None else None
    if header is None:
        yield None
        return
    end = after.previous_end if after is not None and after.previous_first == header.first_lsn else None
    with window(filesystem, file.path) as bytes_of:
        lsn, position = header.first_lsn, FIRST_GROUP
        while end is None or lsn < end:
            group = _group(bytes_of, position, header.salt)
            if group is None or group[0] != lsn:
                break
            _, count, length, _ = group
            last = lsn + count if end is None else min(lsn + count, end)
            start, at = position + GROUP_HEADER_BYTES, 0
            try:
                body = bytes_of.at(start, length)
                while lsn < last:
                    seed = record.seed(header.salt, lsn)
                    each, data, size = record.unpack(body, at, seed, file.path, start, second_crc32c)
                    yield Decided(file.path, start + at, lsn, each, data, header.start)
                    lsn, at = lsn + 1, at + size
            except CorruptJournal:
                break
            position += blocks(GROUP_HEADER_BYTES + length)
        if lsn < end if end is not None else _was_forced(bytes_of, position, header.salt, lsn):
            yield None


def _group(bytes_of: FileWindow, position: int, salt: int) -> tuple[int, int, int, int] | None:
    """Return (first LSN, records, length, LSN forced before) of the group there; None without a sound header."""
    found = unpack_group_header(bytes_of.at(position, GROUP_HEADER_BYTES), 0, salt, second_crc32c)
    return (found.first_lsn, found.records, found.length, found.forced_lsn) if found is not None else None


def _was_forced(bytes_of: FileWindow, position: int, salt: int, lsn: int) -> bool:
    """Return whether a group behind the last sound record says that the next one had been forced."""
    for at in range(position, bytes_of.size, BLOCK):
        if bytes_of.at(at, len(_MAGIC)) == _MAGIC:
            group = _group(bytes_of, at, salt)
            if group is not None and group[0] >= lsn and group[3] >= lsn:
                return True
    return False

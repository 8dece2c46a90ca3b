"""The bytes of journal files that tests make or copy, read by the journal's one reader."""

from journal.records.journal_headers import FileHeader
from journal.vfs.file_window import FileWindow
from journal.wal.end_scan import ScannedFile, scanned
from journal.wal.reader import FileReader, JournalEntry


def reader_of(data: bytes, header: FileHeader, end_lsn: int | None = None) -> FileReader:
    return FileReader(FileWindow.of(data), "f", header, end_lsn)


def scan_of(data: bytes, header: FileHeader, end_lsn: int | None = None) -> ScannedFile:
    """Return what pass 1 of a start finds."""
    return scanned(reader_of(data, header, end_lsn), end_lsn)


def records_of(
    data: bytes, header: FileHeader, end_lsn: int | None = None, from_lsn: int = 0
) -> list[JournalEntry]:
    """Return what pass 2 of a start folds."""
    reader = reader_of(data, header, end_lsn)
    return [
        each for group in scan_of(data, header, end_lsn).groups for each in reader.records(group, from_lsn)
    ]


def lsns_of(data: bytes, header: FileHeader, end_lsn: int | None = None, from_lsn: int = 0) -> list[int]:
    return [each.lsn for each in records_of(data, header, end_lsn, from_lsn)]

"""Read-only walks over a data directory's files: for verification, dumps, repairs, audits and Spark.

Nothing here opens a file for writing, takes the lock, or believes an index. Every checksum is computed by ``crcmod``,
an implementation independent of the one that wrote it, so that a fault of either shows. A directory in use may be
walked; its newest journal file and segments then end where they ended when they were read.
"""

from journal.check.checkpoint_check import checkpoints
from journal.check.file_walk import FileKind, IndexItem, Item, SectionItem, kind_of, walk_any
from journal.check.findings import Affected, Finding, second_crc32c
from journal.check.journal_walk import walk_journal
from journal.check.outcome_walk import (
    Archived,
    archive_from,
    archive_state,
    archived,
    journaled_archive,
    walk_archive,
)
from journal.check.segment_walk import FrameEntry, partitions, segments, walk_segment
from journal.check.tally import Tally
from journal.check.verification import Level, planned_bytes, verify
from journal.wal.reader import JournalEntry, journal_files

__all__ = [
    "Affected",
    "Archived",
    "FileKind",
    "Finding",
    "FrameEntry",
    "IndexItem",
    "Item",
    "JournalEntry",
    "Level",
    "SectionItem",
    "Tally",
    "archive_from",
    "archive_state",
    "archived",
    "checkpoints",
    "journal_files",
    "journaled_archive",
    "kind_of",
    "partitions",
    "planned_bytes",
    "second_crc32c",
    "segments",
    "verify",
    "walk_any",
    "walk_archive",
    "walk_journal",
    "walk_segment",
]

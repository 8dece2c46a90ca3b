"""Checks of a data directory: each file by itself, then what the files say against each other. It changes nothing.

The names of the walks that these checks stand on (:mod:`journal.walks`) are here, too, for commands and programs.
"""

from journal.check.tally import Tally
from journal.check.verification import Level, planned_bytes, verify
from journal.wal.reader import JournalEntry, journal_files
from journal.walks.checkpoint_walk import checkpoints
from journal.walks.file_walk import FileKind, IndexItem, Item, SectionItem, kind_of, walk_any
from journal.walks.findings import Affected, Finding, second_crc32c
from journal.walks.journal_walk import walk_journal
from journal.walks.log_search import is_behind, newest_checkpoint, search_log
from journal.walks.outcome_walk import (
    Archived,
    archive_from,
    archive_state,
    archived,
    journaled_archive,
    walk_archive,
)
from journal.walks.segment_walk import FrameEntry, partitions, segments, walk_segment

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
    "is_behind",
    "journal_files",
    "journaled_archive",
    "kind_of",
    "newest_checkpoint",
    "partitions",
    "planned_bytes",
    "search_log",
    "second_crc32c",
    "segments",
    "verify",
    "walk_any",
    "walk_archive",
    "walk_journal",
    "walk_segment",
]

"""A data directory without a sound checkpoint, as its journal has it.

No broker has one in its first minute. A start then begins with nothing and takes all from the journal, which must go
back to the first record; whether it does, and whether there had been a checkpoint, is reported by who verifies the
rest.
"""

from __future__ import annotations

from typing import Any

from journal.check.journal_walk import walk_journal
from journal.formats.checkpoint import Checkpoint, CheckpointHeader
from journal.formats.record import ArchiveSet, Started, TopicCreated, TopicDeleted
from journal.formats.store_state import StoreState
from journal.interfaces import IFilesystem
from journal.log import catalog
from journal.transactions import outcome_archive
from journal.wal.reader import JournalEntry


def of_journal(filesystem: IFilesystem) -> Checkpoint:
    """A checkpoint at LSN 0, which no log has reached: what the files of logs hold lies behind their ends.

    It has the topics that there are at last, and the clock of the last start.
    """
    stores: dict[int, StoreState] = {}
    next_partition, at, wall_offset, archives = 1, 0, 0, False
    for each in walk_journal(filesystem):
        match each.record if isinstance(each, JournalEntry) else None:
            case Started() as started:
                at, wall_offset = started.at, started.wall - started.at
            case TopicCreated() as made:
                next_partition = made.first_partition + made.partitions
                for index, number in enumerate(range(made.first_partition, next_partition)):
                    stores[number] = StoreState(number, made.topic, index, 0, 0, 0, [], made.settings, 0)
            case TopicDeleted() as gone:
                stores = {number: store for number, store in stores.items() if store.topic != gone.topic}
            case ArchiveSet() as turned:
                archives = turned.on
    folds: dict[str, list[Any]] = {
        "catalog": [catalog.HeadRow(next_partition, wall_offset)],
        "archive": [outcome_archive.HeadRow(archives, 0)],
    }
    return Checkpoint(CheckpointHeader(0, 1, 0, at, 0), folds, list(stores.values()))

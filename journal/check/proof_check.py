"""Segments that go further than checkpoint and journal: which a start refuses, for no crash leaves them so."""

from __future__ import annotations

from collections.abc import Iterator

from journal.check.checkpoint_check import next_partition
from journal.check.effects import Effect, LogEnds
from journal.check.findings import Finding, of_partition, unreadable
from journal.check.segment_walk import partitions
from journal.formats.checkpoint import Checkpoint
from journal.formats.store_state import StoreState
from journal.interfaces import IFilesystem
from journal.log.proof import Beyond, files_beyond, unproven
from journal.wal.reader import JournalEntry


class ProofCheck:
    """Follows the records above the newest checkpoint to where each log ends by them."""

    def __init__(self, newest: Checkpoint | None) -> None:
        stores = newest.stores if newest is not None else []
        self._states: dict[int, StoreState] = {store.number: store for store in stores}
        self._logs = LogEnds()
        self._logs.know(stores)
        self._lsn = newest.header.lsn if newest is not None else 0
        self._next_partition = next_partition(newest) if newest is not None else 1

    def follow(self, entry: JournalEntry, effect: Effect) -> None:
        """Take in the next record."""
        if entry.lsn > self._lsn:
            self._logs.follow(entry, effect)

    def findings(self, filesystem: IFilesystem) -> Iterator[Finding]:
        """The first sound messages of each partition's file that nothing proves; call it after the last record."""
        ends = self._logs.ends
        next_partition = max([self._next_partition, *(number + 1 for number in self._logs.names)])
        for partition, directory in partitions(filesystem):
            number = partition.number
            if number < next_partition and number not in ends:
                continue  # of a topic that was deleted
            state = self._states.get(number)
            end = max(ends.get(number, 0), state.flushed_offset if state is not None else 0)
            segments = state.segments if state is not None else ()
            for beyond in files_beyond(number, directory, filesystem.list_directory(directory), segments):
                yield from _judged(filesystem, beyond, end)


def _judged(filesystem: IFilesystem, beyond: Beyond, end: int) -> Iterator[Finding]:
    try:
        found = unproven(filesystem, beyond, end)
    except OSError as error:
        if beyond.is_whole:  # else the checkpoint has the file, and it is told where that is looked at
            yield unreadable(beyond.segment.path, error)
        return
    if found is not None:
        affects = of_partition(found.path, found.first_offset, found.last_offset)
        yield Finding(found.path, found.position, found.problem(end), affects=affects, unproven=True)

"""The check for segments that go further than checkpoint and journal, which a start refuses, because no crash
leaves them.
"""

from __future__ import annotations

from collections.abc import Iterator

from journal.check.record_check import RecordCheck
from journal.formats.checkpoint import Checkpoint
from journal.interfaces import IFilesystem
from journal.log.proof import Beyond, files_beyond, unproven
from journal.walks.findings import Finding, of_partition, unreadable
from journal.walks.segment_walk import partitions


def unproven_findings(
    filesystem: IFilesystem, newest: Checkpoint | None, records: RecordCheck
) -> Iterator[Finding]:
    """Yield the first unproven sound messages of each partition's file; ``records`` has followed all records."""
    states = {store.number: store for store in newest.stores} if newest is not None else {}
    for partition, directory in partitions(filesystem):
        number, end = partition.number, records.logs.ends.get(partition.number)
        if number < records.next_partition and end is None:
            continue  # of a deleted topic
        state = states.get(number)
        end = max(end or 0, state.flushed_offset if state is not None else 0)
        segments = state.segments if state is not None else ()
        for beyond in files_beyond(number, directory, filesystem.list_directory(directory), segments):
            yield from _judged(filesystem, beyond, end)


def _judged(filesystem: IFilesystem, beyond: Beyond, end: int) -> Iterator[Finding]:
    try:
        found = unproven(filesystem, beyond, end)
    except OSError as error:
        if beyond.is_whole:  # else the checkpoint has the file, and its check reports it
            yield unreadable(beyond.segment.path, error)
        return
    if found is not None:
        affects = of_partition(found.path, found.first_offset, found.last_offset)
        yield Finding(found.path, found.position, found.problem(end), affects=affects, unproven=True)

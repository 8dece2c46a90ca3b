"""A walk over the outcome archive's segments: how transactions ended, in the order of the decisions.

The n-th transaction that ended while the archive was on is the message of offset n. For any one partition, the messages
of later entries have higher offsets, and ``at`` never goes back. So the transactions of a range of a log are in a range
of the archive: see :func:`archive_from`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from journal.errors import InvalidFrame
from journal.formats.checkpoint import Checkpoint
from journal.formats.frame import HEADER, LOST, walk
from journal.formats.index import sound_times
from journal.formats.store_state import StoreState
from journal.interfaces import IFilesystem
from journal.log.segment import segments_of
from journal.records.outcome_entry import OUTCOMES_TOPIC, ArchivedOutcome, unpack_frame
from journal.records.record import Messages, TopicCreated
from journal.vfs.file_window import file_size, read_some
from journal.walks.checkpoint_walk import checkpoints
from journal.walks.findings import Finding, of_partition
from journal.walks.journal_walk import walk_journal
from journal.walks.segment_walk import FrameEntry, walk_segment


class Archived(NamedTuple):
    """An entry and its place."""

    offset: int
    outcome: ArchivedOutcome
    path: str
    position: int


def archive_state(filesystem: IFilesystem, checkpoint: Checkpoint | None = None) -> StoreState | None:
    """Return the state of the archive's log in the newest sound checkpoint; None if it has none.

    Later entries are in the journal: they were not forced to the segments when the checkpoint was taken.
    """
    if checkpoint is None:
        sound = [each for each in checkpoints(filesystem) if isinstance(each, Checkpoint)]
        if not sound:
            return None
        checkpoint = sound[-1]
    found = [store for store in checkpoint.stores if store.topic == OUTCOMES_TOPIC]
    return found[-1] if found else None


def walk_archive(
    filesystem: IFilesystem, state: StoreState, first: int = 0, end: int | None = None
) -> Iterator[Archived | Finding]:
    """Yield the entries of offsets ``first`` to below ``end`` (all if None), every checksum proven.

    Damage is reported in its place and skipped. In bounded memory: a frame at a time.
    """
    end = state.flushed_offset if end is None else min(end, state.flushed_offset)
    first = max(first, state.start_offset)
    for segment in segments_of(state):
        if segment.end_offset <= first or segment.base_offset >= end:
            continue
        for each in walk_segment(filesystem, segment.path, segment.base_offset, segment.size):
            if isinstance(each, Finding):
                yield each
            elif each.offset >= end:
                return
            elif each.offset >= first:
                yield archived(segment.path, each)


def journaled_archive(filesystem: IFilesystem, state: StoreState | None) -> Iterator[Archived | Finding]:
    """Yield the entries that the journal still holds and the segments do not: those from the ``flushed_offset`` on.

    Their path and position are of the record that holds them. Reads the journal, and proves all of it. Without a
    checkpoint (None) these are all entries.
    """
    number = state.number if state is not None else 0
    end = state.flushed_offset if state is not None else 0
    for each in walk_journal(filesystem):
        if isinstance(each, Finding):
            yield each
        elif isinstance(each.record, TopicCreated) and each.record.topic == OUTCOMES_TOPIC:
            number = each.record.first_partition
        elif isinstance(each.record, Messages) and each.record.partition == number:
            offset = each.record.base_offset
            for position, length, _, count in walk(each.data):
                if offset >= end:
                    frame = each.data[position : position + length]
                    flag = HEADER.unpack_from(frame)[6]
                    yield archived(
                        each.path, FrameEntry(each.position, length, offset, 0, 0, count, flag, frame)
                    )
                offset += count


def archived(path: str, entry: FrameEntry) -> Archived | Finding:
    """Return the entry in a frame of the archive's log."""
    try:
        if entry.flag & LOST:
            raise InvalidFrame("a repair found its bytes nowhere any more")
        outcome = unpack_frame(entry.frame)
    except InvalidFrame as error:
        affects = of_partition(path, entry.offset, entry.offset + entry.messages - 1)
        return Finding(
            path, entry.position, f"entry {entry.offset} of the outcome archive: {error}", affects=affects
        )
    return Archived(entry.offset, outcome, path, entry.position)


def archive_from(filesystem: IFilesystem, state: StoreState, at: int) -> int:
    """Return an offset of the archive at or before its first entry with ``at`` or a later journal time.

    It comes from the index if there is a sound one, else it is the segment's first: that costs only time. The
    transactions whose messages a segment holds are those with ``at`` from its ``first_time`` to its ``last_time``.
    """
    for segment, times in zip(segments_of(state), state.segments, strict=True):
        if times.last_time < at:
            continue
        found = segment.base_offset
        if filesystem.exists(segment.time_path):
            data = read_some(filesystem, segment.time_path, 0, file_size(filesystem, segment.time_path))
            for offset, time in sound_times(data, segment.seed, segment.base_offset, segment.end_offset):
                if time >= at:
                    break
                found = offset
        return max(found, state.start_offset)
    return state.flushed_offset

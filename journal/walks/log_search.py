"""A search through the logs in the files of a data directory that no broker has open, as its newest checkpoint has
them.
"""

from __future__ import annotations

from collections.abc import Iterator

from journal.constants import MIB
from journal.errors import StorageUnavailable
from journal.formats.checkpoint import Checkpoint
from journal.formats.frame import Message
from journal.formats.segment_header import SEGMENT_HEADER_BYTES
from journal.formats.store_state import StoreState
from journal.interfaces import IFilesystem
from journal.log.key_tables import hash_of, read_table
from journal.log.search import Wanted, examine
from journal.log.segment import BrokenChain, Segment, read_run, segments_of
from journal.records.record import Due, Messages, Published, TransactionCommitted
from journal.vfs.file_window import opened
from journal.wal.reader import JournalEntry
from journal.walks.checkpoint_walk import checkpoints
from journal.walks.journal_walk import walk_journal

_PIECE = 4 * MIB


def newest_checkpoint(filesystem: IFilesystem) -> Checkpoint:
    """Return the newest sound checkpoint; raises :class:`StorageUnavailable` if there is none."""
    sound = [each for each in checkpoints(filesystem) if isinstance(each, Checkpoint)]
    if not sound:
        raise StorageUnavailable(
            "the directory has no sound checkpoint, so it is not known where its logs end; nothing was read. A broker "
            "that starts on it writes one; 'txbroker verify DIR' says what is damaged"
        )
    return sound[-1]


def is_behind(filesystem: IFilesystem, checkpoint: Checkpoint) -> bool:
    """Whether the journal has messages above the checkpoint: the broker was not stopped, but killed."""
    after = checkpoint.header.lsn + 1
    return any(
        isinstance(each, JournalEntry)
        and each.lsn >= after
        and isinstance(each.record, Messages | TransactionCommitted | Due | Published)
        for each in walk_journal(filesystem, after)
    )


def search_log(
    filesystem: IFilesystem, store: StoreState, wanted: Wanted, start: int = 0
) -> Iterator[Message]:
    """Yield the messages of a log that have what is wanted, from the offset ``start`` on.

    Raises :class:`journal.errors.CorruptSegment` at damage, :class:`journal.errors.CompressionUnavailable`.
    """
    first, end = max(start, store.start_offset), min(store.end_offset, store.flushed_offset)
    for segment in segments_of(store):
        until = min(_until(filesystem, segment, wanted), end)
        if first < until and segment.base_offset < until:
            yield from (
                each for each in _search(filesystem, segment, first, until, wanted) if each.offset < end
            )


def _until(filesystem: IFilesystem, segment: Segment, wanted: Wanted) -> int:
    """Return the offset up to which a segment has to be searched, as its table of keys says: 0 for not at all."""
    try:
        table = read_table(filesystem, segment)
    except OSError:
        table = None
    if table is None or not table.is_complete:
        return segment.end_offset
    return table.end(hash_of(wanted))


def _search(
    filesystem: IFilesystem, segment: Segment, first: int, until: int, wanted: Wanted
) -> Iterator[Message]:
    offset, position = segment.base_offset, SEGMENT_HEADER_BYTES
    with opened(filesystem, segment.path) as file:
        while offset < until:
            try:
                frames, behind = read_run(file.read, segment, offset, position, _PIECE)
            except BrokenChain as broken:
                last = (broken.next_offset or segment.end_offset) - 1
                raise segment.corrupt(str(broken), broken.position, broken.offset, last) from broken
            at = max(offset, first)
            while at < behind:  # a piece of what compressed frames open to each time
                found, at = examine(frames, at, wanted)
                yield from found
            offset, position = behind, position + len(frames)

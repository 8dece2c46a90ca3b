"""The check of gaps in compacted segments: only what the newest checkpoint has as finished may be missing."""

from __future__ import annotations

from collections.abc import Iterator

from journal.check.queue_check import group_of_queues
from journal.folds.group import unread_of
from journal.folds.queues import QueuesFold
from journal.formats.checkpoint import Checkpoint
from journal.formats.frame import GAP
from journal.formats.segment_header import SEGMENT_HEADER_BYTES
from journal.interfaces import IFilesystem
from journal.log.compaction import Unread
from journal.log.segment import BrokenChain, Segment, flag_at, segments_of, walk_headers
from journal.offset_set import OffsetSet
from journal.vfs.file_window import opened
from journal.walks.findings import Finding, of_partition, told_if_unreadable
from journal.words import count_text, span


def check_gaps(filesystem: IFilesystem, checkpoint: Checkpoint) -> Iterator[Finding]:
    """Yield messages that a compaction removed and nobody has finished, and gaps that the checkpoint does not know."""
    compacted = [each for store in checkpoint.stores for each in segments_of(store) if each.epoch]
    if not compacted:
        return
    unread = unread_in(checkpoint)
    for segment in compacted:
        if filesystem.exists(segment.path):
            nothing = Unread(0, OffsetSet())
            found = _check(filesystem, segment, unread.get(segment.number, nothing))
            yield from told_if_unreadable(segment.path, found, of_partition(segment.path))


def unread_in(checkpoint: Checkpoint) -> dict[int, Unread]:
    """Return what nobody reads any more of each queue, by partition."""
    fold = QueuesFold()
    fold.restore(checkpoint.folds.get(QueuesFold.name, []))
    group = group_of_queues(checkpoint)
    return {number: unread_of(group, number) for number in fold.by_partition}


def _check(filesystem: IFilesystem, segment: Segment, unread: Unread) -> Iterator[Finding]:
    removed = 0
    with opened(filesystem, segment.path) as file:
        try:
            for place in walk_headers(file.read, segment, segment.base_offset, SEGMENT_HEADER_BYTES):
                if not flag_at(file.read, place.position) & GAP:
                    continue
                removed += place.messages
                end = place.offset + place.messages
                for first, behind in unread.rest(place.offset, end):
                    what = f"{span('offset', first, behind - 1)} were removed, and nobody has finished them"
                    affects = of_partition(segment.path, first, behind - 1)
                    yield Finding(segment.path, place.position, what, affects=affects)
        except BrokenChain:
            return  # the segment's own check tells it
    if removed != segment.removed:
        said = count_text(segment.removed, "message")
        what = f"its gaps stand for {count_text(removed, 'message')}, the checkpoint says {said}"
        yield Finding(segment.path, 0, what, affects=of_partition(segment.path))

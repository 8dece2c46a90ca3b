"""The state of a partition's log in a checkpoint."""

from __future__ import annotations

import msgspec

from journal.formats.filenames import partition_directory
from journal.settings import TopicSettings


class SegmentState(msgspec.Struct, array_like=True, frozen=True):
    """A segment in a checkpoint. ``end_offset`` is exclusive, times are append times in µs, ``size`` includes the
    header.

    It is the file of that ``epoch``: how often it was compacted. ``removed`` messages are in gaps. ``salt`` is the
    header's: a file of another segment is not taken for this one. ``checksum`` is the running checksum at the end (see
    :mod:`journal.formats.segment_header`).
    """

    base_offset: int
    size: int
    end_offset: int
    first_time: int
    last_time: int
    salt: int
    checksum: int
    epoch: int = 0
    removed: int = 0


class StoreState(msgspec.Struct, array_like=True, frozen=True):
    """A store in a checkpoint: offsets below ``flushed_offset`` are in its segments, forced.

    ``end_offset`` is where the log ended at the checkpoint's LSN. Below their ends all logs together show each
    transaction whole or not at all; messages between an end and ``flushed_offset`` came later.
    """

    number: int
    topic: str
    index: int
    start_offset: int
    flushed_offset: int
    last_time: int
    segments: list[SegmentState]
    settings: TopicSettings
    end_offset: int

    @property
    def directory(self) -> str:
        """The directory of its files."""
        return partition_directory(self.topic, self.index, self.number)

"""The logs cut into slices: what one task reads and proves. Each says where it must end, so nothing is left out."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import Final, NamedTuple

import numpy as np

from journal.constants import MIB
from journal.filenames import partition_directory
from journal.filesystem import OSFilesystem
from journal.indexes import OFFSET_ENTRY
from journal.inspect.journal_walk import file_size, read_some
from journal.inspect.segment_walk import frame_at
from journal.segment import Segment
from journal.store_state import StoreState

SLICE_BYTES: Final = 48 * MIB
ENTRY: Final = np.dtype([("offset", ">u8"), ("position", ">u4"), ("crc", ">u4")])
assert ENTRY.itemsize == OFFSET_ENTRY.size


class Slice(NamedTuple):
    """Bytes ``position`` to below ``end_position`` of a segment: the frames of offsets ``first`` to below ``end``.

    ``base`` is the segment's first offset, ``size`` what it has by the checkpoint.
    """

    id: int
    topic: str
    partition: int
    number: int
    path: str
    base: int
    size: int
    first: int
    position: int
    end: int
    end_position: int


def segments_of(store: StoreState) -> list[Segment]:
    """A log's segments as the checkpoint has them."""
    directory = partition_directory(store.topic, store.index, store.number)
    return [
        Segment(
            store.number, directory, s.base_offset, s.size, s.end_offset, s.first_time, s.last_time, s.head
        )
        for s in store.segments
    ]


def cut(
    filesystem: OSFilesystem, stores: Iterable[StoreState], slice_bytes: int = SLICE_BYTES
) -> list[Slice]:
    """The slices of these logs, whatever their files hold."""
    found: list[Slice] = []
    for store in stores:
        for segment in segments_of(store):
            edges = _edges(filesystem, segment, slice_bytes)
            for (first, position), (end, end_position) in pairwise(edges):
                found.append(
                    Slice(
                        len(found), store.topic, store.index, store.number, segment.path, segment.base_offset,
                        segment.size, first, position, end, end_position,
                    )
                )  # fmt: skip
    return found


def _edges(filesystem: OSFilesystem, segment: Segment, slice_bytes: int) -> list[tuple[int, int]]:
    """(offset, position) of where slices begin, and of the segment's end. An index is believed where a frame agrees."""
    edges = [(segment.base_offset, 0)]
    if segment.size > slice_bytes:
        try:
            _cut_inside(filesystem, segment, slice_bytes, edges)
        except OSError:
            del edges[1:]  # one slice, then; who reads the files tells of it
    return [*edges, (segment.end_offset, segment.size)]


def _cut_inside(
    filesystem: OSFilesystem, segment: Segment, slice_bytes: int, edges: list[tuple[int, int]]
) -> None:
    data = read_some(filesystem, segment.index_path, 0, file_size(filesystem, segment.index_path))
    entries = np.frombuffer(data[: len(data) // ENTRY.itemsize * ENTRY.itemsize], ENTRY)
    file = filesystem.open(segment.path, writable=False)
    try:
        for offset, position in zip(entries["offset"].tolist(), entries["position"].tolist(), strict=True):
            far = position - edges[-1][1] >= slice_bytes and segment.size - position >= slice_bytes // 4
            if (
                far
                and edges[-1][0] < offset < segment.end_offset
                and frame_at(file, position, offset, segment.size)
            ):
                edges.append((offset, position))
    finally:
        file.close()


class SliceMap:
    """Which slices hold which offsets of a log."""

    def __init__(self, slices: Sequence[Slice]) -> None:
        self._by_number: dict[int, list[Slice]] = {}
        for each in slices:
            self._by_number.setdefault(each.number, []).append(each)
        self._firsts = {number: [each.first for each in found] for number, found in self._by_number.items()}

    def holding(self, number: int, first: int, end: int) -> list[Slice]:
        """The slices that hold offsets ``first`` to below ``end``, in order."""
        slices = self._by_number.get(number, [])
        firsts = self._firsts.get(number, [])
        place = max(0, bisect_right(firsts, first) - 1)
        found = []
        while place < len(slices) and slices[place].first < end:
            if slices[place].end > first:
                found.append(slices[place])
            place += 1
        return found

    def span(self, number: int) -> tuple[int, int]:
        """The offsets that the log's segments hold: from, to below."""
        slices = self._by_number.get(number, [])
        return (slices[0].first, slices[-1].end) if slices else (0, 0)

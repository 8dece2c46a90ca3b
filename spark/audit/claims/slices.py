"""The slices of logs: one task reads and proves one. Each slice says where it must end, so nothing is left out."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from contextlib import suppress
from itertools import pairwise
from typing import Final, NamedTuple

from journal.check.block_check import known_places
from journal.constants import MIB
from journal.formats.index import Anchor
from journal.formats.segment_header import SEGMENT_HEADER_BYTES
from journal.formats.store_state import StoreState
from journal.log.segment import Segment, segments_of
from journal.vfs.file_window import opened
from journal.vfs.filesystem import OSFilesystem
from journal.walks.segment_walk import frame_at

SLICE_BYTES: Final = 48 * MIB


class Slice(NamedTuple):
    """Bytes ``position`` to below ``end_position`` of a segment: the frames of offsets ``first`` to below ``end``.

    ``base`` is the segment's first offset, ``size`` what it has by the checkpoint, ``salt`` that of its header.
    ``running`` and ``end_running`` are its running checksums where the slice begins and ends.
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
    salt: int
    running: int
    end_running: int


def cut(
    filesystem: OSFilesystem, stores: Iterable[StoreState], slice_bytes: int = SLICE_BYTES
) -> list[Slice]:
    """Cut these logs into slices, whatever their files hold."""
    found: list[Slice] = []
    for store in stores:
        for segment in segments_of(store):
            edges = _edges(filesystem, segment, slice_bytes)
            for start, end in pairwise(edges):
                found.append(
                    Slice(
                        len(found), store.topic, store.index, store.number, segment.path, segment.base_offset,
                        segment.size, start.offset, start.position, end.offset, end.position, segment.salt,
                        start.running, end.running,
                    )
                )  # fmt: skip
    return found


def _edges(filesystem: OSFilesystem, segment: Segment, slice_bytes: int) -> list[Anchor]:
    """Return where slices begin, and the segment's end, from sound entries of its index."""
    edges = [Anchor(segment.base_offset, SEGMENT_HEADER_BYTES, segment.seed)]
    if segment.size > slice_bytes:
        known = known_places(filesystem, segment.path, segment.salt, segment.end_offset, segment.size)
        with suppress(OSError):  # one slice then; the reader of the file reports it
            _cut_inside(filesystem, segment, slice_bytes, known, edges)
    return [*edges, Anchor(segment.end_offset, segment.size, segment.checksum)]


def _cut_inside(
    filesystem: OSFilesystem, segment: Segment, slice_bytes: int, known: list[Anchor], edges: list[Anchor]
) -> None:
    """Add the places in ``known`` where a slice may begin: far enough from the last, and confirmed by a frame."""
    with opened(filesystem, segment.path) as file:
        for each in known:
            is_far = each.position - edges[-1].position >= slice_bytes
            is_far = is_far and segment.size - each.position >= slice_bytes // 4
            if is_far and frame_at(file, each.position, each.offset, segment.size):
                edges.append(each)


class SliceMap:
    """The slices of each log by their offsets."""

    def __init__(self, slices: Sequence[Slice]) -> None:
        self._by_number: dict[int, list[Slice]] = {}
        for each in slices:
            self._by_number.setdefault(each.number, []).append(each)
        self._firsts = {number: [each.first for each in found] for number, found in self._by_number.items()}

    def holding(self, number: int, first: int, end: int) -> list[Slice]:
        """Return the slices that hold offsets ``first`` to below ``end``, in order."""
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
        """Return the range of offsets (from, to below) that the log's segments hold."""
        slices = self._by_number.get(number, [])
        return (slices[0].first, slices[-1].end) if slices else (0, 0)

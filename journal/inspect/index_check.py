"""The indexes beside a segment: which of their entries are sound, and which damage no crash leaves.

Neither they nor their names are forced. So after a power cut they may be missing, and any of their sectors may be as it
once was: not written yet (zeros), or written up to somewhere; two sectors need not be of one age. Within a sector
nothing is wrong that has more behind it.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator
from dataclasses import dataclass, field
from struct import Struct
from typing import Final

from journal import filenames
from journal.filenames import SegmentKind
from journal.indexes import (
    OFFSET_ENTRY,
    TIME_ENTRY,
    is_needless,
    salt_of,
    sound_entries,
    sound_offsets,
)
from journal.inspect.findings import Affected, Finding, of_partition, second_crc32c, unreadable
from journal.inspect.journal_walk import file_size, read_some
from journal.interfaces import IFilesystem
from journal.segment import SegmentState

MADE_AGAIN: Final = "; it is made again when it is needed"
OF_NO_CRASH: Final = ", as no crash leaves it"
SECTOR: Final = 512
"""Bytes that a disk writes whole or not at all."""


@dataclass(slots=True)
class Index:
    """What the two indexes beside a segment say, as far as they are sound."""

    offsets: list[int] = field(default_factory=list)
    positions: list[int] = field(default_factory=list)
    is_whole: bool = True
    """Nothing wrong has been found with it yet, so that it may be asked for what is missing in it."""

    def after(self, position: int) -> int:
        """The number of the first entry at or behind a position."""
        return bisect_left(self.positions, position)


def read_index(
    filesystem: IFilesystem, number: int, directory: str, state: SegmentState, index: Index
) -> Iterator[Finding]:
    """The sound entries of both indexes; those of frames behind the checkpoint's end do not count."""
    paths = [
        filenames.segment_file(directory, state.base_offset, kind)
        for kind in (SegmentKind.INDEX, SegmentKind.TIME)
    ]
    missing = [path for path in paths if not filesystem.exists(path)]
    if len(missing) == len(paths) and is_needless(state.size):
        return  # it has not got an entry yet
    if missing:
        yield from (Finding(path, 0, f"the index is missing{MADE_AGAIN}", True) for path in missing)
        return
    contents = []
    for path in paths:
        try:
            contents.append(read_some(filesystem, path, 0, file_size(filesystem, path)))
        except OSError as error:
            yield unreadable(path, error, all_of(path, state))
            return
    offsets, times = contents
    salt = salt_of(number, state.base_offset)
    sound = sound_entries(offsets, times, salt, state.end_offset, state.size)
    if sound < max(len(offsets) // OFFSET_ENTRY.size, len(times) // TIME_ENTRY.size):
        ends = state.end_offset, state.size
        told = [
            *_of_no_crash(paths[0], offsets, OFFSET_ENTRY, salt, ends),
            *_of_no_crash(paths[1], times, TIME_ENTRY, salt, (state.last_time, state.end_offset)),
        ]
        yield from told or _unsound(paths, offsets, times, salt, state)
    for entry in range(sound):
        offset, position, _ = OFFSET_ENTRY.unpack_from(offsets, entry * OFFSET_ENTRY.size)
        index.offsets.append(offset)
        index.positions.append(position)


def astray(path: str, entry: int, offset: int, position: int) -> Finding:
    """An entry with a checksum that fits, of a segment that has another frame there, or none."""
    beside = path.removesuffix("log") + SegmentKind.INDEX.value
    problem = f"no frame of offset {offset} begins at byte {position} of the log"
    at = entry * OFFSET_ENTRY.size
    return Finding(beside, at, f"{problem}{OF_NO_CRASH}{MADE_AGAIN}", True, foreign=True, of_no_crash=True)


def all_of(path: str, state: SegmentState) -> Affected:
    """All offsets of a segment."""
    if state.base_offset == state.end_offset:
        return of_partition(path)
    return of_partition(path, state.base_offset, state.end_offset - 1)


def _unsound(
    paths: list[str], offsets: bytes, times: bytes, salt: int, state: SegmentState
) -> Iterator[Finding]:
    """The first entry that is not sound, where a crash may have left it so."""
    sound = sound_entries(offsets, times, salt, state.end_offset, state.size)
    by_itself = sound_offsets(offsets, salt, state.end_offset, state.size)
    entries = len(offsets) // OFFSET_ENTRY.size
    if sound < by_itself:
        there = len(times) // TIME_ENTRY.size
        what = (
            f"entry {sound} of {there} is damaged, or its time goes back"
            if sound < there
            else f"it has {there} entries, the offset index at least {by_itself}"
        )
        yield Finding(paths[1], sound * TIME_ENTRY.size, what + MADE_AGAIN, True)
    elif sound < entries and _is_below(offsets, sound, state.size):
        problem = f"entry {sound} of {entries} is damaged{MADE_AGAIN}"
        yield Finding(paths[0], sound * OFFSET_ENTRY.size, problem, True)


def _is_below(offsets: bytes, entry: int, size: int) -> bool:
    """Whether an entry is one of the checkpoint's part of the log, or might be: one behind it is no business of its."""
    return bool(OFFSET_ENTRY.unpack_from(offsets, entry * OFFSET_ENTRY.size)[1] < size)


def _of_no_crash(
    path: str, data: bytes, layout: Struct, salt: int, ends: tuple[int, int]
) -> Iterator[Finding]:
    """The first entry that no crash leaves as it is, among those of the checkpoint's part of the log.

    ``ends`` are those of that part, as the fields of an entry have them.
    """
    entries, wrong, before = len(data) // layout.size, -1, (-1, -1)
    for entry in range(entries):
        at = entry * layout.size
        first, second, crc = layout.unpack_from(data, at)
        is_below = second < ends[1]
        if second_crc32c(data[at : at + layout.size - 4], salt) != crc:
            wrong = entry if wrong < 0 and not _may_be_torn(data, at, layout.size) else wrong
        elif layout is OFFSET_ENTRY:
            is_behind = not at % SECTOR or (first > before[0] and second > before[1])
            wrong = entry if wrong < 0 and not (is_behind and is_below == (first < ends[0])) else wrong
            before = first, second
        if wrong >= 0 and is_below:
            what = f"entry {wrong} of {entries} is damaged{OF_NO_CRASH}{MADE_AGAIN}"
            yield Finding(path, wrong * layout.size, what, True, of_no_crash=True)
            return


def _may_be_torn(data: bytes, at: int, size: int) -> bool:
    """Whether an entry that fails its checksum was not written to its end, or lies in two sectors."""
    return len(data[at : (at // SECTOR + 1) * SECTOR].rstrip(b"\0")) < size

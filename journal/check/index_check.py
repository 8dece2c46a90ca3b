"""The check of the indexes beside a segment: which entries are sound, and which damage no crash can leave.

Neither they nor their names are forced before the segment is closed. So after a power cut those of the newest one may
be missing, and any of their sectors may be in an earlier state: not written yet (zeros), or written up to some point;
two sectors need not be of one age. Within a sector nothing before written bytes is wrong.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from struct import Struct
from typing import Final

from journal.formats import filenames
from journal.formats.filenames import SegmentKind
from journal.formats.index import (
    OFFSET_ENTRY,
    TIME_ENTRY,
    Anchor,
    anchors,
    is_needless,
    sound_entries,
    sound_offsets,
)
from journal.formats.segment_header import seed_of
from journal.formats.store_state import SegmentState
from journal.interfaces import IFilesystem
from journal.vfs.file_window import file_size, read_some
from journal.walks.findings import Affected, Finding, of_partition, second_crc32c, unreadable

MADE_AGAIN: Final = "; it is made again when it is needed"
OF_NO_CRASH: Final = ", as no crash leaves it"
SECTOR: Final = 512
"""Bytes that a disk writes whole or not at all."""


def read_index(
    filesystem: IFilesystem, directory: str, state: SegmentState, closed: bool, found: list[Anchor]
) -> Iterator[Finding]:
    """Yield what is wrong with both indexes; sound entries, except those behind the checkpoint's end, go to ``found``.

    The indexes of a ``closed`` segment were forced: no crash removes them.
    """
    paths = [
        filenames.segment_file(directory, state.base_offset, kind, state.epoch)
        for kind in (SegmentKind.INDEX, SegmentKind.TIME)
    ]
    missing = [path for path in paths if not filesystem.exists(path)]
    if len(missing) == len(paths) and is_needless(state.size):
        return  # it has no entry yet
    contents = []
    for path in paths:
        try:
            contents.append(
                b"" if path in missing else read_some(filesystem, path, 0, file_size(filesystem, path))
            )
        except OSError as error:
            yield unreadable(path, error, all_of(path, state))
            return
    offsets, times = contents
    seed = seed_of(state.salt)
    found += anchors(offsets, seed, state.end_offset, state.size, second_crc32c)
    if missing:
        what = f"the index is missing{made_again(closed)}"
        yield from (Finding(path, 0, what, True, of_no_crash=closed) for path in missing)
        return
    sound = sound_entries(offsets, times, seed, state.end_offset, state.size)
    if sound < max(len(offsets) // OFFSET_ENTRY.size, len(times) // TIME_ENTRY.size):
        ends = state.end_offset, state.size
        told = [
            *_of_no_crash(paths[0], offsets, OFFSET_ENTRY, seed, ends),
            *_of_no_crash(paths[1], times, TIME_ENTRY, seed, (state.last_time, state.end_offset)),
        ]
        yield from told or _unsound(paths, offsets, times, seed, state, closed)


def made_again(closed: bool) -> str:
    """Return the end of a text about an index's damage: a ``closed`` segment's was forced, so no crash leaves it so."""
    return (OF_NO_CRASH if closed else "") + MADE_AGAIN


def misled(index: str, known: list[Anchor], wrong: Sequence[tuple[Anchor, Anchor]]) -> Finding:
    """Return a finding for an entry with a fitting checksum that is wrong about the log; ``wrong`` are (start, end) of
    blocks.

    Because of it their bytes seem damaged, and are not.
    """
    starts, ends = {start for start, _ in wrong} & set(known), {end for _, end in wrong} & set(known)
    entry = min((known.index(place) for place in starts & ends or starts or ends), default=0)
    problem = f"entry {entry} of {len(known)} is damaged: it is not of this log{OF_NO_CRASH}{MADE_AGAIN}"
    return Finding(index, entry * OFFSET_ENTRY.size, problem, True, foreign=True, of_no_crash=True)


def all_of(path: str, state: SegmentState) -> Affected:
    """Return all offsets of a segment."""
    if state.base_offset == state.end_offset:
        return of_partition(path)
    return of_partition(path, state.base_offset, state.end_offset - 1)


def _unsound(
    paths: list[str], offsets: bytes, times: bytes, seed: int, state: SegmentState, closed: bool
) -> Iterator[Finding]:
    """Return the first unsound entry, in a state in which a crash may have left it if the segment is not ``closed``."""
    sound = sound_entries(offsets, times, seed, state.end_offset, state.size)
    by_itself = sound_offsets(offsets, seed, state.end_offset, state.size)
    entries = len(offsets) // OFFSET_ENTRY.size
    if sound < by_itself:
        there = len(times) // TIME_ENTRY.size
        what = (
            f"entry {sound} of {there} is damaged, or its time goes back"
            if sound < there
            else f"it has {there} entries, the offset index at least {by_itself}"
        )
        at = sound * TIME_ENTRY.size
        yield Finding(paths[1], at, what + made_again(closed), True, of_no_crash=closed)
    elif sound < entries and _is_below(offsets, sound, state.size):
        problem = f"entry {sound} of {entries} is damaged{made_again(closed)}"
        yield Finding(paths[0], sound * OFFSET_ENTRY.size, problem, True, of_no_crash=closed)


def _is_below(offsets: bytes, entry: int, size: int) -> bool:
    """Return whether an entry is of the checkpoint's part of the log, or may be."""
    return bool(OFFSET_ENTRY.unpack_from(offsets, entry * OFFSET_ENTRY.size)[1] < size)


def _of_no_crash(
    path: str, data: bytes, layout: Struct, seed: int, ends: tuple[int, int]
) -> Iterator[Finding]:
    """Return the first entry in a state in which no crash leaves it, in the checkpoint's part of the log.

    ``ends`` are the ends of that part, as the fields of an entry have them.
    """
    entries, wrong, before = len(data) // layout.size, -1, (-1, -1)
    for entry in range(entries):
        at = entry * layout.size
        first, second, *_, crc = layout.unpack_from(data, at)
        is_below = second < ends[1]
        if second_crc32c(data[at : at + layout.size - 4], seed) != crc:
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
    """Return whether an entry that fails its checksum was not written to its end, or lies in two sectors."""
    return len(data[at : (at // SECTOR + 1) * SECTOR].rstrip(b"\0")) < size

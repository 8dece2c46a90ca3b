"""Segments and their indexes against what a checkpoint says of them."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace

from journal import filenames
from journal.errors import InvalidFrame
from journal.filenames import SegmentKind
from journal.frame import HEADER, HEADER_BYTES, LOST, WRAPPER
from journal.frame_check import count_in_wrapper
from journal.indexes import (
    MAX_GAP,
    OFFSET_ENTRY,
    TIME_ENTRY,
    is_needless,
    salt_of,
    sound_entries,
    sound_offsets,
)
from journal.inspect.findings import Affected, Finding, of_partition, told_if_unreadable, unreadable
from journal.inspect.journal_walk import file_size, read_some
from journal.inspect.segment_walk import FrameEntry, is_known_flag, walk_segment
from journal.interfaces import IFilesystem
from journal.message_store import StoreState
from journal.segment import SegmentState, checksum_of

Progress = Callable[[int], object]
"""Called with the number of bytes that have been read since the last call."""

MADE_AGAIN = "; it is made again when it is needed"


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


def check_store(
    filesystem: IFilesystem, store: StoreState, count: Callable[[FrameEntry], object], quick: bool, deep: bool
) -> Iterator[Finding]:
    """The segments of one partition as its checkpoint has them. ``count`` is told of each frame, and of bytes read.

    ``quick`` looks at sizes, the first frame and what follows the last index entry; ``deep`` opens wrappers too.
    """
    directory = filenames.partition_directory(store.topic, store.index, store.number)
    end = store.segments[0].base_offset if store.segments else store.flushed_offset
    if store.start_offset < end:
        problem = f"the log starts at offset {store.start_offset}, the checkpoint has no segment below {end}"
        yield Finding(directory, 0, problem, affects=_between(f"{directory}/", store.start_offset, end))
    for state in store.segments:
        path = filenames.segment_file(directory, state.base_offset, SegmentKind.LOG)
        if state.base_offset != end:
            problem = f"the checkpoint has a segment from offset {state.base_offset} on behind one that ends at {end}"
            yield Finding(path, 0, problem, affects=_between(path, end, state.base_offset))
        end = state.end_offset
        if not filesystem.exists(path):
            yield Finding(path, 0, "the file is missing", affects=_all_of(path, state))
            continue
        walk = _check_segment(filesystem, store.number, directory, path, state, count, quick, deep)
        yield from told_if_unreadable(path, walk, _all_of(path, state))
    if end != store.flushed_offset:
        problem = f"its segments end at offset {end}, the checkpoint says {store.flushed_offset}"
        yield Finding(directory, 0, problem, affects=_between(f"{directory}/", end, store.flushed_offset))


def _between(path: str, one: int, other: int) -> Affected:
    """The offsets about which two places disagree, whichever goes further."""
    return of_partition(path, min(one, other), max(one, other) - 1)


def _all_of(path: str, state: SegmentState) -> Affected:
    if state.base_offset == state.end_offset:
        return of_partition(path)
    return of_partition(path, state.base_offset, state.end_offset - 1)


def _check_segment(
    filesystem: IFilesystem,
    number: int,
    directory: str,
    path: str,
    state: SegmentState,
    count: Callable[[FrameEntry], object],
    quick: bool,
    deep: bool,
) -> Iterator[Finding]:
    size = file_size(filesystem, path)
    index = Index()
    for finding in _read_index(filesystem, number, directory, state, index):
        index.is_whole = False
        yield finding
    position, offset = 0, state.base_offset
    if quick and index.positions and size >= state.size:
        yield from _first_frame(filesystem, path, state)
        position, offset = index.positions[-1], index.offsets[-1]
    yield from _walk(filesystem, path, state, (offset, position), index, count, deep)


def _first_frame(filesystem: IFilesystem, path: str, state: SegmentState) -> Iterator[Finding]:
    """Its header alone."""
    header = read_some(filesystem, path, 0, HEADER_BYTES)
    found, flag = HEADER.unpack(header)[2], HEADER.unpack(header)[5]
    if found != state.base_offset:
        problem = f"it begins with offset {found}, its name says {state.base_offset}"
        yield Finding(path, 0, problem, affects=of_partition(path, state.base_offset, None))
    elif state.head and not flag & LOST and checksum_of(header) != state.head:
        yield _of_another(path, state)


def _walk(
    filesystem: IFilesystem,
    path: str,
    state: SegmentState,
    start: tuple[int, int],
    index: Index,
    count: Callable[[FrameEntry], object],
    deep: bool,
) -> Iterator[Finding]:
    offset, at = start
    gap_from, sound_to, broken = at, at, False
    entry = index.after(at)
    for each in walk_segment(filesystem, path, offset, state.size, at):
        if isinstance(each, Finding):
            broken = True
            yield _bounded(each, state)
            continue
        count(each)
        if not each.position and _is_of_another(each, state):
            yield _of_another(path, state)
        offset = each.offset + each.messages
        yield from _check_frame(path, each, deep)
        while entry < len(index.positions) and index.positions[entry] < each.position:
            if index.positions[entry] < sound_to:  # else it points into damage, and may well be right
                yield _astray(path, index, entry)
            entry += 1
        sound_to = each.position + each.length
        if entry < len(index.positions) and index.positions[entry] == each.position:
            if index.offsets[entry] != each.offset:
                yield _astray(path, index, entry)
            entry, gap_from = entry + 1, each.position
        elif each.position - gap_from >= MAX_GAP and index.is_whole and not broken:
            index.is_whole = False
            beside = path.removesuffix("log") + SegmentKind.INDEX.value
            yield Finding(
                beside, 0, f"entries are missing behind byte {gap_from} of the log{MADE_AGAIN}", True
            )
    if not broken and offset != state.end_offset:
        lost = _between(path, offset, state.end_offset)
        problem = f"it ends at offset {offset}, the checkpoint says {state.end_offset} and {state.size} bytes"
        at = min(state.size, file_size(filesystem, path))
        yield Finding(path, at, problem, affects=lost, foreign=at == state.size)


def _of_another(path: str, state: SegmentState) -> Finding:
    lost = of_partition(path, state.base_offset, state.end_offset - 1)
    return Finding(path, 0, "it begins with a message of another segment", affects=lost, foreign=True)


def _is_of_another(first: FrameEntry, state: SegmentState) -> bool:
    return bool(state.head) and not first.flag & LOST and checksum_of(first.frame) != state.head


def _bounded(finding: Finding, state: SegmentState) -> Finding:
    """A break that nothing follows affects all up to the segment's end."""
    affects = finding.affects
    if affects.first_offset is None or affects.last_offset is not None:
        return finding
    return replace(finding, affects=replace(affects, last_offset=state.end_offset - 1))


def _check_frame(path: str, each: FrameEntry, deep: bool) -> Iterator[Finding]:
    last = each.offset + each.messages - 1
    if each.flag & LOST:
        problem = "messages were lost before a repair, see repairs.json"
        yield Finding(path, each.position, problem, True, of_partition(path, each.offset, last))
    elif not is_known_flag(each.flag):
        problem = f"the frame has flag {each.flag:#x}, which is not known here"
        yield Finding(path, each.position, problem, affects=of_partition(path, each.offset, last))
    elif deep and each.flag & WRAPPER:
        try:
            inner = count_in_wrapper(each.frame)
        except InvalidFrame as error:
            yield Finding(path, each.position, str(error), affects=of_partition(path, each.offset, last))
            return
        if inner != each.messages:
            problem = f"the wrapper says {each.messages} messages, it holds {inner}"
            yield Finding(path, each.position, problem, affects=of_partition(path, each.offset, last))


def _astray(path: str, index: Index, entry: int) -> Finding:
    beside = path.removesuffix("log") + SegmentKind.INDEX.value
    problem = f"no frame of offset {index.offsets[entry]} begins at byte {index.positions[entry]} of the log"
    return Finding(beside, entry * OFFSET_ENTRY.size, problem + MADE_AGAIN, True, foreign=True)


def _read_index(
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
            yield unreadable(path, error, _all_of(path, state))
            return
    offsets, times = contents
    salt = salt_of(number, state.base_offset)
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
    for entry in range(sound):
        offset, position, _ = OFFSET_ENTRY.unpack_from(offsets, entry * OFFSET_ENTRY.size)
        index.offsets.append(offset)
        index.positions.append(position)


def _is_below(offsets: bytes, entry: int, size: int) -> bool:
    """Whether an entry is one of the checkpoint's part of the log, or might be: one behind it is no business of its."""
    return bool(OFFSET_ENTRY.unpack_from(offsets, entry * OFFSET_ENTRY.size)[1] < size)

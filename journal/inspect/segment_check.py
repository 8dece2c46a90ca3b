"""Segments and their indexes against what a checkpoint says of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace

from journal import filenames
from journal.errors import InvalidFrame
from journal.filenames import SegmentKind
from journal.frame import HEADER, HEADER_BYTES, LOST, WRAPPER
from journal.frame_check import count_in_wrapper
from journal.indexes import MAX_GAP
from journal.inspect.findings import Affected, Finding, of_partition, told_if_unreadable
from journal.inspect.index_check import MADE_AGAIN, Index, all_of, astray, read_index
from journal.inspect.journal_walk import file_size, read_some
from journal.inspect.segment_walk import FrameEntry, is_known_flag, walk_segment
from journal.interfaces import IFilesystem
from journal.segment import SegmentState, checksum_of
from journal.store_state import StoreState

Progress = Callable[[int], object]
"""Called with the number of bytes that have been read since the last call."""


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
            yield Finding(path, 0, "the file is missing", affects=all_of(path, state))
            continue
        walk = _check_segment(filesystem, store.number, directory, path, state, count, quick, deep)
        yield from told_if_unreadable(path, walk, all_of(path, state))
    if end != store.flushed_offset:
        problem = f"its segments end at offset {end}, the checkpoint says {store.flushed_offset}"
        yield Finding(directory, 0, problem, affects=_between(f"{directory}/", end, store.flushed_offset))


def _between(path: str, one: int, other: int) -> Affected:
    """The offsets about which two places disagree, whichever goes further."""
    return of_partition(path, min(one, other), max(one, other) - 1)


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
    for finding in read_index(filesystem, number, directory, state, index):
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
                yield astray(path, entry, index.offsets[entry], index.positions[entry])
            entry += 1
        sound_to = each.position + each.length
        if entry < len(index.positions) and index.positions[entry] == each.position:
            if index.offsets[entry] != each.offset:
                yield astray(path, entry, index.offsets[entry], index.positions[entry])
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

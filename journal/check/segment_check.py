"""The check of segments and their indexes against a checkpoint."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace

from journal.check.block_check import Block, blocks_of, failing
from journal.check.index_check import MADE_AGAIN, all_of, made_again, misled, read_index
from journal.errors import InvalidFrame
from journal.formats import filenames
from journal.formats.filenames import SegmentKind
from journal.formats.frame import GAP, LOST, WRAPPER
from journal.formats.frame_check import count_in_wrapper
from journal.formats.index import MAX_GAP, Anchor
from journal.formats.segment_header import SEGMENT_HEADER_BYTES
from journal.formats.store_state import SegmentState, StoreState
from journal.interfaces import IFilesystem
from journal.log.key_tables import read_table
from journal.log.segment import BrokenChain, Read, Segment, header_fault, walk_headers
from journal.vfs.file_window import file_size, opened, read_some
from journal.walks.findings import (
    Affected,
    Finding,
    of_partition,
    second_crc32c,
    told_if_unreadable,
    unreadable,
)
from journal.walks.segment_walk import FrameEntry, is_known_flag, walk_segment
from journal.words import span

Count = Callable[[int, int], object]
"""Called with how many messages have been found sound, and how many bytes have been read, since the last call."""


def check_store(
    filesystem: IFilesystem, store: StoreState, count: Count, quick: bool, deep: bool
) -> Iterator[Finding]:
    """Yield what is wrong with the segments of one partition as its checkpoint has them.

    ``quick`` checks sizes, headers and the frames behind the last index entry; ``deep`` opens wrappers too.
    """
    directory = store.directory
    end = store.segments[0].base_offset if store.segments else store.flushed_offset
    if store.start_offset < end:
        problem = f"the log starts at offset {store.start_offset}, the checkpoint has no segment below {end}"
        yield Finding(directory, 0, problem, affects=_between(f"{directory}/", store.start_offset, end))
    for state in store.segments:
        path = filenames.segment_file(directory, state.base_offset, SegmentKind.LOG, state.epoch)
        if state.base_offset != end:
            problem = f"the checkpoint has a segment from offset {state.base_offset} on behind one that ends at {end}"
            yield Finding(path, 0, problem, affects=_between(path, end, state.base_offset))
        end = state.end_offset
        if not filesystem.exists(path):
            yield Finding(path, 0, "the file is missing", affects=all_of(path, state))
            continue
        closed = state is not store.segments[-1]
        check = _SegmentCheck(filesystem, store, state, closed, count)
        yield from told_if_unreadable(path, check.run(quick, deep), all_of(path, state))
    if end != store.flushed_offset:
        problem = f"its segments end at offset {end}, the checkpoint says {store.flushed_offset}"
        yield Finding(directory, 0, problem, affects=_between(f"{directory}/", end, store.flushed_offset))


def _between(path: str, one: int, other: int) -> Affected:
    """Return the offsets about which two places disagree, whichever goes further."""
    return of_partition(path, min(one, other), max(one, other) - 1)


class _SegmentCheck:
    """The check of one segment."""

    def __init__(
        self, filesystem: IFilesystem, store: StoreState, state: SegmentState, closed: bool, count: Count
    ) -> None:
        self._filesystem = filesystem
        self._directory = store.directory
        self._segment = Segment.of(store.number, self._directory, state)
        self._path = self._segment.path
        self._state = state
        self._closed = closed
        self._count = count

    def run(self, quick: bool, deep: bool) -> Iterator[Finding]:
        """Check its header, its indexes and, by the running checksum, its bytes. If these are wrong, check
        frame by frame.
        """
        path, state = self._path, self._state
        known: list[Anchor] = []
        indexes = list(read_index(self._filesystem, self._directory, state, self._closed, known))
        first_bytes = read_some(self._filesystem, path, 0, SEGMENT_HEADER_BYTES)
        self._count(0, len(first_bytes))
        if (fault := header_fault(self._segment, first_bytes, second_crc32c)) is not None:
            affects = all_of(path, state) if fault.foreign else of_partition(path)
            yield Finding(path, 0, fault.what, affects=affects, foreign=fault.foreign)
            if fault.foreign:
                return
        yield from indexes
        yield from self._table()
        with opened(self._filesystem, path) as file:
            blocks = blocks_of(state, known, len(known) if quick else 0)
            wrong = list(failing(file.read, blocks, lambda size: self._count(0, size)))
            if wrong and not any(failing(file.read, blocks_of(state, ()), lambda size: self._count(0, size))):
                yield misled(self._segment.index_path, known, wrong)
                wrong = []
            sound = not wrong and file.size() >= state.size
            if not indexes:
                yield from self._gaps(file.read, known)
        if sound:
            self._count(state.end_offset - blocks[0].start.offset, 0)
        if not sound or deep:
            yield from self._walk(blocks[0].start, wrong, deep, counted=sound)

    def _table(self) -> Iterator[Finding]:
        """Yield that the table of keys is not sound: a crash may leave such a one, and nothing depends on it."""
        segment = self._segment
        try:
            is_there = self._filesystem.exists(segment.keys_path)
            if is_there and read_table(self._filesystem, segment, second_crc32c) is None:
                what = "the table of keys is not one of this segment as it is" + MADE_AGAIN
                yield Finding(segment.keys_path, 0, what, True)
        except OSError as error:
            yield unreadable(segment.keys_path, error, of_partition(segment.keys_path))

    def _gaps(self, read: Read, known: list[Anchor]) -> Iterator[Finding]:
        """Yield the places where an index has no entry for a frame that must have one."""
        for block in blocks_of(self._state, known):
            if block.end.position - block.start.position < MAX_GAP:
                continue
            with suppress(BrokenChain):  # the log's own check reports it
                for place in walk_headers(read, self._segment, block.start.offset, block.start.position):
                    if place.position >= block.end.position:
                        break
                    if place.position - block.start.position >= MAX_GAP:
                        beside = self._segment.index_path
                        behind = f"entries are missing behind byte {block.start.position} of the log"
                        what = behind + made_again(self._closed)
                        yield Finding(beside, 0, what, True, of_no_crash=self._closed)
                        return

    def _walk(self, start: Anchor, wrong: list[Block], deep: bool, counted: bool) -> Iterator[Finding]:
        path, state = self._path, self._state
        offset, broken, told = start.offset, False, list[tuple[int, int]]()
        for each in walk_segment(self._filesystem, path, offset, state.size, start.position):
            if isinstance(each, Finding):
                broken = True
                found = _bounded(each, state)
                told.append((found.affects.first_offset or 0, found.affects.last_offset or 0))
                yield found
                continue
            if not counted:
                self._count(each.messages, 0)
            offset = each.offset + each.messages
            for finding in _check_frame(path, each, deep, bool(state.epoch)):
                told.append((each.offset, offset - 1))
                yield finding
        if not broken and offset != state.end_offset:
            lost = _between(path, offset, state.end_offset)
            problem = (
                f"it ends at offset {offset}, the checkpoint says {state.end_offset} and {state.size} bytes"
            )
            at = min(state.size, file_size(self._filesystem, path))
            told.append((min(offset, state.end_offset), max(offset, state.end_offset) - 1))
            yield Finding(path, at, problem, affects=lost)
        for begin, end in wrong:
            last = end.offset - 1
            if not any(one <= last and begin.offset <= other for one, other in told):
                problem = (
                    f"the {end.position - begin.position} bytes from there on fail their checksum, though every frame "
                    f"fulfils its own: {span('offset', begin.offset, last)}, or a part of them, are another log's"
                )
                yield Finding(path, begin.position, problem, affects=of_partition(path, begin.offset, last))


def _bounded(finding: Finding, state: SegmentState) -> Finding:
    """Return a finding whose break affects everything up to the segment's end, because nothing sound follows it."""
    affects = finding.affects
    if affects.first_offset is None or affects.last_offset is not None:
        return finding
    return replace(finding, affects=replace(affects, last_offset=state.end_offset - 1))


def _check_frame(path: str, each: FrameEntry, deep: bool, is_compacted: bool) -> Iterator[Finding]:
    last = each.offset + each.messages - 1
    if each.flag & LOST:
        problem = "messages were lost before a repair, see repairs.json"
        yield Finding(path, each.position, problem, True, of_partition(path, each.offset, last))
    elif each.flag & GAP and not is_compacted:
        problem = "messages were removed there, though the segment was never compacted"
        yield Finding(path, each.position, problem, affects=of_partition(path, each.offset, last))
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

"""The tails of logs: bytes behind a log's end as the checkpoint has it, behind its segments' ends, or between them.

Bytes behind the log's end were flushed since, are torn, or do not belong there. A start cuts them off and writes again
what the journal holds of them. So none of it can be damaged; but messages that the journal does not hold have never
been sent.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

from journal.check.verification import size_if_readable
from journal.constants import SEGMENT_BYTES
from journal.formats.filenames import SegmentKind, partition_directory, segment_file
from journal.formats.segment_header import SEGMENT_HEADER_BYTES
from journal.formats.store_state import StoreState
from journal.vfs.file_window import read_some
from journal.vfs.filesystem import OSFilesystem
from journal.walks.findings import Finding
from journal.walks.log_reader import LogReader, OpenLogs
from journal.walks.segment_walk import header_of, segments, walk_segment
from journal.words import count_text
from spark.audit.claims.facts import Fact, What


class Tail(NamedTuple):
    """Bytes ``position`` to below ``end`` of a file, behind the log's end; a message there has at least ``offset``.

    At position 0 there is the header of a segment that was begun since.
    """

    topic: str
    partition: int
    number: int
    path: str
    offset: int
    position: int
    end: int


def tails(filesystem: OSFilesystem, stores: Iterable[StoreState]) -> list[Tail]:
    """Return the tails that these logs have now. The journal had their messages before."""
    found = []
    for store in stores:
        directory = partition_directory(store.topic, store.index, store.number)
        if not filesystem.exists(directory):
            continue
        places = {state.base_offset: (state.size, state.end_offset) for state in store.segments[-1:]}
        for base, path in segments(filesystem, directory):
            known = base >= store.flushed_offset or base in places
            position, offset = places.get(base, (0, base))
            size = size_if_readable(filesystem, path) if known else 0
            if size > position:
                found.append(Tail(store.topic, store.index, store.number, path, offset, position, size))
    return found


def check_tail(root: str, tail: Tail, reached: Mapping[int, int], quiet: bool) -> Iterator[Fact]:
    """Return messages in a tail that are above what the journal has ``reached``; unless ``quiet``, other bytes, too."""
    try:
        yield from _check_tail(root, tail, reached, quiet)
    except FileNotFoundError:
        return  # its topic was deleted meanwhile, or a start has cut it off


def _check_tail(root: str, tail: Tail, reached: Mapping[int, int], quiet: bool) -> Iterator[Fact]:
    end = reached.get(tail.number, tail.offset)
    first, last, position = -1, -1, -1
    place = Fact(What.VIOLATION, "undecided", tail.topic, tail.partition, tail.number, path=tail.path)
    filesystem, begin = OSFilesystem(root), max(tail.position, SEGMENT_HEADER_BYTES)
    if tail.position < begin and header_of(filesystem, tail.path) is None:
        yield from _torn(tail, tail.position, quiet)
        return
    for each in walk_segment(filesystem, tail.path, tail.offset, tail.end, begin):
        if isinstance(each, Finding):
            yield from _torn(tail, each.position, quiet)
            break
        last = each.offset + each.messages - 1
        if last >= end and position < 0:
            first, position = max(each.offset, end), each.position
    if position >= 0:
        what = "they lie behind the log's end by the checkpoint, and no record of the journal has decided them; a start"
        yield place._replace(first=first, last=last, position=position, text=f"{what} cuts them off")


def _torn(tail: Tail, position: int, quiet: bool) -> Iterator[Fact]:
    if not quiet:
        size = count_text(tail.end - position, "byte")
        what = f"{size} behind the log's end are no messages; a start cuts them off"
        yield Fact(
            What.NOTICE,
            "torn",
            tail.topic,
            tail.partition,
            tail.number,
            path=tail.path,
            position=position,
            text=what,
        )


def left_over(filesystem: OSFilesystem, stores: Iterable[StoreState]) -> Iterator[Fact]:
    """Return bytes that are never read: those behind a sealed segment's end, and segments that begin inside of what is
    known.

    A start leaves the former if the one before had flushed more to that file. It removes the latter; a power cut may
    undo that, and then they hold what the log does.
    """
    for store in stores:
        directory = partition_directory(store.topic, store.index, store.number)
        if not store.segments or not filesystem.exists(directory):
            continue
        known = {state.base_offset: state for state in store.segments}
        for base, path in segments(filesystem, directory):
            place = Fact(
                What.NOTICE, "partition", store.topic, store.index, store.number, path=path, position=0
            )
            epoch = known[base].epoch if base in known else 0
            if base in known and path != segment_file(directory, base, SegmentKind.LOG, epoch):
                what = "a file of a segment from before or after its compaction, a start removes it"
                yield place._replace(first=base, text=what)
            elif base in known and base != store.segments[-1].base_offset:
                size, end = size_if_readable(filesystem, path), known[base].size
                if size > end:
                    what = f"{count_text(size - end, 'byte')} follow the segment's end and are never read"
                    yield place._replace(position=end, text=what)
            elif base not in known and store.segments[0].base_offset < base < store.flushed_offset:
                what = f"a segment from offset {base} on lies inside of another, a start removes it"
                if _is_of_log(filesystem, store, path, base):
                    yield place._replace(first=base, text=what)
                else:
                    what = f"{what}; what it holds is not what the log has there"
                    yield place._replace(what=What.VIOLATION, first=base, text=what)


def _is_of_log(filesystem: OSFilesystem, store: StoreState, path: str, base: int) -> bool:
    """Return whether a file holds the frames that the log has from ``base`` on, and zeros behind them."""
    files = OpenLogs(filesystem)
    log = LogReader(files, store)
    try:
        for each in walk_segment(filesystem, path, base):
            if isinstance(each, Finding):
                return not read_some(filesystem, path, each.position, SEGMENT_BYTES).strip(b"\0")
            if each.offset >= store.flushed_offset:
                break
            if log.read(each.offset, each.length) != bytes(each.frame):
                return False
            log.advance(each.offset + each.messages, each.length)
    except FileNotFoundError:
        raise
    except OSError:
        return False
    finally:
        files.close()
    return True

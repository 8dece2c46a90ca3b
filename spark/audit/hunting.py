"""Looking for what must not be there: messages of transactions that were rolled back, or that nobody has decided.

What such a transaction had for a log is known by count, bytes and checksum. Every run of messages that nobody claims is
compared with that: checksums are kept from the first message on, and that of any run follows from those at its ends.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Final, NamedTuple

import numpy as np
from pyspark.sql import DataFrame

from journal.filesystem import OSFilesystem
from spark.audit.checksums import second_crc32c, shifted
from spark.audit.facts import Fact, What
from spark.audit.frames import Frames, walk
from spark.audit.slices import Slice

MOST: Final = 50_000
"""So many transactions are looked for, the newest."""
MOST_SHAPES: Final = 200
"""So many pairs of a count and a size are looked for in one log, the most frequent."""


class Shapes(NamedTuple):
    """What is looked for in one log: by (messages, bytes), the transactions by checksum; and how many are left out."""

    by_size: dict[tuple[int, int], dict[int, Fact]]
    left_out: int


def shapes(said: DataFrame) -> dict[int, Shapes]:
    """What is to be looked for, by log."""
    rows = said.where("messages > 0").orderBy("lsn", ascending=False).limit(MOST).collect()
    return arranged(map(Fact._make, rows))


def arranged(rows: Iterable[Fact]) -> dict[int, Shapes]:
    """These, by log."""
    found: dict[int, dict[tuple[int, int], dict[int, Fact]]] = {}
    for fact in rows:
        of_log = found.setdefault(fact.number, {})
        of_log.setdefault((fact.messages, fact.bytes), {})[fact.checksum] = fact
    made = {}
    for number, of_log in found.items():
        kept = sorted(of_log, key=lambda size: -len(of_log[size]))
        left = sum(len(of_log[size]) for size in kept[MOST_SHAPES:])
        made[number] = Shapes({size: of_log[size] for size in kept[:MOST_SHAPES]}, left)
    return made


def hunt(root: str, part: Slice, gaps: Sequence[tuple[int, int]], wanted: Shapes) -> Iterator[Fact]:
    """What of the transactions that are looked for lies in the gaps: offsets from, to below, that nobody claims."""
    if wanted.left_out:
        yield Fact(
            What.NOTICE, "not looked for", part.topic, part.partition, part.number,
            text=f"{wanted.left_out} transactions that were not committed: too many different sizes",
        )  # fmt: skip
    most = max(messages for messages, _ in wanted.by_size)
    run = _Run(most)
    gap = 0
    for each in walk(OSFilesystem(root), part):
        if not isinstance(each, Frames):
            run.clear()
            continue
        while gap < len(gaps) and gaps[gap][1] <= int(each.offset[0]):
            gap += 1
            run.clear()
        bare = each.unstamped()
        end = int(each.offset[-1] + each.held[-1])
        here = gap
        while here < len(gaps) and gaps[here][0] < end:
            low = int(np.searchsorted(each.offset, gaps[here][0]))
            high = int(np.searchsorted(each.offset, min(gaps[here][1], end)))
            if gaps[here][0] >= int(each.offset[0]):
                run.clear()
            run.extend(each, bare, low, high)
            for fact, first, last, position in run.found(wanted.by_size):
                who = f"transaction {fact.session}-{fact.serial}"
                xid = f" (xid {fact.xid})" if fact.xid else ""
                what = f"messages of {who}{xid}, which was not committed ({fact.kind}), are in the log"
                yield fact._replace(
                    what=What.VIOLATION, kind=fact.kind, first=first, last=last, path=part.path, position=position,
                    text=what, messages=0, bytes=0, checksum=0,
                )  # fmt: skip
            here += 1


class _Run:
    """Messages that follow each other and that nobody claims: as many of the last ones as can matter."""

    def __init__(self, most: int) -> None:
        self._most = most
        self.clear()

    def clear(self) -> None:
        """A new run begins."""
        self._offsets = np.empty(0, np.int64)
        self._positions = np.empty(0, np.int64)
        self._sizes = np.zeros(1, np.int64)
        self._checksums = np.zeros(1, np.uint32)
        self._seen = 0

    def extend(self, frames: Frames, bare: bytearray, low: int, high: int) -> None:
        """More of it."""
        if high <= low:
            return
        view = memoryview(bare)
        checksum = int(self._checksums[-1])
        starts = frames.start[low:high].tolist()
        ends = (frames.start[low:high] + frames.length[low:high]).tolist()
        checksums = []
        for start, end in zip(starts, ends, strict=True):
            checksum = second_crc32c(view[start:end], checksum)
            checksums.append(checksum)
        ends_of = frames.offset[low:high]
        keep = self._most
        self._seen = min(len(self._offsets), keep)
        sizes = self._sizes[-1] + np.cumsum(frames.length[low:high])
        self._offsets = np.concatenate([self._offsets[-keep:], ends_of])
        self._positions = np.concatenate([self._positions[-keep:], frames.at + frames.start[low:high]])
        self._sizes = np.concatenate([self._sizes[-keep - 1 :], sizes])
        self._checksums = np.concatenate([self._checksums[-keep - 1 :], np.array(checksums, np.uint32)])
        self._end = int(frames.offset[high - 1] + frames.held[high - 1])

    def found(self, by_size: dict[tuple[int, int], dict[int, Fact]]) -> Iterator[tuple[Fact, int, int, int]]:
        """(transaction, first offset, last, position) of what ends in what was added last."""
        if not len(self._offsets):
            return
        ends = np.append(self._offsets[1:], self._end)
        for (messages, size), wanted in by_size.items():
            stop = np.searchsorted(self._sizes, self._sizes[:-1] + size)
            fits = stop < len(self._sizes)
            begin = np.flatnonzero(fits)
            stop = stop[fits]
            fits = (self._sizes[stop] == self._sizes[begin] + size) & (stop > self._seen)
            begin, stop = begin[fits], stop[fits]
            fits = ends[stop - 1] - self._offsets[begin] == messages
            begin, stop = begin[fits], stop[fits]
            checksums = self._checksums[stop] ^ shifted(self._checksums[begin], size)
            for at in np.flatnonzero(np.isin(checksums, np.array(list(wanted), np.uint32))).tolist():
                first = int(self._offsets[begin[at]])
                fact = wanted[int(checksums[at])]
                yield fact, first, first + messages - 1, int(self._positions[begin[at]])

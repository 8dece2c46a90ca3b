"""The search for messages that must not be there: those of transactions that were rolled back or are undecided.

Such a transaction's messages for a log are known by count, bytes and checksum. Every run of messages that is not
claimed is compared with that: checksums are kept from the first message on, and the checksum of any run follows from
those at its ends.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from typing import Final, NamedTuple

import numpy as np
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from journal.vfs.filesystem import OSFilesystem
from spark.audit.claims.checksums import second_crc32c, shifted
from spark.audit.claims.directory import Directory
from spark.audit.claims.facts import Fact, What
from spark.audit.claims.frames import Frames, walk
from spark.audit.claims.slices import Slice

MOST: Final = 50_000
"""The most transactions that are searched for; the newest ones are taken."""
NOT_LOOKED_FOR: Final = "not looked for"
BY_CHANCE: Final = 0.01
"""The expected number of matches by chance above which a match proves nothing."""
MOST_SHAPES: Final = 200
"""The most pairs of a count and a size that are searched for in one log; the most frequent ones are taken."""


Content = tuple[int, int, int, int]
"""The columns that identify messages: their log, how many, their bytes, their checksum."""


def _content(fact: Fact) -> Content:
    return fact.number, fact.messages, fact.bytes, fact.checksum


class Shapes(NamedTuple):
    """The transactions searched for in one log: by (messages, bytes), then by checksum.

    ``left_out`` are those of them that are not looked for. ``by_chance`` is how often, at most, other messages would
    have one of these checksums, of 32 bits, without being the same. ``archived``: all that was committed is claimed.
    ``common`` is what somebody else had there rightly, byte for byte.
    """

    topic: str
    partition: int
    by_size: dict[tuple[int, int], dict[int, Fact]]
    left_out: int
    by_chance: float
    archived: bool
    common: Set[Content]


def shapes(said: DataFrame, claims: DataFrame, directory: Directory) -> dict[int, Shapes]:
    """Return what is searched for, by log; ``claims`` are the messages that may be there."""
    wanted = said.where("messages > 0")
    newest = wanted.orderBy("lsn", ascending=False).limit(MOST)
    rows = list(map(Fact._make, newest.collect()))
    if not rows:
        return {}
    counts = {row["number"]: row["count"] for row in wanted.groupBy("number").count().collect()}
    checksums = said.sparkSession.createDataFrame(
        [(each,) for each in {fact.checksum for fact in rows}], ["checksum"]
    )
    likewise = claims.join(F.broadcast(checksums), "checksum", "left_semi").select(*Fact._fields)
    return arranged(rows, map(Fact._make, likewise.toLocalIterator()), directory, counts)


def arranged(
    rows: Iterable[Fact],
    claims: Iterable[Fact],
    directory: Directory,
    counts: Mapping[int, int] | None = None,
) -> dict[int, Shapes]:
    """Return the shapes by log; ``counts`` are how many such transactions each log has in all."""
    found: dict[int, dict[tuple[int, int], dict[int, Fact]]] = {}
    common = {_content(claim) for claim in claims}
    for fact in rows:
        of_log = found.setdefault(fact.number, {})
        of_log.setdefault((fact.messages, fact.bytes), {})[fact.checksum] = fact
    made = {}
    for store in directory.checkpoint.stores:
        of_log = found.get(store.number, {})
        sizes = sorted(of_log, key=lambda size: -len(of_log[size]))[:MOST_SHAPES]
        kept = sum(len(of_log[size]) for size in sizes)
        left = (counts or {}).get(store.number, kept) - kept
        if kept or left:
            chance = (store.flushed_offset - store.start_offset) * kept / 2**32
            by_size = {size: of_log[size] for size in sizes}
            mine = {each for each in common if each[0] == store.number}
            made[store.number] = Shapes(
                store.topic, store.index, by_size, left, chance, directory.archives, mine
            )
    return made


def left_out(wanted: Mapping[int, Shapes]) -> Iterator[Fact]:
    """Return what an audit has not searched for."""
    for number, each in wanted.items():
        if each.left_out:
            what = (
                f"{each.left_out} transactions that were not committed had messages for this log and were not looked "
                f"for in it: only the newest {MOST} of all logs, and of one log those of {MOST_SHAPES} different sizes"
            )
            yield Fact(What.NOTICE, NOT_LOOKED_FOR, each.topic, each.partition, number, text=what)


def search(root: str, part: Slice, gaps: Sequence[tuple[int, int]], wanted: Shapes) -> Iterator[Fact]:
    """Find messages of these transactions in the gaps: ranges of offsets (from, to below) that are not claimed."""
    if not wanted.by_size:
        return
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
                what, text = _judged(fact, wanted)
                yield fact._replace(
                    what=what, kind=fact.kind, first=first, last=last, path=part.path, position=position, text=text,
                    messages=0, bytes=0, checksum=0,
                )  # fmt: skip
            here += 1


def _judged(fact: Fact, wanted: Shapes) -> tuple[What, str]:
    """Return how sure it is that these are messages of a transaction that was not committed."""
    xid = f" (xid {fact.xid})" if fact.xid else ""
    text = (
        f"messages of transaction {fact.session}-{fact.serial}{xid}, which was not committed ({fact.kind}), are in the "
        "log"
    )
    if not wanted.archived:
        return What.NOTICE, f"{text}, or were sent again: without an archive nothing says what was committed"
    if _content(fact) in wanted.common:
        return (
            What.NOTICE,
            f"{text}, or were sent again: the very same bytes, times and all, have been committed there",
        )
    if wanted.by_chance > BY_CHANCE:
        often = f"{wanted.by_chance:.2g}"
        return (
            What.NOTICE,
            f"{text}, or others of the same size and checksum: {often} such are to be expected",
        )
    return What.VIOLATION, f"{text}; or somebody has sent the very same bytes, times and all, once more"


class _Run:
    """Consecutive messages that are not claimed: as many of the last ones as can matter."""

    def __init__(self, most: int) -> None:
        self._most = most
        self.clear()

    def clear(self) -> None:
        """Begin a new run."""
        self._offsets = np.empty(0, np.int64)
        self._positions = np.empty(0, np.int64)
        self._sizes = np.zeros(1, np.int64)
        self._checksums = np.zeros(1, np.uint32)
        self._seen = 0

    def extend(self, frames: Frames, bare: bytearray, low: int, high: int) -> None:
        """Add frames to the run."""
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
        """Return (transaction, first offset, last, position) of matches that end in the frames added last."""
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

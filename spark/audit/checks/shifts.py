"""Shifted messages are at other offsets than they were given, because messages before them are missing or too many.

If one message is taken out and all others are numbered again, every claim behind it fails, although all claimed
messages are there. So the content of a failing claim is searched for in the whole slice: first where its neighbour was
found, then everywhere. Its checksum does not cover ids. Neighbours that are moved by the same number are reported once,
together.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby
from typing import Final, NamedTuple

import numpy as np

from journal.vfs.filesystem import OSFilesystem
from journal.words import count_text
from spark.audit.claims.checksums import join, second_crc32c
from spark.audit.claims.facts import Fact, What
from spark.audit.claims.frames import Frames, walk
from spark.audit.claims.slices import Slice
from spark.frame_columns import Numbers

MOST_SEARCHED: Final = 64
"""So many failing claims of a slice are searched for everywhere in it; others only where their neighbours were
found.
"""


class Failed(NamedTuple):
    """A claim that the log does not fulfil at its place, and the finding for it unless it is found elsewhere."""

    claim: Fact
    problem: Fact


class _Run:
    """Sound frames that follow each other, with sizes and checksums up to the beginning of each, and to the end."""

    def __init__(self) -> None:
        self._parts: list[tuple[Numbers, Numbers, Numbers]] = []
        self._size = self._checksum = 0
        self._end = -1

    def extend(self, frames: Frames) -> None:
        """Add frames to the run."""
        bare = memoryview(frames.unstamped())
        starts, lengths = frames.start.tolist(), frames.length.tolist()
        sizes, checksums = [], []
        for start, length in zip(starts, lengths, strict=True):
            sizes.append(self._size)
            checksums.append(self._checksum)
            self._size += length
            self._checksum = second_crc32c(bare[start : start + length], self._checksum)
        self._parts.append((frames.offset, np.array(sizes, np.int64), np.array(checksums, np.int64)))
        self._end = int(frames.offset[-1] + frames.held[-1])

    def done(self) -> _Places | None:
        """Return the run; None if it is empty."""
        if not self._parts:
            return None
        offsets, sizes, checksums = zip(*self._parts, strict=True)
        return _Places(
            np.concatenate([*offsets, [self._end]]),
            np.concatenate([*sizes, [self._size]]),
            np.concatenate([*checksums, [self._checksum]]),
        )


class _Places(NamedTuple):
    """The places where frames of a run begin, and where the last one ends: offsets, bytes before them, checksum of
    these.
    """

    offsets: Numbers
    sizes: Numbers
    checksums: Numbers

    def holds(self, claim: Fact, first: int) -> bool:
        """Return whether the claimed content is there from offset ``first`` on."""
        begin, end = np.searchsorted(self.offsets, [first, first + claim.messages]).tolist()
        if end >= len(self.offsets):
            return False
        if (int(self.offsets[begin]), int(self.offsets[end])) != (first, first + claim.messages):
            return False
        if int(self.sizes[end] - self.sizes[begin]) != claim.bytes:
            return False
        whole = join(int(self.checksums[begin]), claim.checksum, claim.bytes)
        return whole == int(self.checksums[end])

    def search(self, claim: Fact) -> Iterator[int]:
        """Yield each offset from which on the claimed content is there."""
        end = np.searchsorted(self.sizes, self.sizes + claim.bytes)
        end = np.minimum(end, len(self.sizes) - 1)
        fits = (self.sizes[end] - self.sizes == claim.bytes) & (
            self.offsets[end] - self.offsets == claim.messages
        )
        for first in self.offsets[fits].tolist():
            if self.holds(claim, first):
                yield first


def _runs(root: str, part: Slice) -> Iterator[_Places]:
    run = _Run()
    for each in walk(OSFilesystem(root), part):
        if isinstance(each, Frames):
            run.extend(each)
        elif (done := run.done()) is not None:
            yield done
            run = _Run()
    if (done := run.done()) is not None:
        yield done


class _Shift(NamedTuple):
    """A failing claim that was found ``by`` offsets behind its place, or before it if that is negative."""

    failed: Failed
    by: int


def findings(
    root: str, part: Slice, failed: Sequence[Failed], trailing: Fact | None, to_end: bool
) -> Iterator[Fact]:
    """Yield what is wrong with these claims, in their order; ``to_end``: no later claim of the slice is fulfilled.

    ``trailing`` says that what stands behind all claims is undecided; what of it is claimed, and moved, is not.
    A fact ``SHIFT`` has the claimed offsets from the first to the last of claims that are moved alike, how many they
    are (messages), and by how much (bytes).
    """
    end = -1
    if failed:
        shifts = _found(list(_runs(root, part)), failed)
        for by, group in groupby(shifts, lambda each: each.by):
            mine = list(group)
            if not by or (len(mine) == 1 and not (to_end and mine[0] is shifts[-1] and _is_in_order(shifts))):
                yield from (_alone(each, part, shifts) for each in mine)
                continue
            first, last = mine[0].failed, mine[-1].failed
            end = last.claim.last + 1 + by
            yield first.problem._replace(
                what=What.SHIFT, kind="shifted", first=first.claim.first, last=last.claim.last, session=-1, serial=-1,
                xid="", lsn=-1, messages=len(mine), bytes=by, text="",
            )  # fmt: skip
    if trailing is not None and trailing.last >= end:
        yield trailing._replace(first=max(trailing.first, end))


def _is_in_order(shifts: Sequence[_Shift]) -> bool:
    """Return whether the last claim is shifted in order with those before it; otherwise it has changed places with
    one.
    """
    before = shifts[-2] if len(shifts) > 1 else None
    if before is None or not before.by:
        return True
    return before.failed.claim.last + before.by < shifts[-1].failed.claim.first + shifts[-1].by


def _alone(each: _Shift, part: Slice, shifts: Sequence[_Shift]) -> Fact:
    """Return the finding for a claim that is reported by itself, with the place where it was found."""
    if not each.by:
        first, end = each.failed.claim.first, each.failed.claim.last + 1
        leaves = any(
            other.by and not part.first <= first + other.by <= end + other.by <= part.end for other in shifts
        )
        return each.failed.problem._replace(what=What.EDGE) if leaves else each.failed.problem
    place = each.failed.claim.first + each.by
    return each.failed.problem._replace(
        text=f"{each.failed.problem.text}; its messages stand at offset {place}"
    )


def _found(runs: Sequence[_Places], failed: Sequence[Failed]) -> list[_Shift]:
    """Return how far each claim is moved; 0 if it was not found."""
    shifts = []
    by, searched = 0, 0
    for each in failed:
        claim = each.claim
        if not (by and any(run.holds(claim, claim.first + by) for run in runs)):
            by = 0
            if searched < MOST_SEARCHED:
                searched += 1
                places = [first - claim.first for run in runs for first in run.search(claim)]
                by = min(places, key=abs, default=0)
        shifts.append(_Shift(each, by))
        by = by or (shifts[-2].by if len(shifts) > 1 else 0)
    return shifts


class Shifted:
    """All shifts of all logs, in which neighbours that are moved alike are one."""

    def __init__(self, rows: Iterable[Fact]) -> None:
        self._by_log: dict[int, list[Fact]] = {}
        for row in sorted(rows, key=lambda row: (row.number, row.first)):
            mine = self._by_log.setdefault(row.number, [])
            if mine and mine[-1].bytes == row.bytes:
                mine[-1] = mine[-1]._replace(last=row.last, messages=mine[-1].messages + row.messages)
            else:
                mine.append(row)

    def covers(self, claim: Fact) -> bool:
        """Return whether a claim that could not be searched for lies within claims that are moved alike."""
        return any(
            each.first <= claim.first and claim.last <= each.last
            for each in self._by_log.get(claim.number, [])
        )

    def shortens(self, short: Fact) -> bool:
        """Return whether a log ends ``short.messages`` messages too early only because messages before a shift are
        missing.

        The messages that were given these last offsets are not compared.
        """
        mine = self._by_log.get(short.number)
        return mine is not None and short.messages <= -mine[-1].bytes

    def violations(self) -> Iterator[Fact]:
        """Return one violation for each change."""
        for mine in self._by_log.values():
            before = 0
            for each in mine:
                yield each._replace(what=What.VIOLATION, messages=0, bytes=0, text=_text(each, before))
                before = each.bytes


def _text(each: Fact, before: int) -> str:
    by, change = each.bytes, each.bytes - before
    where = f"{count_text(abs(by), 'message')} {'behind' if by > 0 else 'before'} their places"
    claims = f"{each.messages:,} transactions and sends" if each.messages != 1 else "1 transaction or send"
    why = f"{'too many' if change > 0 else 'missing'} before that: {count_text(abs(change), 'message')}"
    why = f"{why} more" if before else why
    return (
        f"all messages from offset {each.first} to {each.last} ({claims}, byte for byte) stand {where}; {why}"
    )

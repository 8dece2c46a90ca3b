"""The check of one slice of a log against all claims on it: those of transactions, and of sends in the journal.

A claim says that messages from an offset on belong to a transaction or send: how many, how many bytes of frames, and
their checksum as they were sent. The part found of a claim that goes on in another slice is passed on, and joined
there.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

import numpy as np
import numpy.typing as npt

from journal.check import Finding
from journal.formats.filenames import REPAIRS
from journal.vfs.filesystem import OSFilesystem
from spark.audit.checks import shifts
from spark.audit.checks.shifts import Failed, Shifted
from spark.audit.checks.uncommitted import Shapes, search
from spark.audit.claims.checksums import join, second_crc32c
from spark.audit.claims.directory import is_taken, of_finding
from spark.audit.claims.entries import COMMIT, REMEMBERED, RETAINED, SEND
from spark.audit.claims.facts import By, Fact, What, sum_of_times
from spark.audit.claims.frames import Damage, Frames, Gap, walk
from spark.audit.claims.slices import Slice

EARLIEST: Final = 365 * 86_400_000_000
"""Times of 1970 come from clocks that were never set, or from seconds or milliseconds given for microseconds."""
LOWEST: Final = -(1 << 62)
"""Earlier times, which calendars do not have, count as one window."""
MOST_WINDOWS: Final = 20_000
"""The most windows of one slice; if its times are spread wider, that is reported and they are counted together."""


class Limits:
    """The limits of an audit: times are usual up to ``latest``, µs since 1970; and the length of a window."""

    def __init__(self, latest: int, window: int) -> None:
        self.latest = latest
        self.window = window


def check_slice(
    root: str,
    part: Slice,
    claims: Iterable[Fact],
    decided_from: int,
    limits: Limits,
    wanted: Shapes | None = None,
    live: str = "",
) -> Iterator[Fact]:
    """Return all facts about a slice. ``claims`` are those that touch it, by their first offsets.

    From offset ``decided_from`` on every message must be claimed (-1: from nowhere on). The ``wanted`` transactions are
    searched for in everything that is not claimed. ``live`` is where files are removed, if ``root`` is a copy of the
    state.
    """
    if is_taken(live or root, part):
        yield from _taken(claims, part)
        return
    check = _Check(part, iter(claims), decided_from, limits)
    filesystem = OSFilesystem(root)
    for each in walk(filesystem, part):
        if isinstance(each, Finding):
            yield of_finding(each, filesystem.exists(REPAIRS))
        elif isinstance(each, Damage):
            yield from check.damaged(each)
        elif isinstance(each, Gap):
            yield from check.removed(each)
        else:
            yield from check.sound(each)
    yield from check.finish()
    yield from shifts.findings(root, part, check.failed, check.trailing, check.failed_last)
    if wanted is not None and check.gaps:
        yield from search(root, part, check.gaps, wanted)


def _taken(claims: Iterable[Fact], part: Slice) -> Iterator[Fact]:
    """Return the facts about a slice whose file is gone: those of claims that go on in other slices."""
    what = "its file went away while the audit was made: retention has taken it, or the topic was deleted"
    yield Fact(
        What.NOTICE, "taken", part.topic, part.partition, part.number, part.first, part.end - 1, part.path, text=what
    )  # fmt: skip
    for fact in claims:
        yield fact._replace(what=What.PIECE, checksum=-1, lsn=part.first, slice=part.id)


class _Claim:
    """A claim while its messages are read."""

    __slots__ = (
        "across", "appended", "bytes", "checksum", "damaged", "end", "fact", "first", "is_removed", "messages",
    )  # fmt: skip

    def __init__(self, fact: Fact, part: Slice) -> None:
        self.fact = fact
        self.first = max(fact.first, part.first)
        self.end = min(fact.last + 1, part.end)
        self.messages = self.bytes = self.checksum = self.appended = 0
        self.damaged = ""
        self.across = ""
        self.is_removed = False


class _Check:
    """The state of the check of one slice."""

    def __init__(self, part: Slice, claims: Iterator[Fact], decided_from: int, limits: Limits) -> None:
        self._part = part
        self._claims = claims
        self._decided_from = decided_from
        self._limits = limits
        self._claim: _Claim | None = None
        self._claimed_to = part.first
        self._by: Fact | None = None
        self._windows: dict[int, list[int]] = {}
        self._messages = self._bytes = 0
        self._proven: dict[str, int] = {}
        self._odd: list[int] = []
        self._odd_count = 0
        self._pending: list[Fact] = []
        self.failed: list[Failed] = []
        self.failed_last = False
        """Whether the last of all claims has failed."""
        self.trailing: Fact | None = None
        """What is undecided behind all claims."""
        self.gaps: list[tuple[int, int]] = []
        """Ranges of offsets (from, to below) that are not claimed."""
        self._next()

    # -- frames and damage -----------------------------------------------------------------------------

    def damaged(self, damage: Damage) -> Iterator[Fact]:
        """Take a range of messages that are damaged."""
        yield self._violation("damaged frame", damage.first, damage.last, damage.position, damage.problem)
        while self._claim is not None and self._claim.first <= damage.last:
            if self._claim.end > damage.first:
                self._claim.damaged = damage.problem
            if self._claim.end - 1 > damage.last:
                break
            yield from self._end_claim(damage.position)
        yield from self._flush()

    def removed(self, gap: Gap) -> Iterator[Fact]:
        """Take a range of messages that a compaction removed: what had some of them cannot be proven any more."""
        while self._claim is not None and self._claim.first <= gap.last:
            if self._claim.end > gap.first:
                self._claim.is_removed = True
            if self._claim.end - 1 > gap.last:
                break
            yield from self._end_claim(gap.position)
        yield from self._flush()

    def sound(self, frames: Frames) -> Iterator[Fact]:
        """Take a run of sound frames."""
        first, end = int(frames.offset[0]), int(frames.offset[-1] + frames.held[-1])
        bare: bytearray | None = None
        unclaimed = np.ones(end - first, np.bool_)
        while self._claim is not None and self._claim.first < end:
            claim = self._claim
            unclaimed[max(claim.first - first, 0) : claim.end - first] = False
            if bare is None:
                bare = frames.unstamped()
            yield from self._take(claim, frames, bare, first, end)
            if claim.end > end:
                break
            yield from self._end_claim(self._position(frames, claim.first))
        self._count(frames, unclaimed)
        yield from self._flush()

    def _take(self, claim: _Claim, frames: Frames, bare: bytearray, first: int, end: int) -> Iterator[Fact]:
        offsets = frames.offset
        low = int(np.searchsorted(offsets, max(claim.first, first)))
        high = int(np.searchsorted(offsets, min(claim.end, end)))
        edge = int(offsets[low]) if low < len(offsets) else end
        if edge != max(claim.first, first):
            claim.across = (
                claim.across or f"a frame goes across offset {max(claim.first, first)}, where it begins"
            )
        stop = int(frames.start[high - 1] + frames.length[high - 1]) if high else 0
        if high <= low:
            return
        begin = int(frames.start[low])
        claim.checksum = second_crc32c(memoryview(bare)[begin:stop], claim.checksum)
        claim.bytes += stop - begin
        claim.messages += int(frames.held[low:high].sum())
        claim.appended = sum_of_times(1, frames.sum_of_times(low, high), claim.appended)
        yield from ()

    def finish(self) -> Iterator[Fact]:
        """Finish the slice."""
        part = self._part
        while self._claim is not None:
            yield from self._end_claim(part.end_position)
        yield from self._flush()
        self.trailing = next(self._unclaimed(part.end), None)
        if self._odd_count:
            first, last = self._odd[0], self._odd[-1]
            what = (
                f"{self._odd_count} messages have times before 1971 or after the audited checkpoint and a day"
            )
            yield self._violation("time", first, last, part.position, what)._replace(what=What.NOTICE)
        place = Fact(What.WINDOW, "log", part.topic, part.partition, part.number)
        for window, (messages, size, unclaimed) in sorted(self._windows.items()):
            yield place._replace(first=window, messages=messages, bytes=size, checksum=unclaimed)
        for by, messages in self._proven.items():
            yield place._replace(what=What.PROOF, kind=by, messages=messages)
        yield Fact(
            What.LOG, "", part.topic, part.partition, part.number, part.first, part.end - 1, part.path, part.position,
            messages=self._messages, bytes=self._bytes, slice=part.id,
        )  # fmt: skip

    # -- claims ----------------------------------------------------------------------------------------

    def _next(self) -> None:
        """Go to the next claim; one that takes messages of another claim is reported and skipped."""
        self._claim = None
        for fact in self._claims:
            claim = _Claim(fact, self._part)
            if claim.first < self._claimed_to and self._by is not None:
                same = (fact.session, fact.serial) == (self._by.session, self._by.serial)
                if same and fact.kind in (COMMIT, REMEMBERED):
                    continue  # it repeats the transaction's entry or record
                what = f"{_who(fact)} and {_who(self._by)} both have these messages"
                self._pending.append(
                    self._violation(
                        "twice", claim.first, min(claim.end, self._claimed_to) - 1, -1, what, fact
                    )
                )
                continue
            self._pending.extend(self._unclaimed(claim.first))
            self._claim, self._claimed_to, self._by = claim, claim.end, fact
            return

    def _unclaimed(self, end: int) -> Iterator[Fact]:
        if self._claimed_to < end:
            self.gaps.append((self._claimed_to, end))
        first = max(self._claimed_to, self._decided_from, self._part.first)
        if self._decided_from >= 0 and first < end:
            what = "no record of the journal, and no transaction, has decided these messages"
            yield self._violation("undecided", first, end - 1, -1, what)

    def _end_claim(self, position: int) -> Iterator[Fact]:
        claim = self._claim
        assert claim is not None
        fact = claim.fact
        whole = (claim.first, claim.end) == (fact.first, fact.last + 1)
        if claim.is_removed and not claim.damaged:
            if not whole:
                yield fact._replace(what=What.PIECE, checksum=-1, lsn=claim.first, slice=self._part.id)
            self._next()
            return
        problem = claim.damaged or claim.across
        if problem and not whole:
            yield fact._replace(what=What.PIECE, checksum=-1, lsn=claim.first, slice=self._part.id)
        wrong: Fact | None = None
        if problem:
            kind = "transaction" if fact.session >= 0 else "send"
            what = f"{_who(fact)} is not whole: {problem}"
            wrong = self._violation(kind, claim.first, claim.end - 1, position, what, fact)
        elif whole:
            found = claim.messages, claim.bytes, claim.checksum
            wrong = judge(fact, found, claim.appended, self._part.path, position)
        if wrong is not None and (claim.damaged or fact.text == RETAINED or not whole):
            yield wrong
        elif wrong is not None:
            self.failed.append(Failed(fact, wrong))
        elif whole:
            by = _proven_by(fact)
            self._proven[by] = self._proven.get(by, 0) + claim.messages
        if fact.text != RETAINED:
            self.failed_last = wrong is not None
        if not (problem or whole):
            yield fact._replace(
                what=What.PIECE, path=self._part.path, position=position, messages=claim.messages, bytes=claim.bytes,
                checksum=claim.checksum, lsn=claim.first, slice=self._part.id, appended=claim.appended,
                text=f"{fact.messages} {fact.bytes} {fact.checksum} {fact.appended} {fact.lsn} {fact.text}",
            )  # fmt: skip
        self._next()

    def _position(self, frames: Frames, offset: int) -> int:
        place = int(np.searchsorted(frames.offset, offset))
        return frames.at + int(frames.start[min(place, len(frames.start) - 1)])

    # -- counting --------------------------------------------------------------------------------------

    def _count(self, frames: Frames, unclaimed: npt.NDArray[np.bool_]) -> None:
        times, sizes = frames.times()
        self._messages += len(times)
        self._bytes += int(frames.length.sum())
        odd = (times < EARLIEST) | (times > self._limits.latest)
        if odd.any():
            at = np.flatnonzero(odd)
            self._odd_count += len(at)
            self._odd += [int(frames.offset[0] + at[0]), int(frames.offset[0] + at[-1])]
            times = np.maximum(times, LOWEST)
        begins, place = np.unique(times - times % self._limits.window, return_inverse=True)
        messages = np.bincount(place, minlength=len(begins))
        summed = np.bincount(place, weights=sizes, minlength=len(begins))
        nobodys = np.bincount(place, weights=unclaimed, minlength=len(begins))
        columns = (begins.tolist(), messages.tolist(), summed.tolist(), nobodys.tolist())
        for begin, *counts in zip(*columns, strict=True):
            row = self._windows.get(begin)
            if row is None:
                row = self._windows.setdefault(begin if len(self._windows) < MOST_WINDOWS else -1, [0, 0, 0])
            for n, count in enumerate(counts):
                row[n] += int(count)

    def _violation(
        self, kind: str, first: int, last: int, position: int, text: str, fact: Fact | None = None
    ) -> Fact:
        part = self._part
        found = Fact(
            What.VIOLATION,
            kind,
            part.topic,
            part.partition,
            part.number,
            first,
            last,
            part.path,
            position,
            text=text,
        )
        if fact is not None:
            found = found._replace(session=fact.session, serial=fact.serial, xid=fact.xid, lsn=fact.lsn)
        return found

    def _flush(self) -> Iterator[Fact]:
        pending, self._pending = self._pending, []
        yield from pending


def judge(fact: Fact, found: tuple[int, int, int], appended: int, path: str, position: int) -> Fact | None:
    """Return what is wrong with a claim if this was found: messages, bytes, checksum; and the sum of append times."""
    said = (fact.messages, fact.bytes, fact.checksum)
    if fact.text == RETAINED:
        said = (fact.last - fact.first + 1, found[1], found[2])
    if said != found:
        what = (
            f"{_who(fact)} has {said[0]} messages of {said[1]} bytes with checksum {said[2]:08x} there, the log "
            f"{found[0]} of {found[1]} with {found[2]:08x}"
        )
    elif fact.appended not in (-1, appended) and found[0] == fact.messages:
        what = f"{_who(fact)} has other append times than the log"
    else:
        return None
    kind = "transaction" if fact.session >= 0 else "send"
    return fact._replace(
        what=What.VIOLATION, kind=kind, path=path, position=position, text=what, messages=0, bytes=0, checksum=0
    )  # fmt: skip


def joined(rows: Iterable[Fact], shifted: Shifted) -> Iterator[Fact]:
    """Join the parts of claims that go across slices; there are at most a few for each slice.

    Messages that a log lacks at its end are reported here, too, unless it ends earlier because messages before are
    missing.
    """
    by_claim: dict[tuple[int, int, int, int, int], list[Fact]] = {}
    for row in rows:
        if row.what in (What.SHORT, What.EDGE):
            if not (shifted.shortens(row) if row.what == What.SHORT else shifted.covers(row)):
                yield row._replace(what=What.VIOLATION, messages=0, bytes=0, checksum=0)
            continue
        by_claim.setdefault((row.number, row.first, row.last, row.session, row.serial), []).append(row)
    for mine in by_claim.values():
        mine.sort(key=lambda each: each.slice)
        if any(each.checksum < 0 for each in mine):
            continue  # reported with the damage
        messages = size = checksum = appended = 0
        for each in mine:
            messages, size = messages + each.messages, size + each.bytes
            checksum = join(checksum, each.checksum, each.bytes)
            appended = sum_of_times(1, each.appended, appended)
        said = mine[0].text.split(" ", 5)
        whole = mine[0]._replace(
            what=What.CLAIM, messages=int(said[0]), bytes=int(said[1]), checksum=int(said[2]),
            appended=int(said[3]), lsn=int(said[4]), text=said[5],
        )  # fmt: skip
        wrong = judge(whole, (messages, size, checksum), appended, mine[0].path, mine[0].position)
        if wrong is None:
            place = Fact(What.PROOF, _proven_by(whole), whole.topic, whole.partition, whole.number)
            yield place._replace(messages=messages)
        elif not shifted.covers(whole):
            yield wrong
    yield from shifted.violations()


def _proven_by(claim: Fact) -> By:
    if claim.kind == REMEMBERED:
        return By.CHECKPOINT
    return By.JOURNAL if claim.kind in (COMMIT, SEND) else By.ARCHIVE


def _who(fact: Fact) -> str:
    if fact.session >= 0:
        xid = f" (xid {fact.xid})" if fact.xid else ""
        return f"transaction {fact.session}-{fact.serial}{xid}"
    return f"the sends of LSN {fact.lsn} and on"

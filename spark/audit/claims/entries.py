"""Who says what of the logs: entries of the outcome archive, and the sends and entries that the journal still holds."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

from journal.check.journal_walk import surveyed, walk_file
from journal.errors import InvalidFrame
from journal.formats import filenames
from journal.formats.frame import walk as walk_run
from journal.formats.outcome_entry import OUTCOMES_TOPIC, ArchivedOutcome, Part, unpack_frame
from journal.formats.record import ArchiveSet, Messages, TransactionCommitted
from journal.parties import parts_of, parts_of_actor
from journal.transaction import State
from journal.transactions.table import remembered
from journal.vfs.filesystem import OSFilesystem
from journal.wal.reader import JournalEntry
from spark.audit.claims.checksums import second_crc32c
from spark.audit.claims.facts import Fact, What
from spark.audit.claims.frames import Frames, walk
from spark.audit.claims.live_files import stable
from spark.audit.claims.slices import Slice, SliceMap
from spark.source.checkpoints import newest_checkpoint

SHAPE = "shape"
"""What a transaction that was not committed had for a log: nothing of it may be there."""
RETAINED = "retained"
"""Marks a claim of which retention has taken a part: only that the rest is there can be proven."""
COMMIT = "commit"
"""A claim by a commit's record: it says what an entry of the archive says, too, and less."""
SEND = "send"
"""A claim by the records of sends that follow each other."""
REMEMBERED = "checkpoint"
"""A claim by an outcome in the newest checkpoint: it says no more than a commit's record."""
NEVER = 1 << 62
"""An LSN above all others."""
MERGED_BYTES = 256 * 1024
"""Sends of one log that follow each other in the journal are claimed together up to so many bytes."""


class Ground:
    """What claims are laid upon: the logs, their slices, and the checkpoint's LSN."""

    def __init__(
        self,
        slices: list[Slice],
        names: dict[int, tuple[str, int]],
        archive: int,
        archived: int,
        lsn: int,
        next_partition: int,
    ) -> None:
        self.slices = SliceMap(slices)
        self.names = names
        """Topic and index, by a log's number."""
        self.archive = archive
        """The number of the archive's partition, 0 without one."""
        self.archived = archived
        """The archive's entries below this offset are in its segments."""
        self.lsn = lsn
        self.next_partition = next_partition
        """No log had this number yet, or a higher one."""

    def is_edge(self, number: int, offset: int) -> bool:
        """Whether the log's segments begin or end there: a claim that goes across could not be compared."""
        return offset in self.slices.span(number)

    def contradiction(self, lsn: int, part: Part) -> str:
        """What is wrong with the place that an entry names; empty if nothing is known against it."""
        if lsn > self.lsn:
            return ""
        if part.number >= self.next_partition:
            return f"it names partition number {part.number}, the next one would get {self.next_partition}"
        topic, index = self.names.get(part.number, (part.topic, part.index))
        if (topic, index) == (part.topic, part.index):
            return ""
        return f"partition number {part.number} is {part.topic}-{part.index} in it, and {topic}-{index}"

    def lay(self, claim: Fact) -> Iterator[Fact]:
        """The claim for each slice that it touches; what is wrong with it if it touches none."""
        start, end = self.slices.span(claim.number)
        if claim.number not in self.names:
            return  # of a topic that was deleted
        topic, index = self.names[claim.number]
        claim = claim._replace(topic=topic, partition=index)
        # Of a commit that the archive has, its entry reports it; of an outcome in the checkpoint, the verification.
        is_reported = claim.kind == REMEMBERED or (claim.kind == COMMIT and bool(self.archive))
        if claim.last >= end and claim.lsn <= self.lsn and not is_reported:
            what = (
                f"the log ends at offset {end}, messages up to {claim.last} were decided at LSN {claim.lsn}"
            )
            kind = "transaction" if claim.session >= 0 else "send"
            yield claim._replace(
                what=What.SHORT,
                kind=kind,
                text=what,
                first=max(claim.first, end),
                messages=claim.last + 1 - end,
            )
        if claim.first < start or claim.last >= end:
            claim = claim._replace(
                first=max(claim.first, start), last=min(claim.last, end - 1), text=RETAINED
            )
        if claim.first <= claim.last:
            for part in self.slices.holding(claim.number, claim.first, claim.last + 1):
                yield claim._replace(slice=part.id)


def archive_facts(root: str, part: Slice, ground: Ground) -> Iterator[Fact]:
    """All that a slice of the archive says. Its damage is reported where it is checked as a log."""
    before = 0
    for each in walk(OSFilesystem(root), part):
        if not isinstance(each, Frames):
            continue
        starts, lengths = each.start.tolist(), each.length.tolist()
        for offset, start, length in zip(each.offset.tolist(), starts, lengths, strict=True):
            frame = each.data[start : start + length]
            for fact in entry_facts(frame, offset, part.path, each.at + start, ground):
                if fact.what == What.ENTRY:
                    if fact.lsn < before:
                        what = f"it is of LSN {fact.lsn}, the one before it of LSN {before}"
                        yield fact._replace(what=What.VIOLATION, kind="archive", text=what)
                    before = fact.lsn
                yield fact


def entry_facts(
    frame: bytes | memoryview, offset: int, path: str, position: int, ground: Ground
) -> Iterator[Fact]:
    """What one entry says."""
    place = Fact(What.VIOLATION, "archive", OUTCOMES_TOPIC, 0, ground.archive, offset, offset, path, position)
    try:
        entry = unpack_frame(frame)
    except InvalidFrame as error:
        yield place._replace(text=str(error))
        return
    about = place._replace(
        session=entry.session,
        serial=entry.serial,
        xid=str(entry.xid) if entry.xid is not None else "",
        lsn=entry.lsn,
    )
    if problem := _contradiction(entry):
        yield about._replace(text=f"the entry contradicts itself: {problem}")
    yield about._replace(
        what=What.ENTRY, kind=entry.state.name.lower(), messages=entry.messages, bytes=entry.bytes,
        checksum=entry.checksum, text=json.dumps(_facts(entry)),
    )  # fmt: skip
    for part in entry.parts:
        if problem := ground.contradiction(entry.lsn, part):
            yield about._replace(text=problem)
        claim = about._replace(
            what=What.CLAIM, kind="transaction", topic=part.topic, partition=part.index, number=part.number,
            first=part.base_offset, last=part.base_offset + part.count - 1, messages=part.count, bytes=part.bytes,
            checksum=part.checksum, path=path, position=position,
        )  # fmt: skip
        if entry.state is State.COMMITTED:
            yield from ground.lay(claim)
        else:
            yield claim._replace(what=SHAPE, kind="rolled back")


def _facts(entry: ArchivedOutcome) -> dict[str, Any]:
    by, by_principal = parts_of_actor(entry.by)
    owner = dict(zip(("principal", "client", "address"), parts_of(entry.owner), strict=True))
    return {
        "cause": entry.cause.name.lower(), "wall": entry.wall, "began": entry.began, "prepared": entry.prepared,
        "by": by, "by_principal": by_principal, "why": entry.why, "owner": owner, "heuristic": entry.heuristic,
        "partitions": len(entry.parts),
    }  # fmt: skip


def _contradiction(entry: ArchivedOutcome) -> str:
    messages, size = sum(part.count for part in entry.parts), sum(part.bytes for part in entry.parts)
    if (messages, size) != (entry.messages, entry.bytes):
        return f"{entry.messages} messages of {entry.bytes} bytes, in its partitions {messages} of {size}"
    if len(entry.parts) == 1 and entry.parts[0].checksum != entry.checksum:
        return f"checksum {entry.checksum:08x}, in its only partition {entry.parts[0].checksum:08x}"
    return ""


def journal_facts(root: str, path: str, ground: Ground) -> Iterator[Fact]:
    """What one file of the journal says of the logs: sends, commits, and entries that the archive has not yet.

    A file that is gone, for a broker at work needs it no more, and damage are reported as a gap.
    """
    filesystem = OSFilesystem(root)
    files = stable(root, lambda: surveyed(filesystem))
    number = next((n for n, file in enumerate(files) if file.path == path), None)
    lsns = [file.lsn for file in files if file.path > path]
    gap = Fact(What.GAP, path=path, lsn=min(lsns, default=NEVER))
    header = files[number].header if number is not None else None
    if header is None:
        yield gap
        return
    following = files[number + 1].header if number is not None and number + 1 < len(files) else None
    records = _RecordFacts(ground)
    try:
        for each in walk_file(filesystem, path, header, following):
            if isinstance(each, JournalEntry):
                yield from records.facts(each)
            elif not each.harmless:
                yield gap
    except FileNotFoundError:
        yield gap
    yield from records.finish()
    if not filesystem.exists(path):
        yield gap  # it may have been written over while it was read


def _entries(entry: JournalEntry, sent: Messages, ground: Ground) -> Iterator[Fact]:
    offset = sent.base_offset
    for position, length, _, count in walk_run(entry.data):
        if offset >= ground.archived:
            yield from entry_facts(
                entry.data[position : position + length], offset, entry.path, entry.position, ground
            )
        offset += count


class _RecordFacts:
    """What the records of a file tell, and how far they let each log go."""

    def __init__(self, ground: Ground) -> None:
        self._ground = ground
        self._sends = _Sends(ground)
        self._ends: dict[int, int] = {}

    def facts(self, entry: JournalEntry) -> Iterator[Fact]:
        """Another record."""
        match entry.record:
            case ArchiveSet():
                yield Fact(What.TURNED, path=entry.path, position=entry.position, lsn=entry.lsn)
            case Messages() as sent:
                if sent.partition == self._ground.archive:
                    yield from _entries(entry, sent, self._ground)
                self._reach(sent.partition, sent.base_offset + sent.count)
                yield from self._sends.take(entry, sent)
            case TransactionCommitted() as committed:
                for placed in committed.placements:
                    self._reach(placed.partition, placed.base_offset + placed.count)
                yield from _committed(entry, committed, self._ground)

    def _reach(self, number: int, end: int) -> None:
        self._ends[number] = max(end, self._ends.get(number, 0))

    def finish(self) -> Iterator[Fact]:
        """The file is over."""
        yield from self._sends.finish()
        for number, end in self._ends.items():
            yield Fact(What.END, number=number, last=end)


def _committed(entry: JournalEntry, committed: TransactionCommitted, ground: Ground) -> Iterator[Fact]:
    """By a commit's record alone messages are known by their places: whose they are, and how many."""
    for placed in committed.placements:
        yield from ground.lay(
            Fact(
                What.CLAIM, COMMIT, number=placed.partition, first=placed.base_offset,
                last=placed.base_offset + placed.count - 1, path=entry.path, position=entry.position,
                session=committed.session, serial=committed.serial, lsn=entry.lsn, messages=placed.count,
                text=RETAINED,
            )
        )  # fmt: skip


def remembered_facts(root: str, ground: Ground) -> Iterator[Fact]:
    """What the newest checkpoint remembers of committed transactions; the archive and the journal may say more."""
    checkpoint = newest_checkpoint(root)
    path = filenames.checkpoint_file(checkpoint.header.lsn)
    for outcome in remembered(checkpoint):
        for placed in outcome.placements:
            yield from ground.lay(
                Fact(
                    What.CLAIM, REMEMBERED, number=placed.partition, first=placed.base_offset,
                    last=placed.base_offset + placed.count - 1, path=path, session=outcome.number.session,
                    serial=outcome.number.serial, xid=str(outcome.xid) if outcome.xid is not None else "",
                    messages=placed.count, text=RETAINED,
                )
            )  # fmt: skip


class _Sends:
    """Sends by log, put together while they follow each other."""

    def __init__(self, ground: Ground) -> None:
        self._ground = ground
        self._open: dict[int, Fact] = {}

    def take(self, entry: JournalEntry, sent: Messages) -> Iterator[Fact]:
        """Another send."""
        if sent.partition not in self._ground.names:
            return
        known = self._open.get(sent.partition)
        if known is not None and (
            known.last + 1 != sent.base_offset
            or known.bytes >= MERGED_BYTES
            or self._ground.is_edge(sent.partition, sent.base_offset)
        ):
            yield from self._ground.lay(known)
            known = None
        if known is None:
            known = Fact(
                What.CLAIM, SEND, number=sent.partition, first=sent.base_offset, last=sent.base_offset - 1,
                path=entry.path, position=entry.position, lsn=entry.lsn,
            )  # fmt: skip
        self._open[sent.partition] = known._replace(
            last=known.last + sent.count, messages=known.messages + sent.count,
            bytes=known.bytes + len(entry.data), checksum=second_crc32c(_bare(entry.data), known.checksum),
        )  # fmt: skip

    def finish(self) -> Iterator[Fact]:
        """The file is over."""
        for known in self._open.values():
            yield from self._ground.lay(known)


def _bare(data: memoryview) -> bytes:
    """The frames with ids zero, as they were sent."""
    found = bytearray(data)
    for position, _, _, _ in walk_run(data):
        found[position + 8 : position + 16] = bytes(8)
    return bytes(found)

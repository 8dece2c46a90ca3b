"""Claims by entries of the outcome archive, and by outcomes in the newest checkpoint."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from journal.errors import InvalidFrame
from journal.formats import filenames
from journal.parties import parts_of, parts_of_actor
from journal.records.outcome_entry import OUTCOMES_TOPIC, ArchivedOutcome, Part, unpack_frame
from journal.records.queue_entries import QUEUE_TOPIC_PREFIX
from journal.transaction_states import State
from journal.transactions.table import remembered
from journal.vfs.filesystem import OSFilesystem
from spark.audit.claims.facts import Fact, What, sum_of_times
from spark.audit.claims.frames import Frames, walk
from spark.audit.claims.slices import Slice, SliceMap
from spark.source.checkpoints import newest_checkpoint

SHAPE = "shape"
"""What a transaction that was not committed had for a log: none of it may be there."""
RETAINED = "retained"
"""Marks a claim of which retention has taken a part: only the rest can be proven."""
COMMIT = "commit"
"""A claim by a commit's record: it repeats an entry of the archive, with fewer fields."""
SEND = "send"
"""A claim by the records of consecutive sends."""
REMEMBERED = "checkpoint"
"""A claim by an outcome in the newest checkpoint: it has no more than a commit's record."""
NEVER = 1 << 62
"""An LSN above all others."""


class Ground:
    """The ground of claims: the logs, their slices, and the checkpoint's LSN."""

    def __init__(
        self,
        slices: list[Slice],
        names: dict[int, tuple[str, int]],
        archive: int,
        archived: int,
        lsn: int,
        next_partition: int,
        wall_offsets: Mapping[int, int],
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
        """The lowest number that no log has had yet."""
        self.wall_offsets = wall_offsets
        """The wall clock at journal time 0, by start."""

    def is_edge(self, number: int, offset: int) -> bool:
        """Return whether the log's segments begin or end at this offset: a claim across it could not be compared."""
        return offset in self.slices.span(number)

    def contradiction(self, lsn: int, part: Part) -> str:
        """Return what is wrong with the place that an entry names; empty if nothing is known to be."""
        if lsn > self.lsn:
            return ""
        if part.number >= self.next_partition:
            return f"it names partition number {part.number}, the next one would get {self.next_partition}"
        topic, index = self.names.get(part.number, (part.topic, part.index))
        if (topic, index) == (part.topic, part.index):
            return ""
        return f"partition number {part.number} is {part.topic}-{part.index} in it, and {topic}-{index}"

    def lay(self, claim: Fact) -> Iterator[Fact]:
        """Return the claim for each slice that it touches; a finding if it touches none."""
        start, end = self.slices.span(claim.number)
        if claim.number not in self.names:
            return  # the log of a deleted topic
        topic, index = self.names[claim.number]
        claim = claim._replace(topic=topic, partition=index)
        # The archive's entry reports a commit that it has, and the verification an outcome in the checkpoint.
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
    """Return the facts of a slice of the archive. Its damage is reported where it is checked as a log."""
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
    """Return the facts of one entry."""
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
            checksum=part.checksum, path=path, position=position, appended=sum_of_times(part.count, entry.wall),
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
    """What is said of all messages must be what is said of their partitions, and of what went through exchanges."""
    routed, routed_bytes = entry.routed
    messages, size = routed, routed_bytes
    for part in entry.parts:
        if not part.topic.startswith(QUEUE_TOPIC_PREFIX):
            messages += part.count
            size += part.bytes
        elif part.count > routed or part.bytes > routed_bytes:
            return (
                f"{routed} messages of {routed_bytes} bytes for queues, for one {part.count} of {part.bytes}"
            )
    if (messages, size) != (entry.messages, entry.bytes) or min(entry.routed) < 0:
        return f"{entry.messages} messages of {entry.bytes} bytes, in its partitions {messages} of {size}"
    checksums = [part.checksum for part in entry.parts if part.count == entry.messages]
    wrong = next((each for each in checksums if each != entry.checksum), None)
    if wrong is not None:
        return f"checksum {entry.checksum:08x}, in a partition that has all of it {wrong:08x}"
    return ""


def remembered_facts(root: str, ground: Ground) -> Iterator[Fact]:
    """Return the facts of committed transactions in the newest checkpoint; the archive and the journal may have
    more.
    """
    checkpoint = newest_checkpoint(root)
    path = filenames.checkpoint_file(checkpoint.header.lsn)
    for outcome in remembered(checkpoint):
        for placed in outcome.placements:
            yield from ground.lay(
                Fact(
                    What.CLAIM, REMEMBERED, number=placed.partition, first=placed.base_offset,
                    last=placed.base_offset + placed.count - 1, path=path, session=outcome.number.session,
                    serial=outcome.number.serial, xid=str(outcome.xid) if outcome.xid is not None else "",
                    messages=placed.count, text=RETAINED, appended=sum_of_times(placed.count, outcome.wall),
                )
            )  # fmt: skip

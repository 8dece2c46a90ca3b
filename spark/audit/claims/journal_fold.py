"""The audit's own fold of the journal's records: what they claim of the logs, and how far each log may go.

It is independent of the code that starts, verifications and repairs use (:mod:`journal.check.effects`,
:mod:`journal.folds`): where that code is wrong, the logs differ from the claims made here.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import closing
from typing import Any

from msgspec.structs import replace

from journal.errors import InvalidFrame
from journal.formats.checkpoint import Checkpoint, CheckpointHeader
from journal.formats.frame import unstamped, walk
from journal.formats.store_state import StoreState
from journal.interfaces import IFilesystem
from journal.log import catalog
from journal.records.record import (
    ArchiveSet,
    Due,
    Messages,
    Published,
    Started,
    TopicAltered,
    TopicCreated,
    TopicDeleted,
    TransactionCommitted,
    sends,
)
from journal.transactions import outcome_archive
from journal.vfs.filesystem import OSFilesystem
from spark.audit.claims.checksums import second_crc32c
from spark.audit.claims.entries import COMMIT, NEVER, RETAINED, SEND, Ground, entry_facts
from spark.audit.claims.facts import Fact, What, sum_of_times
from spark.audit.claims.journal_reader import Decided, JournalFile, journal_files, records
from spark.audit.claims.live_files import stable

MERGED_BYTES = 256 * 1024
"""The most bytes of consecutive sends to one log that are claimed together."""


def of_journal(filesystem: IFilesystem) -> Checkpoint:
    """Return a checkpoint for a data directory that has none: at LSN 0, with all that logs hold behind their ends.

    It has the topics that there are at last, and the clock of the last start. No broker has a checkpoint in its first
    minute: a start then takes all from the journal, which must go back to the first record. Whether it does, and
    whether there had been a checkpoint, is reported by who verifies the rest.
    """
    stores: dict[int, StoreState] = {}
    next_partition, at, wall_offset, archives = 1, 0, 0, False
    for each in _all(filesystem):
        match each.record:
            case Started() as started:
                at, wall_offset = started.at, started.wall - started.at
            case TopicCreated() as made:
                next_partition = made.first_partition + made.partitions
                for index, number in enumerate(range(made.first_partition, next_partition)):
                    stores[number] = StoreState(number, made.topic, index, 0, 0, 0, [], made.settings, 0)
            case TopicDeleted() as gone:
                stores = {number: store for number, store in stores.items() if store.topic != gone.topic}
            case TopicAltered() as altered:
                for number, store in stores.items():
                    if store.topic == altered.topic:
                        stores[number] = replace(store, settings=altered.settings)
                if (added := altered.added) is not None:
                    next_partition = added.first_partition + added.partitions
                    for index in range(added.partitions):
                        number, place = added.first_partition + index, added.first_index + index
                        stores[number] = StoreState(
                            number, altered.topic, place, 0, 0, 0, [], altered.settings, 0
                        )
            case ArchiveSet() as turned:
                archives = turned.on
    folds: dict[str, list[Any]] = {
        "catalog": [catalog.HeadRow(next_partition, wall_offset)],
        "archive": [outcome_archive.HeadRow(archives, 0)],
    }
    return Checkpoint(CheckpointHeader(0, 1, 0, at, 0), folds, list(stores.values()))


def journal_facts(root: str, path: str, ground: Ground) -> Iterator[Fact]:
    """Return the facts of one file of the journal: sends, commits, and entries that the archive does not have yet.

    A file that is gone, because a broker at work no longer needs it, and damage are reported as a gap.
    """
    filesystem = OSFilesystem(root)
    files = stable(root, lambda: journal_files(filesystem))
    number = next((n for n, file in enumerate(files) if file.path == path), None)
    lsns = [file.lsn for file in files if file.path > path]
    gap = Fact(What.GAP, path=path, lsn=min(lsns, default=NEVER))
    if number is None:
        yield gap
        return
    following = files[number + 1] if number + 1 < len(files) else None
    fold = _RecordFacts(ground)
    try:
        for each in records(filesystem, files[number], following):
            yield from fold.facts(each) if each is not None else (gap,)
    except FileNotFoundError:
        yield gap
    yield from fold.finish()
    if not filesystem.exists(path):
        yield gap  # it may have been overwritten while it was read


def _entries(entry: Decided, sent: Messages, ground: Ground) -> Iterator[Fact]:
    offset = sent.base_offset
    for position, length, _, count in walk(entry.data):
        if offset >= ground.archived:
            yield from entry_facts(
                entry.data[position : position + length], offset, entry.path, entry.position, ground
            )
        offset += count


def wall_offsets(
    filesystem: IFilesystem, files: Sequence[JournalFile], checkpoint: Checkpoint
) -> dict[int, int]:
    """Return the wall clock at journal time 0 by start, as the checkpoint and each start's first record say it."""
    found = {checkpoint.header.start: catalog.head_of_catalog(checkpoint).wall_offset}
    for file in files:
        with closing(records(filesystem, file, None)) as entries:
            first = next(entries, None)
        if first is not None and isinstance(first.record, Started):
            found[first.start] = first.record.wall - first.record.at
    return found


def _appended(entry: Decided, messages: int, ground: Ground) -> int:
    """Return the sum of the append times of so many messages that a record places; -1 if it is not known."""
    wall_offset = ground.wall_offsets.get(entry.start)
    return -1 if wall_offset is None else sum_of_times(messages, entry.record.at + wall_offset)


class _RecordFacts:
    """The facts of a file's records, and how far they let each log go."""

    def __init__(self, ground: Ground) -> None:
        self._ground = ground
        self._sends = _Sends(ground)
        self._ends: dict[int, int] = {}

    def facts(self, entry: Decided) -> Iterator[Fact]:
        """Take another record. An impossible one is reported, and claims nothing."""
        if problem := _impossible(entry):
            what = f"{type(entry.record).__name__} at LSN {entry.lsn}: {problem}"
            yield Fact(
                What.VIOLATION, "journal", path=entry.path, position=entry.position, lsn=entry.lsn, text=what
            )
            return
        match entry.record:
            case ArchiveSet():
                yield Fact(What.TURNED, path=entry.path, position=entry.position, lsn=entry.lsn)
            case Messages() | Due() | Published() as record:
                if isinstance(record, Messages) and record.partition == self._ground.archive:
                    yield from _entries(entry, record, self._ground)
                for sent, frames in sends(record, entry.data):
                    self._reach(sent.partition, sent.base_offset + sent.count)
                    yield from self._sends.take(entry, sent, frames)
            case TransactionCommitted() as committed:
                for placed in committed.placements:
                    self._reach(placed.partition, placed.base_offset + placed.count)
                yield from _committed(entry, committed, self._ground)

    def _reach(self, number: int, end: int) -> None:
        self._ends[number] = max(end, self._ends.get(number, 0))

    def finish(self) -> Iterator[Fact]:
        """Finish the file."""
        yield from self._sends.finish()
        for number, end in self._ends.items():
            yield Fact(What.END, number=number, last=end)


def _committed(entry: Decided, committed: TransactionCommitted, ground: Ground) -> Iterator[Fact]:
    """Claim the messages of a commit's record by place and count."""
    for placed in committed.placements:
        yield from ground.lay(
            Fact(
                What.CLAIM, COMMIT, number=placed.partition, first=placed.base_offset,
                last=placed.base_offset + placed.count - 1, path=entry.path, position=entry.position,
                session=committed.session, serial=committed.serial, lsn=entry.lsn, messages=placed.count,
                text=RETAINED, appended=_appended(entry, placed.count, ground),
            )
        )  # fmt: skip


class _Sends:
    """Sends by log, joined while they follow each other."""

    def __init__(self, ground: Ground) -> None:
        self._ground = ground
        self._open: dict[int, Fact] = {}

    def take(self, entry: Decided, sent: Messages, frames: memoryview) -> Iterator[Fact]:
        """Take another send."""
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
                path=entry.path, position=entry.position, lsn=entry.lsn, appended=0,
            )  # fmt: skip
        appended = _appended(entry, sent.count, self._ground)
        self._open[sent.partition] = known._replace(
            last=known.last + sent.count, messages=known.messages + sent.count,
            bytes=known.bytes + len(frames), checksum=second_crc32c(unstamped(frames), known.checksum),
            appended=-1 if appended < 0 else sum_of_times(1, appended, known.appended),
        )  # fmt: skip

    def finish(self) -> Iterator[Fact]:
        """Finish the file."""
        for known in self._open.values():
            yield from self._ground.lay(known)


def _impossible(entry: Decided) -> str:
    """Return why a record is impossible after any other; empty if it is not."""
    match entry.record:
        case Messages() | Due() | Published() as record:
            places = []
            try:
                for sent, frames in sends(record, entry.data):
                    places.append((sent.base_offset, sent.count))
                    held = sum(count for *_, count in walk(frames))
                    if held != sent.count:
                        return f"it says {sent.count} messages, it holds {held}"
            except InvalidFrame as error:
                return str(error)
        case TransactionCommitted() as committed:
            places = [(placed.base_offset, placed.count) for placed in committed.placements]
        case _:
            return ""
    return "no log has such offsets" if any(base + count > NEVER for base, count in places) else ""


def _all(filesystem: IFilesystem) -> Iterator[Decided]:
    """Yield the records of all files that can be read."""
    files = journal_files(filesystem)
    for file, following in zip(files, [*files[1:], None], strict=True):
        yield from (each for each in records(filesystem, file, following) if each is not None)

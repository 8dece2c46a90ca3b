"""The verification whether a directory is as it was written. It reads everything, believes nothing, and changes
nothing.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterator
from dataclasses import replace

from journal.check.checkpoint_check import check_catalog, check_staged
from journal.check.decision_check import check_decisions
from journal.check.effects import Effect, effect_of
from journal.check.gap_check import check_gaps
from journal.check.log_check import CrossCheck
from journal.check.proof_check import unproven_findings
from journal.check.queue_check import check_queues
from journal.check.record_check import RecordCheck
from journal.check.schedule_check import Placed, check_schedule, placed_by
from journal.check.segment_check import check_store
from journal.check.strays import strays
from journal.check.tally import Tally
from journal.errors import CorruptData, CorruptJournal
from journal.formats import filenames
from journal.formats.checkpoint import Checkpoint
from journal.formats.repair_notes import RESTORE_UNFINISHED, UNFINISHED, repair_notes, told
from journal.formats.store_state import StoreState
from journal.formats.version_file import DAMAGED, is_damaged
from journal.formats.witness import NOTHING, WITNESS_LOST, Witness, read_witness
from journal.interfaces import IFilesystem
from journal.records.journal_headers import FileHeader
from journal.records.record import Due, LogStartMoved, Published, TopicAltered, TopicCreated
from journal.recovery.first_use import check_version
from journal.transaction_states import State, TransactionNumber
from journal.transactions.table import live_rows
from journal.vfs.file_window import file_size
from journal.wal.end_scan import JournalScan, own_witness, stranger
from journal.wal.reader import JournalEntry
from journal.wal.writer import Journal
from journal.walks.checkpoint_walk import checkpoint_lsns, checkpoints, reason_of
from journal.walks.findings import Affected, Finding, told_if_unreadable, unreadable
from journal.walks.journal_walk import (
    NOT_NEEDED,
    JournalFile,
    chain_findings,
    header_findings,
    leaves_out,
    surveyed,
    walk_file,
)

Progress = Callable[[str, int], object]
"""Called with what is being read, and how many bytes were read since the last call."""


class Level(enum.Enum):
    """How much a verification proves; docs/cli.md describes it for people."""

    QUICK = "quick"
    """Journal, checkpoints and staged files byte by byte; of segments the sizes, headers, indexes and ends."""
    FULL = "full"
    """Every byte of the segments too, and every entry of the indexes against them."""
    DEEP = "deep"
    """And the journal against the logs, message by message; batches opened."""


def verify(
    filesystem: IFilesystem,
    level: Level = Level.FULL,
    tally: Tally | None = None,
    progress: Progress | None = None,
    records: bool = False,
) -> Iterator[Finding]:
    """Yield everything that is wrong with a directory that no broker has open. Memory grows with the broker's own
    state.

    Segments are checked as far as the newest sound checkpoint knows them; beyond it the journal has the bytes. A file
    that cannot be read is a finding as well, and all others are read; a directory that cannot be raises ``OSError``,
    one of another format version :class:`UnknownFormat`.
    With ``records`` those of the journal are compared with each other also where the logs are not: for who has read the
    logs.
    """
    check_version(filesystem)
    return _Verification(filesystem, level, tally or Tally(), progress or _nobody, records).run()


def planned_bytes(filesystem: IFilesystem, level: Level) -> int:
    """Return about how many bytes a verification will read, to show its progress."""
    names = [file.path for file in surveyed(filesystem)]
    names += [filenames.checkpoint_file(lsn) for lsn in checkpoint_lsns(filesystem)]
    total = sum(size_if_readable(filesystem, name) for name in names)
    sound = [each for each in checkpoints(filesystem) if isinstance(each, Checkpoint)]
    if sound:
        total += sum(e.size for row in live_rows(sound[-1]) for e in row.entries[: row.file_entries])
    if sound and level is not Level.QUICK:
        total += sum(segment.size for store in sound[-1].stores for segment in store.segments)
    return total


def _nobody(what: str, count: int) -> None:
    """Show no progress."""


class _Verification:
    """One run."""

    def __init__(
        self, filesystem: IFilesystem, level: Level, tally: Tally, progress: Progress, records: bool
    ) -> None:
        self._filesystem = filesystem
        self._level = level
        self._tally = tally
        self._progress = progress
        self._records = records
        self._rolled_back: set[TransactionNumber] = set()
        self._created: set[int] = set()
        self._moved: dict[int, int] = {}
        """To which offset the starts of logs are moved above the newest checkpoint, by partition."""
        self._placed: dict[int, Placed] = {}
        self._following: RecordCheck

    def run(self) -> Iterator[Finding]:
        """Run all steps, in order."""
        yield from repair_findings(self._filesystem)
        sound: list[Checkpoint] = []
        for each in checkpoints(self._filesystem):
            if isinstance(each, Finding):
                yield each
            else:
                sound.append(each)
                self._read(filenames.checkpoint_file(each.header.lsn))
        self._tally.checkpoints = len(sound)
        newest = sound[-1] if sound else None
        try:
            witness = read_witness(self._filesystem)
        except OSError as error:
            witness = None
            yield unreadable(filenames.WITNESS, error)
        else:
            if witness is None and surveyed(self._filesystem):
                yield Finding(filenames.WITNESS, 0, WITNESS_LOST, True)
        self._following = RecordCheck(newest)
        yield from self._journal(sound, witness or NOTHING)
        if newest is not None and (self._records or self._level is Level.DEEP):
            yield from check_decisions(self._filesystem, newest)
        if newest is not None:
            yield from check_catalog(self._filesystem, newest)
            yield from check_queues(newest, self._moved)
            reads = self._level is not Level.QUICK
            yield from check_schedule(self._filesystem, newest, reads, self._placed)
            yield from self._staged(newest)
            for store in newest.stores:
                yield from self._store(store)
            yield from check_gaps(self._filesystem, newest)
        yield from strays(self._filesystem, newest, self._created)

    def _read(self, path: str) -> None:
        try:
            size = size_if_readable(self._filesystem, path)
        except FileNotFoundError:
            # a checkpoint is gone since it was listed; a missing journal file is reported where it is read
            size = 0
        self._tally.files += 1
        self._tally.bytes += size
        self._progress(path, size)

    # -- the journal -------------------------------------------------------------------------------

    def _journal(self, sound: list[Checkpoint], witness: Witness) -> Iterator[Finding]:
        files = surveyed(self._filesystem)
        self._tally.journal_files = len(files)
        needed = sound[-1].header.needed_from if sound else 1
        strangers = [Finding(path, 0, what) for path, what in foreign(files, sound, witness).items()]
        yield from strangers
        if strangers:
            self._following.interrupted()
        files = [file for file in files if file.path not in {each.path for each in strangers}]
        for finding in chain_findings(files, needed):
            if not finding.harmless:
                self._following.interrupted()
            yield finding
        yield from header_findings(files)
        cross = self._cross_check(sound, files) if self._records or self._level is Level.DEEP else None
        for number, file in enumerate(files):
            self._read(file.path)
            if file.header is None:
                continue
            before = files[number - 1].header if number else None
            if cross is not None and number and not _continues(before, file.header):
                cross.interrupted(file.header.start, file.header.previous_end)
            dead = number < needed_from(files, needed)
            following = files[number + 1].header if number + 1 < len(files) else None
            walk = walk_file(self._filesystem, file.path, file.header, following)
            for each in told_if_unreadable(file.path, walk, Affected(first_lsn=file.lsn)):
                if isinstance(each, JournalEntry):
                    yield from self._record(each, file.header.start, sound, cross)
                elif each.harmless:
                    yield each
                else:
                    yield self._missing(each, dead, file.header.start, cross)
        if cross is not None:
            yield from cross.ended()
        if self._following.is_complete:
            newest = sound[-1] if sound else None
            scanned = list(refusal(self._filesystem, newest, witness))
            yield from scanned or unproven_findings(self._filesystem, newest, self._following)

    def _missing(self, damage: Finding, dead: bool, start: int, cross: CrossCheck | None) -> Finding:
        """Return the finding for missing records of a start; ``dead``: nothing needs the file any more."""
        if cross is not None:
            cross.interrupted(start)
        if dead:
            return _not_needed(damage)
        self._following.interrupted()
        return damage

    def _record(
        self, entry: JournalEntry, start: int, sound: list[Checkpoint], cross: CrossCheck | None
    ) -> Iterator[Finding]:
        """Yield what is wrong with a record of a file of that start; the first finding is the one by which a start
        refuses it.
        """
        effect = effect_of(entry)
        self._note(entry, effect, sound)
        found = cross.follow(entry, effect) if cross is not None else iter(())
        if (wrong := self._following.follow(entry, effect, start)) is not None:
            yield replace(next(found, wrong), refused=wrong.refused, affects=wrong.affects)
        yield from found

    def _cross_check(self, sound: list[Checkpoint], files: list[JournalFile]) -> CrossCheck:
        newest = sound[-1] if sound else None
        files = unbroken(files)
        reached = (each for each in sound if reaches_back(files, each.header.lsn + 1))
        oldest = next(reached, newest)  # a power cut may bring older ones back, whose records are gone
        whole = is_whole(files)
        if whole:
            oldest = None  # everything was decided by records that exist
        cross = CrossCheck(self._filesystem, oldest, newest, self._tally, self._level is Level.DEEP, sound)
        if oldest is None and not whole:
            cross.begins_amid()
        return cross

    def _note(self, entry: JournalEntry, effect: Effect, sound: list[Checkpoint]) -> None:
        self._tally.records += 1
        if self._level is not Level.QUICK and isinstance(
            entry.record, Due | Published
        ):  # else nothing is compared
            self._placed.update(placed_by(entry))
        if not sound or entry.lsn <= sound[-1].header.lsn:
            return
        if effect.number is not None and effect.outcome is State.ROLLED_BACK:
            self._rolled_back.add(effect.number)
        elif isinstance(entry.record, (TopicCreated, TopicAltered)) and entry.record.added is not None:
            self._created.update(entry.record.added.numbers)
        elif isinstance(entry.record, LogStartMoved):
            self._moved[entry.record.partition] = entry.record.start_offset

    # -- what a checkpoint refers to ---------------------------------------------------------------

    def _staged(self, checkpoint: Checkpoint) -> Iterator[Finding]:
        for row in live_rows(checkpoint):
            size, finding = check_staged(self._filesystem, row)
            if row.file_entries:
                self._tally.staged_files += 1
                self._tally.files += 1
                self._tally.bytes += size
                self._progress(filenames.STAGED_DIRECTORY, size)
            if finding is not None and row.number not in self._rolled_back:
                yield finding

    def _store(self, store: StoreState) -> Iterator[Finding]:
        tally = self._tally
        tally.partitions += 1
        tally.segments += len(store.segments)
        tally.files += 3 * len(store.segments)
        name = f"{store.topic}-{store.index}"

        def count(messages: int, size: int) -> None:
            tally.messages += messages
            tally.bytes += size
            self._progress(name, size)

        quick, deep = self._level is Level.QUICK, self._level is Level.DEEP
        yield from check_store(self._filesystem, store, count, quick, deep)


def repair_findings(filesystem: IFilesystem) -> Iterator[Finding]:
    """Yield findings about repairs: each one, with its losses; and one that was begun and not finished, as a restore
    may be. And one about a file ``txbroker.version`` that says nothing.
    """
    if filesystem.exists(filenames.RESTORE):
        yield Finding(filenames.RESTORE, 0, RESTORE_UNFINISHED)
    if filesystem.exists(filenames.REPAIR_PLAN):
        yield Finding(filenames.REPAIR_PLAN, 0, UNFINISHED)
    try:
        for note in repair_notes(filesystem):
            yield Finding(filenames.REPAIRS, 0, told(note), True)
    except CorruptData as error:
        yield Finding(filenames.REPAIRS, 0, reason_of(error), True)
    except OSError as error:
        yield unreadable(filenames.REPAIRS, error)
    if is_damaged(filesystem):
        yield Finding(filenames.VERSION, 0, f"{DAMAGED}; a start writes it anew", True)


def size_if_readable(filesystem: IFilesystem, path: str) -> int:
    """Return a file's length; 0 if it cannot be opened, which is reported where it is read."""
    try:
        return file_size(filesystem, path)
    except FileNotFoundError:
        raise
    except OSError:
        return 0


def foreign(files: list[JournalFile], sound: list[Checkpoint], witness: Witness) -> dict[str, str]:
    """Return texts about the journal files that were written in another data directory, by path."""
    known = sound[-1].header if sound else None
    headers = [file.header for file in files if file.header is not None]
    witness = own_witness(headers, known, witness)
    return {
        file.path: f"it is of another data directory than {says}"
        for file in files
        if file.header is not None and (says := stranger(file.header, known, witness))
    }


def refusal(filesystem: IFilesystem, checkpoint: Checkpoint | None, witness: Witness) -> Iterator[Finding]:
    """Yield what a start would refuse of the journal, by running the start's own check."""
    if not filesystem.exists(filenames.JOURNAL_DIRECTORY):
        if checkpoint is not None:
            lsn = checkpoint.header.lsn
            problem = (
                f"the directory is missing, and the checkpoint says that records were forced to LSN {lsn}"
            )
            yield Finding(filenames.JOURNAL_DIRECTORY, 0, problem, affects=Affected(last_lsn=lsn))
        return
    notes: list[str] = []
    scan = JournalScan(filesystem, Journal(filesystem), witness, notes, notes.append)
    try:
        scan.scan(checkpoint)
    except CorruptJournal as error:
        yield Finding(error.path, error.position, f"a start is refused: {reason_of(error)}")


def needed_from(files: list[JournalFile], needed: int) -> int:
    """The number of the newest file that begins at or below what is needed: no start reads those before it."""
    found = [
        n for n, file in enumerate(files) if file.header is not None and file.header.previous_end <= needed
    ]
    return found[-1] if found else 0


def is_whole(files: list[JournalFile]) -> bool:
    """Whether the journal still goes back to the very first record of all."""
    first = files[0].header if files else None
    return first is not None and first.start == 1 and not first.previous_first


def unbroken(files: list[JournalFile]) -> list[JournalFile]:
    """The newest files between which nothing is missing. A power cut may undo the removal of some before them."""
    for number in range(len(files) - 1, 0, -1):
        header = files[number].header
        if header is None or not _continues(files[number - 1].header, header):
            return files[number:]
    return files


def reaches_back(files: list[JournalFile], lsn: int) -> bool:
    """Whether the journal's first file begins at or below that LSN."""
    first = files[0].header if files else None
    return first is not None and first.previous_end <= lsn


def _continues(before: FileHeader | None, header: FileHeader) -> bool:
    """Whether nothing is missing between two files."""
    return before is not None and header.previous_first == before.first_lsn and not leaves_out(before, header)


def _not_needed(finding: Finding) -> Finding:
    return Finding(finding.path, finding.position, finding.problem + NOT_NEEDED, True, finding.affects)

"""The diagnosis says what a repair would change and what would be lost, before anything is written."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from msgspec.structs import replace

from journal.check import Finding, Level, verify
from journal.check.effects import effect_of
from journal.errors import Irreparable
from journal.folds.queues import DeclaredQueue, QueuesFold
from journal.formats import filenames
from journal.formats.checkpoint import Checkpoint, packed_checkpoint
from journal.formats.filenames import SegmentKind
from journal.formats.repair_notes import RESTORE_UNFINISHED
from journal.formats.store_state import SegmentState
from journal.formats.witness import NOTHING, Witness, pack_witness, read_witness
from journal.interfaces import IFilesystem
from journal.recovery.first_use import check_version
from journal.repair.access_traces import has_trace
from journal.repair.evidence import Finder
from journal.repair.file_pieces import Change, Piece
from journal.repair.journal_choice import Choice, choose
from journal.repair.journal_files import plan_journal
from journal.repair.journal_runs import SoundFile, entries, sound_files
from journal.repair.losses import (
    Loss,
    LostRecords,
    Names,
    later_lsns,
    lost_access,
    lost_lsns,
    lost_offsets,
    unproven_messages,
    unproven_offsets,
)
from journal.repair.segment_plan import DamagedSegment, SegmentFiles, is_proven, segments_of
from journal.repair.staged_plan import StagedPlan, plan_staged
from journal.transaction_states import State, TransactionNumber
from journal.transactions.state import TransactionRow
from journal.transactions.table import live_rows
from journal.vfs.file_window import file_size
from journal.wal.end_scan import own_witness, stranger
from journal.walks.checkpoint_walk import checkpoints
from journal.walks.findings import Affected
from journal.walks.segment_walk import partitions, segments
from journal.words import count_text

Progress = Callable[[str, int], object]


@dataclass(slots=True)
class Diagnosis:
    """A diagnosis: ``damage`` is what was found, ``changes`` make the directory start, and ``lost`` is what that costs.

    ``rollbacks`` are transactions that can only be rolled back, which the repair then does. ``tails`` (path, position)
    are bytes that a start will cut off; the repair copies them as evidence first. ``indexes`` are made again once the
    directory starts. With ``cut_logs`` that start cuts the logs to what the checkpoint and the kept journal have, even
    where the segments hold more. ``access_may_be_old``: a change of users, rules or the switch may be lost, and the
    directory is to let in nobody but its owner until he has confirmed what is left.
    """

    damage: list[Finding] = field(default_factory=list)
    changes: list[Change] = field(default_factory=list)
    lost: list[Loss] = field(default_factory=list)
    rollbacks: list[TransactionNumber] = field(default_factory=list)
    tails: list[tuple[str, int]] = field(default_factory=list)
    indexes: list[tuple[int, int]] = field(default_factory=list)
    cut_logs: bool = False
    access_may_be_old: bool = False

    @property
    def is_sound(self) -> bool:
        """Return whether there is nothing to repair."""
        return not self.changes and not self.rollbacks and not self.cut_logs

    @property
    def size(self) -> int:
        """Return how many bytes a repair writes."""
        return sum(change.size for change in self.changes)


def diagnose(
    filesystem: IFilesystem, progress: Progress | None = None, accept_unproven: bool = False
) -> Diagnosis:
    """Decide what a repair would do; writes nothing. Raises :class:`Irreparable`, and :class:`UnknownFormat`.

    With ``accept_unproven`` the repair keeps frames behind damage that fulfil their own checksums, though nothing
    proves that they belong to this log.
    """
    check_version(filesystem)
    if filesystem.exists(filenames.RESTORE):
        raise Irreparable(RESTORE_UNFINISHED, filenames.RESTORE)
    return _Diagnosing(filesystem, progress or _silent, accept_unproven).run()


def _silent(what: str, count: int) -> None:
    """Ignore progress: the caller does not watch it."""


class _Diagnosing:
    """The state of one diagnosis while it is made."""

    def __init__(self, filesystem: IFilesystem, progress: Progress, accept_unproven: bool) -> None:
        self._filesystem = filesystem
        self._accept = accept_unproven
        self._files = SegmentFiles(filesystem)
        self._result = Diagnosis()
        findings = list(verify(filesystem, Level.DEEP, progress=progress))
        _refuse_to_go_without([f for f in findings if f.unreadable])
        ours = [
            f for f in findings
            if f.path not in (filenames.REPAIRS, filenames.REPAIR_PLAN) and not f.of_decision
        ]  # fmt: skip
        self._damaged = {f.path for f in ours if not f.harmless and not f.unproven}
        self._unproven = [f for f in ours if f.unproven]
        self._refused = next((f.affects.first_lsn for f in ours if f.refused), None)
        self._bad_indexes = {f.path for f in ours if f.path.endswith((".index", ".time"))}
        self._result.damage = [f for f in ours if not f.harmless or f.path in self._bad_indexes]
        found = list(checkpoints(filesystem))
        self._sound = [each for each in found if isinstance(each, Checkpoint)]
        self._bad_checkpoints = [each for each in found if isinstance(each, Finding)]
        self._newest = self._sound[-1] if self._sound else None
        self._rows = live_rows(self._newest) if self._newest is not None else []
        self._witness = read_witness(filesystem) or NOTHING
        self._names = Names()

    def run(self) -> Diagnosis:
        """Take all steps of the diagnosis in order."""
        result = self._result
        files = self._own(sound_files(self._filesystem, []))
        self._refuse_to_guess(files)
        for finding in self._bad_checkpoints:
            result.changes.append(
                Change(finding.path, None, "it is damaged; the other one, or the journal, has all")
            )
            if finding not in result.damage:
                result.damage.append(finding)
        journal = any(path.startswith(filenames.JOURNAL_DIRECTORY) for path in self._damaged)
        choice = choose(files, self._newest, self._witness.forced)
        if not journal:
            choice.cut, choice.gaps = False, []
        if self._refused is not None and self._refused < choice.end:
            choice.cut, choice.end = True, self._refused
        damaged = self._damaged_segments()
        finder = self._follow_all(files, damaged)
        staged = plan_staged(self._filesystem, self._rows, self._damaged, choice.gaps, finder)
        self._settle(choice, staged)
        if journal or choice.cut:
            self._journal(files, choice)
        if self._unproven and not choice.cut:
            result.lost.append(later_lsns(choice.end))
        if choice.cut or self._unproven:
            self._access(files)
        if journal or choice.cut or self._unproven:
            self._cut_logs()
        self._segments(damaged, finder)
        self._indexes()
        return result

    def _own(self, files: list[SoundFile]) -> list[SoundFile]:
        """Return the files without those of another data directory."""
        known = self._newest.header if self._newest is not None else None
        self._witness = own_witness([each.header for each in files], known, self._witness)
        return [each for each in files if each.is_rebuilt or not stranger(each.header, known, self._witness)]

    def _refuse_to_guess(self, files: list[SoundFile]) -> None:
        """Raise if no checkpoint can be read and the journal does not begin with the first record."""
        if self._newest is not None or (files and files[0].header.previous_end <= 1):
            return
        anything = self._bad_checkpoints or partitions(self._filesystem) or files or self._witness.newest
        if not anything:
            return
        begins = f"the journal begins at LSN {files[0].header.first_lsn}" if files else "there is no journal"
        raise Irreparable(
            f"no checkpoint can be read, and {begins}: which topics there were, which messages are committed and which "
            "transactions are undecided is in none of what is left, and a repair would have to guess. Nothing was "
            "changed. Restore a file of checkpoints/ from a copy and repair then; the messages that are in segments "
            "can be read with 'txbroker dump DIR --partition TOPIC-INDEX --values'",
            filenames.CHECKPOINT_DIRECTORY,
        )

    # -- reading -----------------------------------------------------------------------------------

    def _damaged_segments(self) -> list[DamagedSegment]:
        stores = self._newest.stores if self._newest is not None else []
        queues = self._newest.folds.get(QueuesFold.name, []) if self._newest is not None else []
        self._names.know(stores, self._rows, (each for each in queues if isinstance(each, DeclaredQueue)))
        return [
            each
            for store in stores
            for each in segments_of(self._filesystem, store, self._damaged, self._files, self._accept)
        ]

    def _follow_all(self, files: list[SoundFile], damaged: list[DamagedSegment]) -> Finder:
        holes = [hole for segment in damaged for hole, _ in segment.holes()]
        finder = Finder(self._filesystem, holes)
        finder.wanted = {entry.lsn for row in self._rows for entry in row.entries}
        if not holes and not finder.wanted:
            return finder
        finder.know(live_rows(self._sound[0]) if self._sound else [])
        for checkpoint in self._sound:
            finder.times.know(checkpoint)
        for file in files:
            for run in file.runs:
                for entry in entries(self._filesystem, run):
                    finder.follow(entry)
        return finder

    def _settle(self, choice: Choice, staged: StagedPlan) -> None:
        """Roll back transactions whose frames are lost, unless they were decided above the checkpoint."""
        self._result.changes += staged.changes
        state = self._newest.header.lsn + 1 if self._newest is not None else 1
        hopeless = {row.number: row for row in staged.hopeless}
        for run in choice.kept if hopeless else ():
            for entry in entries(self._filesystem, run, state):
                effect = effect_of(entry)
                if effect.number is None or effect.number not in hopeless:
                    continue
                if effect.outcome is State.ROLLED_BACK:
                    del hopeless[effect.number]
                elif effect.outcome is State.COMMITTED and entry.lsn < choice.end:
                    choice.cut, choice.end = True, entry.lsn
        for row in hopeless.values():
            self._result.rollbacks.append(row.number)
            self._result.lost.append(_hopeless(row))

    # -- deciding ----------------------------------------------------------------------------------

    def _journal(self, files: list[SoundFile], choice: Choice) -> None:
        result, newest = self._result, self._newest
        for run in choice.kept:
            for _ in entries(self._filesystem, run, newest.header.lsn + 1 if newest is not None else 1):
                pass  # a start must be able to read each
        needed = newest.header.needed_from if newest is not None else 1
        start = newest.header.start if newest is not None else 0
        plan = plan_journal(self._filesystem, files, choice, needed, start)
        result.changes += plan.changes
        lsn = newest.header.lsn if newest is not None else 0
        witness = pack_witness(Witness(plan.newest, choice.end - 1, lsn, plan.salt))
        result.changes.append(Change(filenames.WITNESS, [witness], "says how far the journal goes now"))
        for checkpoint in self._sound[:-1]:
            has_gap = any(last > checkpoint.header.lsn for _, last in choice.gaps)
            if has_gap or not _lead(files, checkpoint.header.lsn + 1, lsn):
                path = filenames.checkpoint_file(checkpoint.header.lsn)
                result.changes.append(
                    Change(path, None, "what it needs above it is no longer in the journal")
                )
        if choice.cut:
            self._name_losses(choice)

    def _name_losses(self, choice: Choice) -> None:
        state = self._newest.header.lsn + 1 if self._newest is not None else 1
        for run in choice.kept:
            for entry in entries(self._filesystem, run, state):
                if entry.lsn < choice.end:
                    self._names.follow(entry)
        lost, at = LostRecords(self._names), choice.end
        unreadable: list[Loss] = []
        for run in [*choice.kept, *choice.lost]:
            if run.end <= choice.end:
                continue
            missing = run.header.previous_end if run.begins else run.first_lsn
            if at < missing:
                unreadable.append(lost_lsns(at, missing - 1))
            for entry in entries(self._filesystem, run, choice.end):
                lost.follow(entry)
            at = run.end
        if self._witness.forced >= at:
            unreadable.append(lost_lsns(at, self._witness.forced))
        unreadable.append(lost_lsns(max(at, self._witness.forced + 1), None))
        self._result.lost += [*unreadable, *lost.told()]
        if len(unreadable) > 1:  # and not only what came after, if anything did
            self._result.lost += lost.maybe_prepared()

    def _access(self, files: list[SoundFile]) -> None:
        """Have users and rules confirmed if there ever were any: what cannot be read may have changed them."""
        damaged = [finding.path for finding in self._bad_checkpoints]
        if has_trace(self._filesystem, files, self._sound, damaged):
            self._result.access_may_be_old = True
            self._result.lost.append(lost_access())

    def _cut_logs(self) -> None:
        """Mark flushed bytes beyond the checkpoint, and partitions unknown to the kept journal: a start drops them."""
        self._result.cut_logs = True
        self._result.lost += [unproven_messages(finding.affects) for finding in self._unproven]
        sizes, known = {}, set()
        for store in self._newest.stores if self._newest is not None else ():
            directory = store.directory
            for state in store.segments:
                path = filenames.segment_file(directory, state.base_offset, SegmentKind.LOG, state.epoch)
                sizes[path] = state.size
                known.add((directory, state.base_offset))
        for _, directory in partitions(self._filesystem):
            for base, path in segments(self._filesystem, directory):
                if (directory, base) in known and path not in sizes:
                    continue  # another file of that segment, from before a compaction or of an unfinished one
                size = file_size(self._filesystem, path)
                if size > sizes.get(path, 0):
                    self._result.tails.append((path, sizes.get(path, 0)))

    def _segments(self, damaged: list[DamagedSegment], finder: Finder) -> None:
        result = self._result
        made_new: dict[tuple[int, int], SegmentState] = {}
        taken = {segment.path for segment in damaged}
        for segment in damaged:
            change, lost, state = segment.mended(self._filesystem, finder.found)
            if lost and (before := self._before_compaction(segment)) is not None:
                result.changes.append(Change(segment.path, None, "the file that it was made of is there"))
                made_new[segment.store.number, before.base_offset] = before
                continue
            result.changes.append(change)
            result.lost += lost_offsets(segment.store, lost)
            result.lost += unproven_offsets(segment.store, segment.unproven, lost, self._accept)
            self._remake(segment.path, segment.store.number, segment.state.base_offset)
            if segment.source and segment.source not in taken:
                taken.add(segment.source)
                result.changes.append(Change(segment.source, None, f"it is {segment.path}"))
            if state != segment.state:
                made_new[segment.store.number, state.base_offset] = state
        if made_new:
            self._rewrite_checkpoint(made_new)

    def _before_compaction(self, segment: DamagedSegment) -> SegmentState | None:
        """Return what an older checkpoint says of the segment if it had another file then, which is whole."""
        known, number = segment.state, segment.store.number
        for checkpoint in reversed(self._sound[:-1]):
            store = next((each for each in checkpoint.stores if each.number == number), None)
            for state in store.segments if store is not None else ():
                is_same = (state.base_offset, state.end_offset) == (known.base_offset, known.end_offset)
                if store is not None and is_same and state.epoch < known.epoch:
                    return state if is_proven(self._filesystem, store, state) else None
        return None

    def _rewrite_checkpoint(self, states: dict[tuple[int, int], SegmentState]) -> None:
        """Write the states of changed segments into the newest checkpoint; older checkpoints are removed."""
        newest = self._newest
        assert newest is not None
        stores = [
            replace(
                store,
                segments=[states.get((store.number, state.base_offset), state) for state in store.segments],
            )
            for store in newest.stores
        ]
        folds = {name: iter(rows) for name, rows in newest.folds.items()}
        data: list[Piece] = list(packed_checkpoint(newest.header, folds, stores))
        path = filenames.checkpoint_file(newest.header.lsn)
        self._result.changes.append(Change(path, data, "it says what the segments hold now"))
        gone = {change.path for change in self._result.changes}
        for checkpoint in self._sound[:-1]:
            path = filenames.checkpoint_file(checkpoint.header.lsn)
            if path not in gone:
                self._result.changes.append(
                    Change(path, None, "it says what segments held before they were damaged")
                )

    def _indexes(self) -> None:
        for store in self._newest.stores if self._newest is not None else ():
            directory = store.directory
            for state in store.segments:
                path = filenames.segment_file(directory, state.base_offset, SegmentKind.LOG, state.epoch)
                beside = {
                    path.removesuffix("log") + kind.value for kind in (SegmentKind.INDEX, SegmentKind.TIME)
                }
                if beside & self._bad_indexes:
                    self._remake(path, store.number, state.base_offset)

    def _remake(self, log: str, number: int, base_offset: int) -> None:
        if (number, base_offset) in self._result.indexes:
            return
        self._result.indexes.append((number, base_offset))
        for kind in (SegmentKind.INDEX, SegmentKind.TIME):
            path = log.removesuffix("log") + kind.value
            if self._filesystem.exists(path):
                self._result.changes.append(Change(path, None, "made again from the log"))
            else:
                self._result.changes.append(Change(path, [b""], "missing; made again from the log"))


def _refuse_to_go_without(unreadable: list[Finding]) -> None:
    """Raise for files that the system cannot read: their content would be counted as lost, though it may be there."""
    if not unreadable:
        return
    first = unreadable[0]
    more = f", nor can {count_text(len(unreadable) - 1, 'other file')}" if len(unreadable) > 1 else ""
    problem = first.problem.removeprefix("it ")
    raise Irreparable(
        f"{first.path} {problem}{more}: a repair would take all that is in there for lost. Nothing was changed. See "
        "whose the files are, and whether the disk is sound (dmesg). What the disk does not give any more, a tool that "
        "goes on behind errors (ddrescue) copies as far as it can: repair that copy",
        first.path,
    )


def _hopeless(row: TransactionRow) -> Loss:
    text = f"transaction {row.number} (xid {row.xid}): frames of it are lost, so it can only be rolled back, and is"
    return Loss(text, Affected(transaction=row.number, xid=row.xid))


def _lead(files: list[SoundFile], first: int, last: int) -> bool:
    """Return whether the sound runs have every record from ``first`` to ``last``."""
    for file in files:
        for run in file.runs:
            if (run.header.previous_end if run.begins else run.first_lsn) <= first:
                first = max(first, run.end)
    return first > last

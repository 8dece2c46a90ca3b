"""A start: read, prove, replay, roll back, begin a new file. ``docs/recovery.md`` has the crash windows.

Pass 1 reads everything that will be relied on and writes nothing, so a refusal leaves all evidence as it was. Then
bytes that no force is known to cover are written again in place, unchanged, and forced: after a kill the page cache may
hold bytes that the disk does not. Pass 2 takes the logs as the checkpoint has them and folds the journal above it; logs
that hold more than that are refused.
"""

from __future__ import annotations

import gc
import secrets
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

from journal.buffers import LeakDetector, PooledAllocator
from journal.checkpoints.choice import choose_checkpoint
from journal.constants import RESTORED_STARTS, START_STRIDE
from journal.engine.disk_space import check_first_start, refused_work
from journal.engine.engine import Engine
from journal.engine.housekeeping import Housekeeping
from journal.engine.settings import JournalSettings
from journal.errors import CorruptData, InvalidSetting
from journal.formats import filenames
from journal.formats.checkpoint import Checkpoint, CheckpointHeader
from journal.formats.repair_notes import RESTORE_UNFINISHED, UNFINISHED, repair_notes, told
from journal.formats.store_state import StoreState
from journal.formats.version_file import DAMAGED, is_damaged, write_version
from journal.formats.witness import NOTHING, WITNESS_LOST, read_witness
from journal.interfaces import IClock, IFilesystem, IFold, ILock, IObserver
from journal.log.catalog import Catalog, no_room
from journal.log.message_store import MessageStore
from journal.log.segment_origin import SegmentOrigin
from journal.progress import Meter, Progress
from journal.records.journal_headers import GROUP_HEADER_BYTES
from journal.records.record import NONCE_BYTES, Restored
from journal.recovery.first_use import check_ours, check_version
from journal.recovery.log_files import LogFiles
from journal.recovery.replay import Replay
from journal.settings import TopicSettings
from journal.transaction_states import State, TransactionNumber
from journal.transactions.staging import Staging
from journal.transactions.state import without_files
from journal.transactions.table import TransactionTable
from journal.vfs.file_window import file_size, window
from journal.vfs.filesystem import write_fully
from journal.vfs.open_files import OpenFiles
from journal.wal.end_scan import JournalScan, ScannedFile
from journal.wal.reader import FileReader
from journal.wal.writer import Journal


@dataclass(slots=True)
class RecoveryReport:
    """The result of a start. ``notes`` are for the log: what was torn, repaired or replaced from elsewhere."""

    seconds: float = 0.0
    records: int = 0
    bytes: int = 0
    partitions: int = 0
    rolled_back: int = 0
    in_doubt: int = 0
    notes: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        return (
            f"recovery={self.seconds:.3f}s replayed={self.records} journal_bytes={self.bytes} "
            f"partitions={self.partitions} rolled_back={self.rolled_back} in_doubt={self.in_doubt}"
        )


def recover(
    filesystem: IFilesystem,
    clock: IClock,
    settings: JournalSettings | None = None,
    folds: Sequence[IFold] = (),
    progress: Progress | None = None,
    random: Callable[[int], bytes] = secrets.token_bytes,
    cut_logs: bool = False,
    observers: Sequence[IObserver] = (),
    restored: Restored = Restored.NOT,
) -> Engine:
    """Open a data directory, made if it is empty, and return its engine, ready for work.

    ``random`` gives so many random bytes: what the new start draws is in the journal before anybody can see it.
    ``cut_logs``: what logs hold beyond the checkpoint is dropped, whether the journal has it or not; for repairs.
    ``observers`` see the records above the checkpoint that are replayed, and all that come later.
    ``restored``: this is the first start of a directory that a backup was copied to, and begins a new time line.
    Raises :class:`ForeignDirectory` for one of something else, :class:`UnknownFormat` for one of another version,
    :class:`DirectoryLocked`, :class:`CorruptJournal` or :class:`CorruptSegment` (then nothing on disk has changed but
    what an earlier recovery would have rewritten identically), :class:`CorruptData` where a repair or a restore was not
    finished, or the ``OSError`` of a failed call.
    """
    settings = (settings or JournalSettings()).check()
    check_ours(filesystem)
    check_version(filesystem)
    filesystem.make_directory("")
    for name in filenames.DIRECTORIES:
        filesystem.make_directory(name)
    filesystem.force_directory("")
    lock = filesystem.lock(filenames.LOCK)
    try:
        if filesystem.exists(filenames.REPAIR_PLAN):
            raise CorruptData(UNFINISHED, filenames.REPAIR_PLAN)
        if filesystem.exists(filenames.RESTORE) and restored is Restored.NOT:
            raise CorruptData(RESTORE_UNFINISHED, filenames.RESTORE)
        with _collector_paused():
            recovery = _Recovery(
                filesystem, clock, settings, folds, lock, progress or _silent, random, observers
            )
            return recovery.run(cut_logs, restored)
    except BaseException:
        lock.release()
        raise


@contextmanager
def _collector_paused() -> Iterator[None]:
    """Pause the garbage collector: everything that is made here stays.

    100,000 prepared transactions in the journal: 1.47 s with the collector, 1.03 s without; 3.2 million sends 5.3 and
    4.5 s.
    """
    enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if enabled:
            gc.enable()


def _silent(_: str) -> None:
    """Report no progress."""


class _Recovery:
    """One start."""

    def __init__(
        self,
        filesystem: IFilesystem,
        clock: IClock,
        settings: JournalSettings,
        folds: Sequence[IFold],
        lock: ILock,
        progress: Progress,
        random: Callable[[int], bytes],
        observers: Sequence[IObserver],
    ) -> None:
        self._filesystem = filesystem
        self._clock = clock
        self._settings = settings
        self._progress = progress
        self._random = random
        self._report = RecoveryReport()
        self._began = clock.monotonic()
        self._files = OpenFiles(filesystem, settings.open_files)
        self._allocator = PooledAllocator(settings.pool_bytes, leaks=LeakDetector())
        self._journal = Journal(filesystem, settings.file_bytes)
        self._witness = read_witness(filesystem) or NOTHING
        self._scan = JournalScan(filesystem, self._journal, self._witness, self._report.notes, progress)
        self._catalog = Catalog(self._make_store, self._restore_store)
        self._catalog.max_partitions = settings.max_partitions
        self._catalog.make_room = self._make_room
        staging = Staging(filesystem, self._journal, self._allocator, settings.pool_bytes // 2, random)
        table = TransactionTable(self._catalog, staging)
        self._engine = Engine(
            filesystem,
            clock,
            self._journal,
            self._catalog,
            table,
            settings.limits,
            folds,
            self._files,
            lock,
            observers,
        )
        self._origin = SegmentOrigin(self._engine.starts, random)
        self._engine.on_flush_wanted = self._make_room

    def _make_store(self, number: int, topic: str, index: int, settings: TopicSettings) -> MessageStore:
        return MessageStore(number, topic, index, settings, self._files, self._allocator, self._origin)

    def _restore_store(self, state: StoreState) -> MessageStore:
        return MessageStore.restore(state, self._files, self._allocator, self._origin)

    # -- the order of steps ------------------------------------------------------------------------

    def run(self, cut_logs: bool, restored: Restored) -> Engine:
        """Run all steps, in order."""
        self._make_room_on_disk()
        self._report.notes += map(told, repair_notes(self._filesystem))
        if is_damaged(self._filesystem):
            self._report.notes.append(f"{DAMAGED}; it is written anew")
        checkpoint, kept, notes = choose_checkpoint(self._filesystem, self._witness)
        self._report.notes += notes
        scans = self._scan.scan(checkpoint)
        if not scans and checkpoint is None:
            check_first_start(self._filesystem, self._settings, self._journal.spare_exists())
        if scans:
            self._rewrite_unproven(scans[-1])
            if self._witness is NOTHING and scans[-1].end.next_lsn > scans[0].header.first_lsn:
                self._report.notes.append(f"{WITNESS_LOST}; it is written anew")
        engine = self._engine
        engine.housekeeping = housekeeping = Housekeeping(engine, self._settings, kept)
        at = self._pass_two(checkpoint, scans, cut_logs)
        self._report.rolled_back = sum(
            t.state is not State.PREPARED for t in engine.transactions.live.values()
        )
        engine.set_time(at)
        housekeeping.begin()
        self._begin(scans, checkpoint, housekeeping, restored)
        engine.dirty.update(store for store in self._catalog.stores.values() if store.unflushed_messages)
        engine.on_flush_wanted = _nothing
        self._catalog.make_room = no_room
        self._sweep(housekeeping, kept)
        housekeeping.watch_space()
        self._report.notes += refused_work(self._filesystem, self._settings, self._journal.spare_exists())
        self._report.in_doubt = len(engine.transactions.prepared)
        self._report.partitions = len(self._catalog.stores)
        self._report.seconds = (self._clock.monotonic() - self._began) / 1e6
        engine.report = self._report
        engine.allocator = self._allocator
        return engine

    def _make_room_on_disk(self) -> None:
        """Remove the ballast on a full disk, so that recovery itself does not fail for lack of space."""
        if self._filesystem.free_bytes() < 2 * self._settings.file_bytes and self._filesystem.exists(
            filenames.BALLAST
        ):
            self._filesystem.unlink(filenames.BALLAST)
            self._report.notes.append(
                "the disk is nearly full: the ballast file was removed to let recovery finish"
            )

    # -- between the passes ------------------------------------------------------------------------

    def _rewrite_unproven(self, scan: ScannedFile) -> None:
        """Write and force bytes again that may have been read from the page cache alone."""
        unproven = scan.unproven(file_size(self._filesystem, scan.path))
        if not unproven:
            return
        file = self._filesystem.open(scan.path)
        try:
            for position, end in unproven:
                write_fully(file, position, [file.read(position, end - position)])
            file.force()
        finally:
            file.close()

    # -- pass 2: fold ------------------------------------------------------------------------------

    def _pass_two(self, checkpoint: Checkpoint | None, scans: list[ScannedFile], cut_logs: bool) -> int:
        """Fold checkpoint and journal; return the journal time reached."""
        at, from_lsn = 0, 0
        engine = self._engine
        if checkpoint is not None:
            at, from_lsn = checkpoint.header.at, checkpoint.header.lsn + 1
            self._check_folds(checkpoint)
            for fold in engine.folds:
                if fold.name in checkpoint.folds:
                    fold.restore(checkpoint.folds[fold.name])
            self._catalog.restore_stores(checkpoint.stores)
            engine.schedule.note_checkpoint(at, self._catalog.wall_offset)
        logs = self._compared_logs()
        if cut_logs:
            logs.cut()
        at = self._replay([scan for scan in scans if scan.end.next_lsn > from_lsn], at, from_lsn)
        logs.check()
        logs.drop_late()
        return at

    def _compared_logs(self) -> LogFiles:
        logs, stores = LogFiles(self._filesystem, self._catalog), self._catalog.stores.values()
        meter = Meter(
            self._clock, self._progress, "comparing logs with the checkpoint", len(stores), "partitions"
        )
        for store in stores:
            meter.advance(1)
            self._report.notes += logs.compare(store)
        return logs

    def _check_folds(self, checkpoint: Checkpoint) -> None:
        """Refuse a checkpoint with unknown folds, which would be missing in the next checkpoint, and lost for good."""
        unknown = sorted(set(checkpoint.folds) - {fold.name for fold in self._engine.folds})
        if unknown:
            raise InvalidSetting(
                f"the checkpoint at LSN {checkpoint.header.lsn} keeps {', '.join(unknown)}, which this program does "
                "not know and would lose. Nothing was changed; open the directory with the program that wrote it"
            )

    def _replay(self, scans: list[ScannedFile], at: int, from_lsn: int) -> int:
        replay = Replay(self._engine, at)
        self._report.bytes = sum(scan.end.position for scan in scans)
        meter = Meter(self._clock, self._progress, "replaying the journal", self._report.bytes)
        for scan in scans:
            self._replay_file(replay, scan, from_lsn, meter)
        self._report.records = replay.records
        return replay.at

    def _replay_file(self, replay: Replay, scan: ScannedFile, from_lsn: int, meter: Meter) -> None:
        replay.start = scan.header.start
        with window(self._filesystem, scan.path) as bytes_of:
            reader = FileReader(bytes_of, scan.path, scan.header)
            for group in scan.groups:
                meter.advance(group.end - group.position)
                first_lsn, start = group.header.first_lsn, group.position + GROUP_HEADER_BYTES
                body = reader.body(group) if first_lsn >= from_lsn else None
                if body is not None:
                    replay.group(first_lsn, group.sound, body, scan.path, start)
                elif group.next_lsn > from_lsn:
                    for entry in reader.records(group, from_lsn):
                        replay.place = scan.path, entry.position
                        replay.one(entry.lsn, entry.record, entry.data)

    def _make_room(self) -> bool:
        """Give some memory back to the replay; return whether there was any.

        It takes the longest tails first: fewer and larger writes. On a nearly full disk it frees no more than
        necessary: writing over what was flushed before the end takes no space, and there is the ballast's space; the
        rest was in memory before as well. Nothing needs to be forced here: until the next checkpoint, which forces it,
        the journal has it all.
        """
        before = self._allocator.available()
        for store in self._catalog.deleted:
            store.discard()  # all that is replayed is forced, so its memory is not needed
        step = self._settings.pool_bytes // 8
        scarce = self._filesystem.free_bytes() < self._settings.pool_bytes + self._settings.file_bytes
        stores = sorted(self._catalog.stores.values(), key=_unflushed_bytes, reverse=True)
        for store in stores:
            while self._allocator.available() < before + step and (
                job := store.begin_flush(step if scarce else None)
            ):
                job.run(durably=False, cut=False)
                store.finish_flush(job)
        return self._allocator.available() > before

    # -- the new start -----------------------------------------------------------------------------

    def _begin(
        self,
        scans: list[ScannedFile],
        checkpoint: Checkpoint | None,
        housekeeping: Housekeeping,
        restored: Restored,
    ) -> None:
        """Begin a new file above every earlier LSN; its first record rolls active transactions back.

        A new time line begins above all that the lost one can have used. What says the format comes first, so that an
        older version refuses the directory by name from before anything in it is of a newer one.
        """
        write_version(self._filesystem)
        step = 1 if restored is Restored.NOT else 1 + RESTORED_STARTS
        end = scans[-1].end.next_lsn if scans else 1
        highest = scans[-1].header.first_lsn if scans else 0
        first_lsn = (max(end, highest) // START_STRIDE + step) * START_STRIDE
        started = max(scans[-1].header.start if scans else 0, checkpoint.header.start if checkpoint else 0)
        if not self._journal.spare_exists():
            self._journal.fill_spare()
        salt = int.from_bytes(self._random(4))
        self._journal.open_first(started + step, salt, first_lsn, end)
        housekeeping.testify(first_lsn - 1, durably=True).run()
        self._engine.started(started + step, self._random(NONCE_BYTES), first_lsn, restored)
        if self._settings.outcome_archive is not None:
            archive = self._engine.transactions.archive
            for record in archive.judge(self._settings.archive, self._engine.now()):
                self._engine.accept(record)
        self._engine.sync()

    def _sweep(self, housekeeping: Housekeeping, kept: list[CheckpointHeader]) -> None:
        """Find files that nothing refers to; unfinished ones are removed now, others after checkpoints."""
        filesystem = self._filesystem
        for directory in (filenames.CHECKPOINT_DIRECTORY, filenames.STAGED_DIRECTORY):
            for name in filesystem.list_directory(directory):
                if filenames.is_temporary(name):
                    filesystem.unlink(f"{directory}/{name}")
        staged = self._unneeded_staged()
        partitions = [
            f"{filenames.PARTITION_DIRECTORY}/{name}"
            for name in filesystem.list_directory(filenames.PARTITION_DIRECTORY)
            if (parsed := filenames.parse_partition_directory(name))
            and parsed.number not in self._catalog.stores
        ]
        checkpoints = [
            f"{filenames.CHECKPOINT_DIRECTORY}/{name}"
            for name in filesystem.list_directory(filenames.CHECKPOINT_DIRECTORY)
            if (lsn := filenames.parse_checkpoint_file(name)) is not None and kept and lsn < kept[0].lsn
        ]
        transient: list[str] = []
        if filesystem.exists(filenames.TRANSIENT_DIRECTORY):  # of transient queues of earlier starts
            names = filesystem.list_directory(filenames.TRANSIENT_DIRECTORY)
            transient = [f"{filenames.TRANSIENT_DIRECTORY}/{name}" for name in names]
        # The older of two checkpoints may still need a journal file that the newer one does not.
        housekeeping.add_orphans([*staged, *checkpoints, *self._scan.dead], partitions, transient)

    def _unneeded_staged(self) -> list[str]:
        """Return staged files of ended transactions. One that no checkpoint refers to is removed now.

        Its transaction lives and does not know of it, so no later step would remove it.
        """
        filesystem, live = self._filesystem, self._engine.transactions.live
        ended: list[str] = []
        names = filesystem.list_directory(filenames.STAGED_DIRECTORY)
        if lost := without_files(live.values(), set(names)):
            self._report.notes.append(lost)
        for name in names:
            found = filenames.parse_staged_file(name)
            if found is None:
                continue
            path = filenames.staged_file(found.session, found.serial)
            transaction = live.get(TransactionNumber(found.session, found.serial))
            if transaction is None:
                ended.append(path)
            elif not transaction.staged.file_entries:
                filesystem.unlink(path)
        return ended


def _unflushed_bytes(store: MessageStore) -> int:
    return store.unflushed_bytes


def _nothing(*_: object) -> None:
    """A hook that does nothing."""

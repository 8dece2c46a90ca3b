"""The work beside the cycle: flushes, checkpoints, clean-up, the next journal file, free space, the ballast.

All decisions are taken on the engine's thread. Work on files is a :class:`journal.engine.jobs.Job`. Its ``run`` may be
called on another thread (the flusher), one job at a time; then the job comes back through :meth:`Housekeeping.finish`.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Iterator, Sequence
from operator import attrgetter
from typing import Any

from zope.interface import implementer

from journal.constants import IDLE_MARK_AFTER, MIB
from journal.engine.compactor import Compactor, CompactSegment
from journal.engine.disk_space import COPIES, SCARCE, ballast_bytes, copies_under_way, reserve, under_way
from journal.engine.due_checkpoints import DueCheckpoints
from journal.engine.due_stores import DueStores
from journal.engine.engine import Engine
from journal.engine.garbage import Garbage, Pin
from journal.engine.jobs import (
    CollectGarbage,
    FillBallast,
    FillSpare,
    FlushStore,
    ForceLogs,
    Job,
    RemoveTransient,
    StageFrames,
    WriteCheckpoint,
    WriteKeyTable,
    WriteWitness,
)
from journal.engine.settings import JournalSettings
from journal.engine.transient_logs import TransientLogs
from journal.errors import DiskFull
from journal.formats import filenames
from journal.formats.checkpoint import CheckpointHeader
from journal.formats.witness import NOTHING, WITNESS_INTERVAL, Witness
from journal.interfaces import IHousekeeping
from journal.log.flush import FlushJob
from journal.log.message_store import MessageStore
from journal.log.segment import Segment
from journal.records.record import LogStartMoved, Mark
from journal.settings import TopicSettings

FLUSHES_AT_ONCE = 64
"""Most flushes that begin in one turn, 20 µs each: ten thousand logs may be due at once."""
NO_ROOM_PAUSE = 10_000_000
"""µs after which a spare that found no room on the disk is tried again."""


MOST_TABLES = 4
"""Most tables of keys that wait to be written, up to 32 MiB each; others are made again when they are wanted."""


COUNTED_EVERY = 100_000
"""µs after which the copies that undecided transactions will make are counted again: 0.6 ms for 10,000 of these."""


LARGE = MIB
"""Messages that take so many bytes in further queues are judged by a look at the disk."""


TRIM_INTERVAL = 10_000_000
"""µs after which memory of the pool that was not needed goes back to the system."""


class Phase(enum.Enum):
    """The phase of a checkpoint."""

    NONE = "none under way"
    STAGING = "writing staged frames"
    STAGED = "waiting for the end of a large commit"
    FORCING = "waiting for the force of its LSN"
    FLUSHING = "flushing partitions"
    WRITING = "writing the checkpoint"
    COLLECTING = "unlinking what is no longer needed"


@implementer(IHousekeeping)
class Housekeeping:
    """Decides which work on files is due. One per engine."""

    def __init__(self, engine: Engine, settings: JournalSettings, last: list[CheckpointHeader]) -> None:
        self._engine = engine
        self._settings = settings
        self._kept = last
        """The headers of the checkpoints on disk, oldest first, at most two."""
        self.phase = Phase.NONE
        self._checkpoints = DueCheckpoints(engine, settings)
        self._next: CheckpointHeader
        self._folds: dict[str, Iterator[Any]] = {}
        self._stores: dict[MessageStore, tuple[int, TopicSettings]] = {}
        self._missing: list[MessageStore] = []
        """Those of these stores that are not known to be flushed so far."""
        self._garbage = Garbage(engine)
        self.compactor = Compactor(engine)
        self._no_room_until = 0
        self._flush_wanted = False
        self._due = DueStores(engine.dirty, engine.filled)
        self._transient = TransientLogs(engine, self._due)
        self._round: list[MessageStore] = []
        """The flushes that are due and not begun yet, the next one last."""
        self._round_began = 0
        """How many flushes of this round have begun, which share one force."""
        self._begun = self.flushed = 0
        """How many flushes have ever begun, and are over."""
        self._filling = False
        self._counted_at = 0
        self.free_bytes = 0
        self._room = 0
        """Free bytes beyond those that finishing needs."""
        self.reserve_bytes = reserve(settings)
        self._scarce_below = self.reserve_bytes + SCARCE * settings.pool_bytes
        self._ballast_tried = False
        self._collecting: CollectGarbage | None = None
        self._witness = NOTHING
        self._witnessed_at = 0
        self._trimmed_at = 0
        self._tables: list[WriteKeyTable] = []
        self._gone: list[MessageStore] = []
        self.keep: Callable[[MessageStore, int], int] | None = None
        """Returns where a log may begin that retention would have begin at that offset: there, or below."""
        self._discarding: set[MessageStore] = set()

    def begin(self) -> None:
        """Begin with the clocks: ages count from now."""
        self._checkpoints.begun(self._engine.now())

    # -- what is due -------------------------------------------------------------------------------

    def jobs(self, now: int) -> list[Job]:
        """Return the jobs to run now, in this order. Call it on every tick and after every finished job.

        Raises :class:`journal.errors.LockLost` if the directory is no longer held alone; then the engine must fail.
        """
        self._engine.lock.check()
        self.watch_space()
        found: list[Job] = []
        if self.phase is Phase.NONE:
            self._collect()  # files that a pin has held back
            self.compactor.replace()
        if self.phase is Phase.NONE and self._checkpoint_due(now):
            found += self._begin()
        if self.phase is Phase.STAGED and not self._engine.busy:
            self._snapshot()
        if self.phase is Phase.FORCING and self._engine.forced_lsn >= self._next.lsn:
            self.phase = Phase.FLUSHING
        found += self._flushes(now)
        if self.phase is Phase.FLUSHING and self._may_write():
            found.append(self._write())
        found += self._tables
        self._tables = []
        if self._collecting is not None:
            found.append(self._collecting)
            self._collecting = None
        room = 0 if self._garbage.pins or self._engine.full else self._room
        if (step := self.compactor.job(room)) is not None:
            found.append(step)
        if (removal := self._transient.job()) is not None:
            found.append(removal)
        if now - self._trimmed_at >= TRIM_INTERVAL:
            self._trimmed_at = now
            self._engine.allocator.trim()
        if self._witness_due(now):
            found.append(self.testify(self._engine.forced_lsn))
        return [*found, *self._files_ahead()]

    def _files_ahead(self) -> Iterator[Job]:
        """Yield what fills files ahead of need."""
        if not self._filling and not self._engine.full and not self._engine.journal.spare_exists():
            self._filling = True
            yield FillSpare(self._engine)
        if not self._ballast_tried and not self._engine.full:
            self._ballast_tried = True
            if ballast_bytes(self._engine.filesystem) < self._settings.file_bytes:
                yield FillBallast(self._engine, self._settings.file_bytes)

    def finish(self, job: Job) -> None:
        """Note that a job has run."""
        self.flushed += isinstance(job, FlushStore)
        match job:
            case FlushStore() if job.store.is_transient:
                self._transient.flushed(job)
                if job.no_room:
                    self._refuse_for_a_while()
                self._engine.on_idle()
            case FlushStore():
                job.store.finish_flush(job.flush)
                if job.store in self._discarding:
                    self._discarding.discard(job.store)
                    self._due.forget((job.store,))
                    job.store.discard()
                else:
                    self._due.flushed(job.store)
                self._engine.on_idle()
            case StageFrames():
                self._engine.transactions.table.staged(job.plans)
                self.phase = Phase.STAGED
            case WriteCheckpoint():
                self._written(job.header)
            case CollectGarbage():
                self.phase = Phase.NONE
            case CompactSegment():
                self.compactor.ran()
            case RemoveTransient():
                self._transient.removed(job)
            case FillSpare():
                self._filling = False
                if job.no_room:
                    self._refuse_for_a_while()

    def _refuse_for_a_while(self) -> None:
        self._no_room_until = self._engine.now() + NO_ROOM_PAUSE
        self._engine.full_at = -1

    def retain(self, now: int) -> int:
        """Move the starts of logs forward as retention requires; return how many moved."""
        engine, moved = self._engine, 0
        if not engine.busy:
            for store in engine.catalog.durable_stores():
                start = store.retention_start(now)
                if start is not None and self.keep is not None:
                    start = self.keep(store, start)
                if start is not None and start > store.start_offset:
                    engine.accept(LogStartMoved(store.number, start, now))
                    moved += 1
            self.compactor.look()
        return moved

    def settings_changed(self, stores: Sequence[MessageStore]) -> None:
        """Look at these stores again: their flushes may be due earlier than they were."""
        self._due.look_again(stores)

    def mark_if_idle(self, now: int) -> bool:
        """Queue a MARK if nothing has been forced for ``IDLE_MARK_AFTER``."""
        return now - self._engine.last_forced_at >= IDLE_MARK_AFTER and self._engine.mark()

    def want_flush(self) -> None:
        """Flush all that is published at the next call of :meth:`jobs`."""
        self._flush_wanted = True

    def keep_table(self, segment: Segment, table: bytes) -> None:
        """Have the table of keys of a segment written at the next call of :meth:`jobs`, if it is not one too many."""
        if len(self._tables) < MOST_TABLES and not self._engine.full:
            self._tables.append(WriteKeyTable(self._engine.filesystem, segment, table))

    def _witness_due(self, now: int) -> bool:
        if self._witness.checkpoint != self.checkpoint_lsn:
            return True
        return self._witness.forced < self._engine.forced_lsn and now - self._witnessed_at >= WITNESS_INTERVAL

    @property
    def is_flushing(self) -> bool:
        """Whether logs are being flushed, or are to be at once: memory that several of them have is free at the end."""
        return self._flush_wanted or bool(self._round) or self._begun > self.flushed

    def testify(self, forced: int, durably: bool = False) -> Job:
        """Return a job that writes the witness: that the journal is forced up to that LSN."""
        journal = self._engine.journal
        self._witness = Witness(journal.newest_lsn, forced, self.checkpoint_lsn, journal.salt)
        self._witnessed_at = self._engine.now()
        return WriteWitness(self._engine.filesystem, self._witness, durably)

    def _flushes(self, now: int) -> list[Job]:
        """Return the next flushes of the round under way, or of a new one; the last of several is followed by
        their force.
        """
        if not self._round:
            self._round = self._to_flush(now)[::-1]
            self._round_began = 0
        found: list[tuple[MessageStore, FlushJob]] = []
        while self._round and len(found) < FLUSHES_AT_ONCE:
            store = self._round.pop()
            if (flush := store.begin_flush()) is not None:
                self._due.begun(store)
                found.append((store, flush))
        if found:
            # Else the wanted messages are not forced yet, or under way: at the next call, or waiters would wait for the
            # policy.
            self._flush_wanted = False
        elif self._flush_wanted and not any(each.unflushed_messages for each in self._engine.dirty):
            self._flush_wanted = False  # acknowledgements have released what was to be written
            self._engine.on_idle()
        self._round_began += len(found)
        self._begun += len(found)
        is_last = not self._round
        jobs: list[Job] = [
            FlushStore(store, flush, alone=is_last and self._round_began == 1) for store, flush in found
        ]
        return [*jobs, ForceLogs(self._engine.open_files)] if is_last and self._round_began > 1 else jobs

    def _to_flush(self, now: int) -> list[MessageStore]:
        """Return the logs to flush: all if memory is short, those that a checkpoint waits for, or those that
        are due.
        """
        if self._flush_wanted:
            return sorted(self._engine.dirty, key=_number)
        due = self._due.due(now)
        if self.phase is not Phase.FLUSHING:
            return due
        targets = self._stores
        late = [s for s in self._engine.dirty if s in targets and s.flushed_offset < targets[s][0]]
        return sorted({*due, *late}, key=_number)

    def watch_space(self) -> None:
        """Refuse new work while the space that finishing needs is about to run out; free space alone decides."""
        engine = self._engine
        self.free_bytes = engine.filesystem.free_bytes()
        room = self.free_bytes - self.reserve_bytes - self._copies() - self.compactor.left_bytes
        if self._scarce:
            self._garbage.release_all()  # before any request is refused because of the files that they keep
            room -= under_way(engine, self._settings.file_bytes)
        self._room = room
        no_room = room < 0 or engine.now() < self._no_room_until
        engine.full_at = -1 if no_room else engine.journaled_bytes + engine.pending_bytes + room // COPIES

    def _copies(self) -> int:
        """Return what messages may still take in further queues; counted anew now and then, as it takes long."""
        engine, now = self._engine, self._engine.now()
        if now - self._counted_at >= COUNTED_EVERY and not engine.busy:
            self._counted_at, engine.reserved_bytes = now, copies_under_way(engine)
        return engine.reserved_bytes

    def reserve_space(self, size: int) -> bool:
        """Note that messages are about to take so many bytes in further queues; return False if there is no room."""
        engine = self._engine
        if size >= LARGE:
            self.watch_space()
        if size > engine.room_left * COPIES:
            return False
        engine.reserved_bytes += size
        engine.full_at -= -(-size // COPIES)
        return True

    @property
    def _scarce(self) -> bool:
        return self.free_bytes < self._scarce_below

    # -- checkpoints -------------------------------------------------------------------------------

    @property
    def checkpoint_lsn(self) -> int:
        """The LSN of the newest checkpoint, 0 without one."""
        return self._kept[-1].lsn if self._kept else 0

    def pin(self) -> Pin:
        """Remove no file until :meth:`unpin`, or until the disk needs the space; raises DiskFull if it does now."""
        self.watch_space()
        if self._scarce:
            raise DiskFull(
                f"no file can be kept from being removed: {self.free_bytes} bytes of the disk are free, and up to "
                f"{self._scarce_below} removing goes on as usual; nothing has changed. Make room, or read a copy"
            )
        return self._garbage.pin(self.checkpoint_lsn)

    def unpin(self, pin: Pin) -> None:
        """Release a pin; the files that it held back are removed with the next call of :meth:`jobs`."""
        self._garbage.release(pin)

    @property
    def pins(self) -> int:
        """How many pins keep files from being removed."""
        return self._garbage.pins

    def request_checkpoint(self) -> None:
        """Begin a checkpoint at the next call of :meth:`jobs`, due or not."""
        self._checkpoints.request()

    def _checkpoint_due(self, now: int) -> bool:
        engine, kept = self._engine, self._kept[-1].lsn if self._kept else None
        if self.compactor.wants_checkpoints():
            self._checkpoints.request_further(2)
        keeps_files = self._keeps_dropped()
        if not self._checkpoints.is_due(now, kept, keeps_files=keeps_files, free_bytes=self.free_bytes):
            return False
        if engine.last_lsn == kept:
            engine.accept(Mark(engine.now()))  # a checkpoint is named by its LSN
        return True

    def _keeps_dropped(self) -> bool:
        """Return whether there are files that only further checkpoints let go."""
        return self._garbage.waits or self.compactor.has_replaced or bool(self._engine.catalog.deleted)

    def _begin(self) -> list[Job]:
        self._checkpoints.begun(self._engine.now())
        previous = self._kept[-1].lsn if self._kept else 0
        plans = self._engine.transactions.table.staging_plans(previous)
        self.phase = Phase.STAGING if plans else Phase.STAGED
        return [StageFrames(self._engine, plans)] if plans else []

    def _snapshot(self) -> None:
        """Take a snapshot of all folds at one LSN, in one turn; the rows are encoded later, on the flusher thread.

        Never while a large commit is being applied: its outcome is in the folds, its messages are not in all logs.
        """
        engine = self._engine
        lsn = engine.last_lsn
        self._next = CheckpointHeader(
            lsn,
            engine.transactions.table.needed_from(lsn + 1),
            engine.start_number,
            engine.now(),
            engine.journal.salt,
        )
        self._folds = {fold.name: fold.snapshot() for fold in engine.folds}
        self._stores = {s: (s.end_offset, s.settings) for s in engine.catalog.durable_stores()}
        self._missing = list(self._stores)
        self._collect_dropped()
        self.phase = Phase.FORCING

    def _may_write(self) -> bool:
        """Return whether everything that the checkpoint will claim is forced: the logs, and where they start."""
        engine, missing = self._engine, self._missing
        while missing and missing[-1].flushed_offset >= self._stores[missing[-1]][0]:
            missing.pop()
        return engine.forced_lsn >= engine.catalog.start_moved_lsn and not missing

    def _write(self) -> Job:
        self.phase = Phase.WRITING
        states = [store.state(end, settings) for store, (end, settings) in self._stores.items()]
        self._stores = {}
        return WriteCheckpoint(self._engine.open_files, self._next, self._folds, states)

    def _written(self, header: CheckpointHeader) -> None:
        """Keep two checkpoints, and drop what only older ones needed."""
        self._kept.append(header)
        self._folds = {}
        self._due.forget(self._gone)
        for store in self._gone:  # only now all that was appended to them is known to be written
            if store.is_flushing:
                self._discarding.add(store)
            else:
                store.discard()
        self._gone.clear()
        self._garbage.age(filenames.checkpoint_file(kept.lsn) for kept in self._kept[:-2])
        del self._kept[:-2]
        self.phase = Phase.NONE
        self._collect()

    def _collect(self) -> None:
        self._collecting = self._garbage.collect(self._kept[0].needed_from if len(self._kept) > 1 else 0)
        if self._collecting is not None:
            self.phase = Phase.COLLECTING

    def _collect_dropped(self) -> None:
        """Hand dropped files over for removal after the next checkpoint, when no kept one refers to them."""
        catalog, ended = self._engine.catalog, self._engine.transactions.table.ended_files
        files = [file for store in catalog.durable_stores() for file in store.take_dropped()]
        files += [filenames.staged_file(number.session, number.serial) for number in ended]
        self._garbage.drop(files, [store.directory for store in catalog.deleted])
        self._gone += catalog.deleted
        catalog.deleted.clear()
        self.compactor.has_replaced = False
        ended.clear()

    def add_orphans(self, files: list[str], directories: list[str], unknown: list[str]) -> None:
        """Add files that recovery found and nothing refers to; they are removed like those dropped from now on. The
        ``unknown`` directories are removed at once: no checkpoint has ever referred to them.
        """
        self._garbage.drop(files, directories)
        if unknown:
            self._garbage.release_now(unknown)

    # -- inline ------------------------------------------------------------------------------------

    def run_inline(self) -> None:
        """Run what is due now on this thread, until nothing is left. If a job raises, the engine has failed."""
        try:
            while jobs := self.jobs(self._engine.now()):
                for job in jobs:
                    job.run()
                    self.finish(job)
        except BaseException as error:
            self._engine.fail(f"writing files: {error}")
            raise

    def checkpoint_inline(self) -> None:
        """Write a checkpoint now, on this thread."""
        self._engine.sync()
        self.request_checkpoint()
        self.run_inline()


_number = attrgetter("number")

"""The engine: all folds together, and the cycle accept → write → force → publish.

Everything but :meth:`Engine.write` runs on one thread (the reactor in the service). ``write`` touches the journal file
and nothing else, so the service runs it on a thread; inline users call :meth:`Engine.sync`.

A decision changes the folds and is queued in the same turn, so acceptance order is LSN order. Its visible effects wait
for the force: watermarks, and every answer given through :meth:`Engine.when_forced`. A failed write or force is never
undone, because the process stops.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from itertools import chain
from typing import Any

from journal.buffers import PooledAllocator
from journal.constants import GROUP_BYTES, GROUP_RECORDS
from journal.engine.large_commits import LargeCommits
from journal.engine.routes import routes
from journal.errors import JournalPoisoned, MemoryExhausted, reserved
from journal.folds.schedule import ScheduleFold
from journal.formats.envelope import SCHEDULE_TOPIC
from journal.interfaces import IClock, IFilesystem, IFold, IHousekeeping, ILock, IObserver
from journal.log.applied import Applied
from journal.log.catalog import Catalog
from journal.log.message_store import MessageStore
from journal.log.start_history import Starts
from journal.records import record
from journal.records.journal_headers import GROUP_HEADER_BYTES, blocks
from journal.records.outcome import Outcome
from journal.records.record import AnyRecord, Mark, Messages, Restored, Started
from journal.records.transient import durable_part
from journal.transactions.limits import TransactionLimits
from journal.transactions.outcome_archive import BATCH
from journal.transactions.store import JournalTransactionStore
from journal.transactions.table import TransactionTable
from journal.vfs.open_files import OpenFiles
from journal.wal.group import Deliver, Group, GroupTimes
from journal.wal.writer import Forced, Journal, Placed


def _nothing(*_: object) -> None:
    """A hook that does nothing."""


class Engine:
    """The state of one data directory. Built by :func:`journal.recovery.start.recover`.

    Hooks, called on the engine's thread: ``on_pending`` when there is a group to write after there was none,
    ``on_published`` with the stores whose high watermark moved, ``on_idle`` when requests that were refused for
    ``busy`` or ``MemoryExhausted`` may be tried again, ``on_flush_wanted`` when memory is short.
    """

    def __init__(
        self,
        filesystem: IFilesystem,
        clock: IClock,
        journal: Journal,
        catalog: Catalog,
        table: TransactionTable,
        limits: TransactionLimits,
        folds: Sequence[IFold],
        open_files: OpenFiles,
        lock: ILock,
        observers: Sequence[IObserver] = (),
    ) -> None:
        self.filesystem, self.clock, self.journal, self.catalog = filesystem, clock, journal, catalog
        self.schedule = ScheduleFold()
        folds = (self.schedule, *folds)
        self.transactions = JournalTransactionStore(table, catalog, limits, self, self.schedule, folds)
        self.open_files = open_files
        self.lock = lock
        self.housekeeping: IHousekeeping
        self.report: object = ""
        self.allocator: PooledAllocator
        self._archive, self._transient, self.large_commits = table.archive, catalog.transient, LargeCommits()
        self.starts = Starts()
        self.folds: tuple[IFold, ...] = (catalog, table, table.archive, self.starts, *folds)
        self.routes = routes(self.folds, observers)
        # A send reaches its store through `append`, which stamps and copies; the other folds see the record.
        self._append_routes = tuple(fold for fold in folds if Messages in fold.handles)
        self.next_lsn = 1
        self.forced_lsn = self.start_number = self.last_forced_at = self._proven_lsn = 0
        self._time_base = 0
        self._ready: deque[Group] = deque()
        self._filling: Group | None = None
        self._in_flight: Group | None = None
        self._newest: Group | None = None
        self.passing = False  # whether accepted requests touch no log of a commit that is being applied
        self.dirty, self.filled = set[MessageStore](), set[MessageStore]()
        """Stores with bytes in memory that may be flushed, and those that have enough messages for their policies."""
        self.pending_bytes = self.reserved_bytes = 0
        self.journaled_bytes = 0
        """The bytes that this start's groups take on disk: whole blocks, of which a single small record fills a
        fortieth.
        """
        self.failed, self.full_at = "", 1 << 62
        self.on_pending: Callable[[], None] = _nothing
        self.on_published: Callable[[list[MessageStore]], None] = _nothing
        self.on_idle: Callable[[], None] = _nothing
        self.on_flush_wanted: Callable[[], object] = _nothing
        for observer in observers:
            observer.observes(self)

    # -- time ------------------------------------------------------------------------------------------

    def set_time(self, at: int) -> None:
        """Let journal time continue from ``at``; it stood still while the engine was stopped."""
        self._time_base = at - self.clock.monotonic()

    def now(self) -> int:
        """Return journal time: µs that only grow, over restarts too, independent of the wall clock."""
        return self.clock.monotonic() + self._time_base

    @property
    def wall_offset(self) -> int:
        """The wall clock at journal time 0, µs since 1970, as the newest start has found it; the record says it."""
        return self.catalog.wall_offset

    @property
    def full(self) -> bool:
        """Whether new work must be refused: more was accepted than the disk had room for at the last look."""
        return self.journaled_bytes + self.pending_bytes > self.full_at

    @property
    def room_left(self) -> int:
        """How many bytes more may be accepted before new work is refused; if it is, a negative number."""
        return self.full_at - self.journaled_bytes - self.pending_bytes

    @property
    def last_lsn(self) -> int:
        """The LSN of the last accepted record."""
        return self.next_lsn - 1

    # -- accept ------------------------------------------------------------------------------------------

    def append(
        self,
        store: MessageStore,
        frames: bytes | memoryview,
        count: int,
        producer_id: int = 0,
        epoch: int = 0,
        sequence: int = 0,
    ) -> int:
        """Accept a run of checked frames for a partition, of clients' topics or of the schedule; return the first
        offset.

        Raises ``MemoryExhausted`` before anything has changed.
        """
        assert store.number not in self.large_commits.promised, "its offsets are those of a large commit"
        if store.internal and store.topic != SCHEDULE_TOPIC:
            raise reserved(store.topic)
        at = self.now()
        base = store.end_offset
        view = store.append(frames, count, at, self.catalog.wall_offset)
        message = Messages(store.number, base, count, at, producer_id, epoch, sequence)
        lsn = self.queue(message, view)
        assert self._filling is not None
        self._filling.ends[store] = base + count
        for fold in self._append_routes:
            try:
                fold.apply(lsn, message, view)
            except BaseException as error:
                self._disagrees(fold, lsn, message, error)
                raise
        return base

    def accept(self, decision: AnyRecord, data: bytes | memoryview = b"") -> int:
        """Queue a decision and apply it to every fold that handles it; return its LSN."""
        self._accept(decision, data)
        return self.next_lsn - 1

    def decide(self, decision: AnyRecord, data: bytes | memoryview = b"") -> Outcome:
        """Do what :meth:`accept` does with a decision that ends a transaction; return how it ended."""
        applied = self._accept(decision, data)
        assert applied is not None
        outcome: Outcome = applied.outcome
        return outcome

    def _accept(self, decision: AnyRecord, data: bytes | memoryview) -> Applied | None:
        assert self.passing or self.large_commits.current is None, (
            "a large commit is being applied, and this may not pass it"
        )
        lsn = self._queue_durable(decision, data) if self._transient else self.queue(decision, data)
        applied: Applied | None = None
        for fold in self.routes.get(type(decision), ()):
            try:
                found: Applied | None = fold.apply(lsn, decision, data)
            except BaseException as error:
                self._disagrees(fold, lsn, decision, error)
                raise
            if found is not None:
                applied = found
        if applied is not None:
            self.applied(applied)
        return applied

    def _disagrees(self, fold: IFold, lsn: int, decision: AnyRecord, error: BaseException) -> None:
        """Fail: the record is queued but a fold does not agree with it, so neither can be trusted any more."""
        self.fail(f"applying {type(decision).__name__} at LSN {lsn} to {fold.name}: {error!r}")

    def queue(self, decision: AnyRecord, data: bytes | memoryview = b"") -> int:
        """Queue a decision that the caller applies to every fold that handles it, in the same turn; return its LSN."""
        if self.failed:
            raise JournalPoisoned(self.failed)
        lsn = self.next_lsn
        packed = record.pack(decision, data, record.seed(self.journal.salt, lsn))
        size = len(packed) + len(data)
        group = self._filling
        if group is None or group.length + size > GROUP_BYTES or group.count >= GROUP_RECORDS:
            if group is not None and self._archive.waiting and self._archive_outcomes(group):
                return self.queue(decision, data)
            group = self._open_group(lsn)
        elif len(self._archive.waiting) >= BATCH and self._archive_outcomes(group):
            return self.queue(decision, data)
        self._put(group, packed, data, size)
        return lsn

    def _queue_durable(self, decision: AnyRecord, data: bytes | memoryview) -> int:
        """Queue what of a decision is not about transient queues; return its LSN, or that of the record before it if
        that is nothing: the rest is shown when that one is.
        """
        durable = durable_part(decision, data, self._transient)
        if durable is not None:
            return self.queue(*durable)
        if self.failed:
            raise JournalPoisoned(self.failed)
        if self._filling is None:
            self._open_group(self.next_lsn)
        return self.last_lsn

    def _archive_outcomes(self, group: Group) -> bool:
        """Put the waiting outcomes into the archive with the group that decided them, full or not, to be shown with it.

        Returns False, with nothing changed, if memory is short: then they go with a later group.
        """
        archive = self._archive
        try:
            sent, view = archive.send(self.now())
        except MemoryExhausted:
            return False
        packed = record.pack(sent, view, record.seed(self.journal.salt, self.next_lsn))
        self._put(group, packed, view, len(packed) + len(view))
        group.ends[archive.store] = sent.base_offset + sent.count
        return True

    def _put(self, group: Group, packed: bytes, data: bytes | memoryview, size: int) -> None:
        group.pieces.append(packed)
        if data:
            group.pieces.append(data)
        group.length += size
        group.count += 1
        self.next_lsn += 1
        self.pending_bytes += size

    def _open_group(self, lsn: int) -> Group:
        idle = self._newest is None
        group = self._filling = self._newest = Group(lsn)
        self._ready.append(group)
        if idle:
            self.on_pending()
        return group

    def applied(self, applied: Applied) -> None:
        """Show what a fold has put into logs for the record that was queued last, or begin to apply it in slices."""
        for store in applied.stores:
            if self._filling is not None:
                self._filling.ends[store] = store.end_offset
            else:  # in replay everything is forced
                store.publish(store.end_offset)
        if (commit := applied.slices) is not None:
            if commit.short_of_memory:
                self.want_flush(commit.stores)
            self.large_commits.put(commit)
            self.passing = False

    def want_flush(self, stores: Sequence[MessageStore] = ()) -> None:
        """Flush now, whatever the force policies say, because memory is short. ``stores`` may have bytes to
        flush too.
        """
        self.dirty.update(stores)
        self.housekeeping.want_flush()
        self.on_flush_wanted()

    # -- files ---------------------------------------------------------------------------------------------

    def jobs(self, now: int) -> list[Any]:
        """Return the due jobs on files; run each in order on one thread, then :meth:`finish` it here."""
        return self.housekeeping.jobs(now)

    def finish(self, job: Any) -> None:
        """Note that a job has run."""
        self.housekeeping.finish(job)

    def close(self) -> None:
        """Close the files and release the directory. Everything accepted should have been forced."""
        self.journal.close()
        self.open_files.close()
        self.lock.release()

    def when_forced(self, deliver: Deliver, answer: Any) -> None:
        """Call ``deliver(answer)`` once everything accepted so far (but what is passed) is forced and shown."""
        if self.large_commits.current is not None and not self.passing:
            self.large_commits.last.waiters.append((deliver, answer))
        elif self._newest is None:
            deliver(answer)
        else:
            self._newest.waiters.append((deliver, answer))

    @property
    def is_all_shown(self) -> bool:
        """Whether everything accepted so far is forced and shown: :meth:`when_forced` would call at once."""
        return self._newest is None and self.large_commits.current is None

    def newest_times(self) -> GroupTimes | None:
        """Return the times, recorded from now on, of the group with the newest accepted records; None if all is
        forced.
        """
        return None if self._newest is None else self._newest.timed(self.clock)

    # -- large commits, applied in slices ------------------------------------------------------------------

    @property
    def busy(self) -> bool:
        """Whether large commits are being applied; until they are, only requests that may pass can be accepted."""
        return self.large_commits.current is not None

    def continue_apply(self) -> None:
        """Apply the next slice of a large commit; call it once a turn while ``busy``."""
        commit = self.large_commits.current
        if self.large_commits.step(self.forced_lsn):
            self._show({}, [])
            self.on_idle()
        elif commit is not None and commit.short_of_memory:
            self.want_flush(commit.stores)

    def _show(self, ends: dict[MessageStore, int], waiters: list[tuple[Deliver, Any]]) -> None:
        """Show these ends, and large commits that are forced by now, all before any waiter is called.

        A reader that a send wakes must see the whole of a large commit that was accepted before it.
        """
        first = self.large_commits.show(self.forced_lsn, ends)
        for store, end in ends.items():
            if store.publish(end):
                self.filled.add(store)
        if ends:
            self.dirty.update(ends)
            self.on_published(list(ends))
        for deliver, answer in chain(first, waiters):
            deliver(answer)

    # -- write, force, publish -------------------------------------------------------------------------------

    def take(self) -> Group | None:
        """Return the next group to write; None if there is none, one is under way, or a fold could not take a
        record.
        """
        if self._in_flight is not None or not self._ready or self.failed:
            return None
        group = self._ready.popleft()
        if group is self._filling:
            if self._archive.waiting:
                self._archive_outcomes(group)
            self._filling = None
        group.forced_lsn = self.forced_lsn
        self._in_flight = group
        return group

    def write(self, group: Group) -> float:
        """Write and force a group; return how many seconds that took. The only method for another thread.

        Raises :class:`JournalPoisoned`; then the process must stop (see :meth:`fail`).
        """
        return group.write(self.journal, self.clock.seconds)

    def place(self, group: Group) -> Placed | None:
        """Return the bytes of a small group and where they go, to be written and forced by whoever asks, who tells
        :meth:`forced_alone`; None if :meth:`write` must do it.
        """
        return self.journal.place(group)

    def forced_alone(self, group: Group, forced: Forced) -> float:
        """Note what came of a group that was placed; return and raise what :meth:`write` does. (Reactor.)"""
        return group.forced_alone(self.journal, forced)

    def under_way(self) -> tuple[Group | None, int]:
        """Return the group that is being written and forced, if any, and how many answers wait for it and later
        ones.
        """
        groups = [group for group in (self._in_flight, *self._ready) if group is not None]
        return self._in_flight, sum(len(group.waiters) for group in groups)

    def publish(self, group: Group) -> None:
        """Publish a group that is on disk: show its ends to readers and deliver the answers that waited for it."""
        assert group is self._in_flight
        self._in_flight = None
        if self._newest is group:
            self._newest = None
        self.forced_lsn = group.last_lsn
        if group.count:
            self.pending_bytes -= group.length
            self.journaled_bytes += blocks(GROUP_HEADER_BYTES + group.length)
            self.last_forced_at = self.now()
        group.pieces.clear()
        self._show(group.ends, group.waiters)

    def sync(self) -> None:
        """Write, force and publish everything accepted, inline; large commits too.

        Raises the failure, and from then on always :class:`JournalPoisoned`.
        """
        if self.failed:
            raise JournalPoisoned(self.failed)
        try:
            while (group := self.take()) is not None or self.busy:
                if group is not None:
                    self.write(group)
                    self.publish(group)
                else:
                    self.large_commits.finish(self.continue_apply, self.housekeeping.run_inline)
        except BaseException as error:
            self.fail(f"carrying out what was accepted: {error}")
            raise

    def fail(self, reason: str) -> None:
        """Refuse everything from now on; the process must stop and recover."""
        if not self.failed:
            self.failed = f"{reason}. The process must stop; the next start recovers what is on disk"

    # -- recovery ----------------------------------------------------------------------------------------------

    def started(
        self, start_number: int, nonce: bytes, first_lsn: int, restored: Restored = Restored.NOT
    ) -> None:
        """Begin a start: its first record rolls active transactions back, and begins a time line if ``restored``."""
        self.start_number = start_number
        self.next_lsn, self.forced_lsn = first_lsn, first_lsn - 1
        self._archive.settle()
        self.accept(Started(start_number, self.now(), self.clock.wall(), nonce, restored))

    def mark(self) -> bool:
        """Queue a MARK, which proves that all before it was forced, unless there is nothing to prove."""
        if self._newest is not None or self.busy or self.failed or self.journal_is_proven:
            return False
        lsn = self.accept(Mark(self.now()))
        self._proven_lsn = lsn
        return True

    @property
    def journal_is_proven(self) -> bool:
        """Whether the last record is a MARK, so that all earlier records are known to have been forced."""
        return self._proven_lsn == self.last_lsn

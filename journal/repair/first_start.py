"""The repair makes the first start itself: this proves that the directory starts, and rolls back what must be."""

from __future__ import annotations

from secrets import token_bytes
from typing import Any, cast

from msgspec.structs import replace

from journal.engine.engine import Engine
from journal.engine.settings import JournalSettings
from journal.errors import InvalidSetting
from journal.folds.access import AccessFold
from journal.folds.table import client_folds
from journal.formats import filenames
from journal.interfaces import IClock, IFilesystem, ILock
from journal.log.segment import Segment
from journal.log.segment_index import SegmentIndex
from journal.parties import Actor
from journal.records.access_entries import HASH_BYTES
from journal.records.record import AccessSet
from journal.recovery.start import recover
from journal.transaction_states import Cause, TransactionNumber

BY = Actor("txbroker repair")
WHY = "frames of it were lost to damage of the broker's files; see repairs.json"


def start_once(
    filesystem: IFilesystem,
    clock: IClock,
    lock: ILock,
    settings: JournalSettings,
    rollbacks: list[TransactionNumber],
    indexes: list[tuple[int, int]],
    cut_logs: bool,
    access_may_be_old: bool,
) -> None:
    """Start, with logs cut or not, roll back, make the indexes of (partition number, base offset) again, and stop.

    A checkpoint is written before the stop. Where one has to log in, or users and rules may be old, nobody is let in
    until they are confirmed.
    """
    held = cast(IFilesystem, _Held(filesystem, lock))
    engine = _started(held, clock, settings, cut_logs, access_may_be_old)
    try:
        for transaction in rollbacks:
            engine.transactions.rollback(transaction, Cause.OPERATOR, by=BY, why=WHY)
        _have_access_confirmed(engine, access_may_be_old)
        engine.sync()
        for number, base_offset in indexes:
            _make_index(engine, number, base_offset)
        engine.mark()
        engine.housekeeping.checkpoint_inline()
    finally:
        engine.close()


def _started(
    filesystem: IFilesystem,
    clock: IClock,
    settings: JournalSettings,
    cut_logs: bool,
    had_access: bool,
) -> Engine:
    """Start the engine with as few folds as the directory has: a log made without the service stays one without it.

    One that ``had_access`` was made with it, even if nothing is left that says so.

    Outcomes are archived if they were before: a transaction rolled back here must not be missing there.
    """
    settings = replace(settings, outcome_archive=None)
    try:
        return recover(filesystem, clock, settings, client_folds() if had_access else (), cut_logs=cut_logs)
    except InvalidSetting:
        return recover(filesystem, clock, settings, client_folds(), cut_logs=cut_logs)


def _have_access_confirmed(engine: Engine, may_be_old: bool) -> None:
    """Let in nobody by users and rules that may be older than they were: a person has to look at them first.

    The record that switched them on may be lost, too: so they need not be on.
    """
    for fold in engine.folds:
        if isinstance(fold, AccessFold) and fold.is_confirmed and (fold.is_on or may_be_old):
            key = fold.key or token_bytes(HASH_BYTES)
            engine.accept(AccessSet(fold.is_on, False, key, BY, engine.now()))


def _make_index(engine: Engine, number: int, base_offset: int) -> None:
    store = engine.catalog.stores.get(number)
    states = store.state().segments if store is not None else []
    for state in states:
        if store is None or state.base_offset != base_offset:
            continue
        segment = Segment.of(number, store.directory, state)
        file = engine.open_files.acquire(segment.path)
        try:
            SegmentIndex(engine.open_files, segment, True, {}, file.read, now=False).rebuild(
                "a repair asks for it"
            )
        finally:
            engine.open_files.release(file)


class _Held:
    """A file system whose lock the repair holds already, and in which a start does not see the repair's plan."""

    def __init__(self, filesystem: IFilesystem, lock: ILock) -> None:
        self._filesystem = filesystem
        self.held = lock

    def __getattr__(self, name: str) -> Any:
        return getattr(self._filesystem, name)

    def lock(self, path: str) -> _Borrowed:
        """Return the lock that is held."""
        assert path == filenames.LOCK
        return _Borrowed(self.held)

    def exists(self, path: str) -> bool:
        """Return whether a file exists; the plan is hidden from the start."""
        return path != filenames.REPAIR_PLAN and bool(self._filesystem.exists(path))


class _Borrowed:
    """A lock that its borrower cannot release."""

    def __init__(self, lock: ILock) -> None:
        self._lock = lock

    def check(self) -> None:
        """Check that the lock is still held."""
        self._lock.check()

    def release(self) -> None:
        """Do nothing: the lock belongs to the repair."""

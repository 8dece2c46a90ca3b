"""The restore of a backup: proven first, then copied to an empty directory, which then begins a new time line.

A mark stands in the directory from before the first file is copied until the first record of the new time line is
forced, and no start goes past it. So there is no moment at which the directory would go on in the old time line.
Crash windows are in decision 0064; ``tests/backup/test_crash_windows.py`` has a test of each.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable
from hashlib import sha256
from typing import NamedTuple

from journal.backup import layout
from journal.backup.manifest import Manifest, StoredFile, check_format, read_manifest
from journal.backup.object_store import FORCED_BYTES, FORCED_TOGETHER, damaged_object, prove
from journal.backup.pace import AT_ONCE, Pace
from journal.engine.engine import Engine
from journal.engine.settings import JournalSettings
from journal.errors import CorruptBackup, ForeignDirectory, InvalidSetting, UnknownBackup
from journal.folds.table import client_folds
from journal.formats import filenames
from journal.formats.repair_notes import RESTORE_UNFINISHED
from journal.interfaces import IClock, IFile, IFilesystem
from journal.records.record import Restored
from journal.recovery.start import recover
from journal.transaction_states import TransactionNumber
from journal.vfs.clones import clone
from journal.vfs.file_window import opened
from journal.vfs.filesystem import write_fully

SETTINGS = JournalSettings(low_water_bytes=0, outcome_archive=None)
"""The settings of the one start that a restore makes; none of it is kept, and outcomes are archived if they were."""
_EMPTY = frozenset((filenames.LOCK, "lost+found"))


class RestoredDirectory(NamedTuple):
    """A directory that holds a backup now; ``start`` is the number of the start that began its time line.

    ``waiting`` are the transactions that were prepared at the cut.
    """

    manifest: Manifest
    start: int
    waiting: list[TransactionNumber]


def restore(
    backups: IFilesystem,
    target: IFilesystem,
    clock: IClock,
    name: str = "",
    as_copy: bool = False,
    pace: Pace | None = None,
    progress: Callable[[str, int, int], object] | None = None,
    random: Callable[[int], bytes] = secrets.token_bytes,
    settings: JournalSettings = SETTINGS,
) -> RestoredDirectory:
    """Restore a backup, "" for the newest one, to an empty directory, made if it is missing; nothing may have it open.

    With ``as_copy`` the data get an identity of their own, and decide nothing for the original. Raises
    :class:`InvalidSetting` for "" if there are backups of several data directories, :class:`UnknownBackup`,
    :class:`CorruptBackup` or :class:`UnknownFormat` before anything is written, :class:`ForeignDirectory` if the
    directory is not empty, and ``OSError``; then the directory may hold a part, which no start goes past.
    """
    pace, progress = pace or Pace(), progress or _silent
    layout.check_backups(backups)
    manifest = read_manifest(backups, name) if name else _newest(backups)
    check_format(manifest)
    if target.exists(""):
        _check_empty(target)
    progress("reading all of the backup", 0, manifest.bytes)
    prove(backups, manifest.objects(), pace)
    target.make_directory("")
    lock = target.lock(filenames.LOCK)
    try:
        _check_empty(target)
        _mark(target, manifest.name)
        _Copying(backups, target, manifest, pace, progress).run()
    finally:
        lock.release()
    restored = Restored.COPY if as_copy else Restored.REPLACEMENT
    engine = _started(target, clock, settings, restored, random)
    try:
        found = RestoredDirectory(manifest, engine.start_number, sorted(engine.transactions.prepared))
    finally:
        engine.close()
    target.unlink(filenames.RESTORE)
    target.force_directory("")
    return found


def _newest(backups: IFilesystem) -> Manifest:
    """Return the newest backup, if all that can be read are of the same data."""
    names = layout.backup_names(backups)
    if not names:
        raise UnknownBackup("the directory holds no finished backup; nothing was done")
    newest = read_manifest(backups, names[-1])
    newest_of = {newest.identity: newest.name}
    for name in reversed(names[:-1]):
        try:
            identity = read_manifest(backups, name).identity
        except CorruptBackup:
            continue  # it would not be restored, and does not keep the newest from being
        newest_of.setdefault(identity, name)
    if len(newest_of) > 1:
        told = "; ".join(f"{identity or 'no identity'}: {name}" for identity, name in newest_of.items())
        raise InvalidSetting(
            f"the directory holds backups of {len(newest_of)} data directories, so the newest one may be of other data "
            f"than meant; nothing was done. Name one (--backup). The newest of each identity is: {told}"
        )
    return newest


def _silent(what: str, done: int, total: int) -> None:
    """Report no progress."""


def _check_empty(target: IFilesystem) -> None:
    there = [name for name in target.list_directory("") if name not in _EMPTY]
    if filenames.RESTORE in there:
        raise ForeignDirectory(RESTORE_UNFINISHED)
    if there:
        raise ForeignDirectory(
            f"the directory is not empty, it holds {there[0]!r}: a backup is not mixed with other data. Nothing was "
            "written. Name an empty directory, or one that does not exist yet; data that are damaged can be moved away"
        )


def _mark(target: IFilesystem, name: str) -> None:
    """Put up the mark, durably, before anything that a start could take for data."""
    file = target.open(filenames.RESTORE, create=True)
    try:
        write_fully(file, 0, [f"{name}\n".encode()])
        file.force()
    finally:
        file.close()
    target.force_directory("")


def _started(
    target: IFilesystem,
    clock: IClock,
    settings: JournalSettings,
    restored: Restored,
    random: Callable[[int], bytes],
) -> Engine:
    """Begin the time line with as few folds as the data have: a log made without a broker stays one without it."""
    try:
        return recover(target, clock, settings, random=random, restored=restored)
    except InvalidSetting:
        return recover(target, clock, settings, client_folds(), random=random, restored=restored)


class _Copying:
    """The copying of all files of a backup; what was copied is compared once more with what it has to be."""

    def __init__(
        self,
        backups: IFilesystem,
        target: IFilesystem,
        manifest: Manifest,
        pace: Pace,
        progress: Callable[[str, int, int], object],
    ) -> None:
        self._backups = backups
        self._target = target
        self._manifest = manifest
        self._pace = pace
        self._progress = progress
        self._unforced: list[IFile] = []

    def run(self) -> None:
        """Return once all files are on disk, names too."""
        target, done = self._target, 0
        folders = {path.rpartition("/")[0] for path in (file.path for file in self._manifest.files)}
        for folder in sorted({*filenames.DIRECTORIES, *folders} - {""}):
            target.make_directory(folder)
        try:
            for file in self._manifest.files:
                self._progress(file.path, done, self._manifest.bytes)
                self._copy(file)
                done += file.length
                if len(self._unforced) >= FORCED_TOGETHER:
                    self._force()
            self._force()
        finally:
            for file_left in self._unforced:
                file_left.close()
        for folder in sorted({*filenames.DIRECTORIES, *folders}):
            target.force_directory(folder)

    def _force(self) -> None:
        self._target.force_files(self._unforced)
        while self._unforced:
            self._unforced.pop().close()

    def _copy(self, stored: StoredFile) -> None:
        path = layout.object_file(stored.sha256)
        copy = self._target.open(stored.path, create=True)
        self._unforced.append(copy)
        with opened(self._backups, path) as file:
            if clone(file, copy):
                found = self._read(copy, stored.length, None)
            else:
                found = self._read(file, stored.length, copy)
        if found != stored.sha256:
            raise damaged_object(path, "its content is not what it was a moment ago")
        if stored.size > stored.length:
            copy.truncate(stored.size)

    def _read(self, file: IFile, length: int, copy: IFile | None) -> str:
        found = sha256()
        for position in range(0, length, AT_ONCE):
            data = file.read(position, min(AT_ONCE, length - position))
            found.update(data)
            if copy is not None:
                write_fully(copy, position, [data])
                if position and position % FORCED_BYTES == 0:
                    copy.force()
            self._pace.count(len(data))
        return found.hexdigest()

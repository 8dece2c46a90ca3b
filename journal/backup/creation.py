"""The making of a backup: the cut is read while its files are held, and the manifest is written last.

Crash windows are in decision 0064; ``tests/backup/test_crash_windows.py`` has a test of each.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import NamedTuple, Protocol

from journal.backup import layout
from journal.backup.contents import Contents, contents, newest_start
from journal.backup.manifest import Manifest, StoredFile, write_manifest
from journal.backup.object_store import ObjectStore, prove
from journal.backup.pace import Pace
from journal.backup.pruning import sweep
from journal.backup.stored_directory import check_stored
from journal.errors import CorruptData, FilesReleased, InvalidSetting
from journal.interfaces import IClock, IFilesystem

Progress = Callable[[str, int, int], object]
"""Is called with the file that is read next, the bytes read so far, and those of all."""


class Hold(Protocol):
    """What keeps the files of a data directory while they are read.

    ``checkpoint`` is the LSN of its newest checkpoint when the hold was taken, ``cut`` that of the last record accepted
    by then, which is forced by now. ``start`` and ``nonce`` are of the engine that holds the files, 0 and "" if none
    does; ``identity`` likewise.
    """

    checkpoint: int
    cut: int
    start: int
    nonce: bytes
    identity: str

    def check(self) -> None:
        """Raise :class:`FilesReleased` if the files are not held any more."""

    def release(self) -> bool:
        """Release the files; return whether they have been held all the time."""


class Made(NamedTuple):
    """A backup that has been made; ``written`` is how many bytes were not in the store before."""

    manifest: Manifest
    written: int


def make_backup(
    source: IFilesystem,
    backups: IFilesystem,
    hold: Hold,
    clock: IClock,
    pace: Pace | None = None,
    verify: bool = False,
    progress: Progress | None = None,
) -> Made:
    """Make a backup of a data directory whose files are held; when it returns, the backup is on disk.

    With ``verify`` all of it is read again, and compared as ``txbroker verify --deep`` does. Raises
    :class:`FilesReleased` if the files were not held to the end, :class:`CorruptData` if they are damaged,
    :class:`InvalidSetting` if they are not those of the engine that holds them, :class:`DirectoryLocked` if something
    else works in the directory of backups, :class:`ForeignDirectory`, and ``OSError``. Then no backup was made, and
    what was copied is removed. The hold is released in any case.
    """
    pace = pace or Pace()
    try:
        layout.prepare(backups)
        lock = layout.lock(backups)
        try:
            sweep(backups)
            try:
                return _Making(source, backups, hold, clock, pace, verify, progress or _silent).run()
            except BaseException:
                sweep(backups)
                raise
        finally:
            lock.release()
    finally:
        hold.release()


def _silent(what: str, done: int, total: int) -> None:
    """Report no progress."""


class _Making:
    """One backup."""

    def __init__(
        self,
        source: IFilesystem,
        backups: IFilesystem,
        hold: Hold,
        clock: IClock,
        pace: Pace,
        verify: bool,
        progress: Progress,
    ) -> None:
        self._source = source
        self._backups = backups
        self._hold = hold
        self._clock = clock
        self._pace = pace
        self._verify = verify
        self._progress = progress

    def run(self) -> Made:
        store = ObjectStore(self._backups, self._pace, self._verify)
        self._pace.look = self._hold.check
        try:
            found, files = self._read(store)
            store.force()
        finally:
            self._pace.look = None
            store.close()
        if not self._hold.release():
            raise _released()
        manifest = self._manifest(found, files)
        if self._verify:
            prove(self._backups, manifest.objects(), self._pace)
            check_stored(self._backups, manifest)
        write_manifest(self._backups, manifest)
        return Made(manifest, store.written)

    def _read(self, store: ObjectStore) -> tuple[Contents, list[StoredFile]]:
        """Store all files of the cut; what goes wrong because they were not held is told so."""
        hold = self._hold
        try:
            if hold.start and (start := newest_start(self._source)) != hold.start:
                raise _other_directory(start)
            found = contents(self._source, hold.checkpoint, hold.cut)
            if hold.nonce and found.nonce != hold.nonce:
                raise _other_directory(found.start)
            files: list[StoredFile] = []
            done = 0
            for piece in found.pieces:
                self._progress(piece.path, done, found.bytes)
                files.append(StoredFile(piece.path, piece.size, piece.length, store.put(self._source, piece)))
                done += piece.length
            return found, files
        except (CorruptData, FileNotFoundError) as error:
            hold.check()
            if isinstance(error, FileNotFoundError):
                raise CorruptData(
                    f"{error.filename} is missing, though the newest checkpoint or the journal says that it is needed. "
                    "No backup was made, and nothing was changed. 'txbroker verify DIR' (once the broker is stopped) "
                    "says what is damaged",
                    str(error.filename),
                ) from error
            raise

    def _manifest(self, found: Contents, files: list[StoredFile]) -> Manifest:
        made = self._clock.wall()
        names = layout.backup_names(self._backups)
        number = layout.number_of_backup(names[-1]) + 1 if names else 1
        when = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=made)
        return Manifest(
            name=layout.backup_name(number, when.strftime("%Y%m%dT%H%M%SZ")),
            made=made,
            identity=self._hold.identity or found.identity,
            start=found.start,
            nonce=found.nonce.hex(),
            checkpoint=found.checkpoint,
            cut=found.cut,
            files=files,
        )


def _other_directory(start: int) -> InvalidSetting:
    return InvalidSetting(
        f"the newest start in the directory is number {start}, and not that of the broker that was asked: it is "
        "another directory than the broker's, or a copy. No backup was made. Name the directory of the broker at that "
        "address"
    )


def _released() -> FilesReleased:
    return FilesReleased(
        "the broker did not keep its files until they were read: its connection was lost, it ended, or its disk was "
        "short of room. No backup was made, and nothing was changed. Run it again when that is over"
    )

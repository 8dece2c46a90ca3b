"""What keeps the files of a data directory while they are read: an engine in this process, or that nobody opens it."""

from __future__ import annotations

from journal.backup.contents import check_finished
from journal.checkpoints.choice import choose_checkpoint
from journal.engine.engine import Engine
from journal.errors import CorruptJournal, FilesReleased
from journal.formats import filenames
from journal.formats.witness import NOTHING, read_witness
from journal.interfaces import IFilesystem, ILock
from journal.wal.end_scan import JournalScan
from journal.wal.writer import Journal


class EngineHold:
    """A pin of an engine in this process: for embedded logs, and the coordinator.

    Everything accepted so far is forced first. Raises :class:`DiskFull` where space is scarce.
    """

    def __init__(self, engine: Engine) -> None:
        self._housekeeping = engine.housekeeping
        engine.sync()
        self._pin = engine.housekeeping.pin()
        self.checkpoint: int = self._pin.lsn
        self.cut = engine.forced_lsn
        self.start, self.nonce = engine.starts.newest
        self.identity = ""

    def check(self) -> None:
        """Raise :class:`FilesReleased` if the disk needed the space."""
        if not self._pin.held:
            raise FilesReleased(
                "the disk of the data directory is short of room, and files were removed; no backup was made. Make "
                "room, and run it again"
            )

    def release(self) -> bool:
        """Release the files; return whether they have been held all the time. A second call does nothing."""
        held: bool = self._pin.held
        self._housekeeping.unpin(self._pin)
        return held


class StoppedHold:
    """The lock of a directory that nobody has open, taken by the caller for as long as the backup takes.

    The cut is the end of the journal, as a start would find it. Raises :class:`CorruptJournal` where a start would, and
    what :func:`~journal.backup.contents.check_finished` does.
    """

    def __init__(self, filesystem: IFilesystem, lock: ILock) -> None:
        self._lock: ILock | None = lock
        check_finished(filesystem)
        witness = read_witness(filesystem) or NOTHING
        choice = choose_checkpoint(filesystem, witness)
        scans = JournalScan(filesystem, Journal(filesystem), witness, [], _silent).scan(choice.newest)
        if not scans:
            raise CorruptJournal(
                "the journal holds nothing: the directory has never been started, and there is nothing to back up. "
                "Nothing was changed",
                filenames.JOURNAL_DIRECTORY,
            )
        self.checkpoint = choice.newest.header.lsn if choice.newest is not None else 0
        self.cut = scans[-1].end.next_lsn - 1
        self.start, self.nonce, self.identity = 0, b"", ""

    def check(self) -> None:
        """Raise :class:`LockLost` if the directory is no longer held alone."""
        if self._lock is not None:
            self._lock.check()

    def release(self) -> bool:
        """Release the directory; return that it was held until now. A second call does nothing."""
        lock, self._lock = self._lock, None
        if lock is not None:
            lock.check()
            lock.release()
        return True


def _silent(_: str) -> None:
    """Report no progress."""

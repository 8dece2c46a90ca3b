"""The lock of a data directory: held on the directory itself and on a file in it, and checked while it is held.

The directory's own lock cannot be removed, so no second holder can get in. The file's lock is for people, who find the
holder's process id in it. If the file or the directory is replaced, the holder notices it by :meth:`OSLock.check`.
"""

from __future__ import annotations

import errno
import os
from contextlib import suppress
from pathlib import Path

from zope.interface import implementer

from journal.errors import DirectoryLocked, LockLost, StorageUnavailable
from journal.interfaces import ILock
from journal.vfs.linux import fcntl

_FILE_MODE = 0o640
_HELD = (errno.EAGAIN, errno.EACCES)
_NO_SUCH_LOCK = (errno.EBADF, errno.EINVAL, errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP)
"""The errors of a file system without locks of directories: NFS takes exclusive locks on writable files only."""


@implementer(ILock)
class OSLock:
    """Held ``flock`` locks. They end with the process, however it ends; children made by fork share them."""

    __slots__ = ("_held",)

    def __init__(self, held: list[tuple[Path, int]]) -> None:
        self._held = held
        """Path and descriptor of the directory, then of the file."""

    def check(self) -> None:
        """Raise :class:`LockLost` if the directory or the file has been removed or replaced since it was locked."""
        for path, descriptor in self._held:
            mine = os.fstat(descriptor)
            try:
                named = os.stat(path)
            except (FileNotFoundError, NotADirectoryError):
                raise LockLost(lost_message(str(path), "has been removed")) from None
            if (mine.st_dev, mine.st_ino) != (named.st_dev, named.st_ino):
                raise LockLost(lost_message(str(path), "has been replaced by another one"))

    def release(self) -> None:
        """Release the lock. The file stays, for the next holder."""
        held, self._held = self._held, []
        for _, descriptor in reversed(held):
            with suppress(OSError):  # of a directory, or of a file open for reading
                os.ftruncate(descriptor, 0)
            os.close(descriptor)


def take(path: Path) -> OSLock:
    """Lock the directory of ``path`` and then ``path``, a file made if missing, and write our process id into it.

    Raises :class:`DirectoryLocked` if another process holds either, :class:`StorageUnavailable` where directories have
    no locks.
    """
    held = _taken(path, fcntl.LOCK_EX, os.O_RDWR | os.O_CREAT)
    _, file = held[-1]
    with suppress(OSError):  # the id is for people: a full disk must not keep recovery from starting
        os.ftruncate(file, 0)
        os.pwrite(file, b"%d\n" % os.getpid(), 0)
    return OSLock(held)


def take_for_reading(path: Path) -> OSLock:
    """Keep the directory of ``path`` and ``path`` from being locked, while other readers are allowed. Writes nothing.

    The file may be missing, as in a copy. Where directories have no locks, no broker can run that must be kept out.
    Raises :class:`DirectoryLocked`.
    """
    return OSLock(_taken(path, fcntl.LOCK_SH, os.O_RDONLY | os.O_NONBLOCK))


def _taken(path: Path, kind: int, flags: int) -> list[tuple[Path, int]]:
    """Lock the directory and then the file, which is opened with these flags; on a failure close both again."""
    held: list[tuple[Path, int]] = []
    try:
        directory = _open(held, path.parent, os.O_RDONLY | os.O_DIRECTORY)
        try:
            _lock(directory, kind, path)
        except OSError as error:
            if error.errno not in _NO_SUCH_LOCK:
                raise
            if kind == fcntl.LOCK_EX:
                raise StorageUnavailable(
                    f"the file system of {path.parent} has no lock for a directory (NFS has none), so a second broker "
                    f"could not be kept out: {error.strerror}. Nothing was read or changed. Use a directory on "
                    "a local file system"
                ) from None
        with suppress(FileNotFoundError):
            _lock(_open(held, path, flags), kind, path)
    except BaseException:
        for _, descriptor in held:
            os.close(descriptor)
        raise
    return held


def locked_message(directory: str, owner: str) -> str:
    """Return the text of :class:`DirectoryLocked`, the same on every file system."""
    return (
        f"{directory} is locked by process {owner}: another program has this data directory open. Nothing was "
        "read or changed. Stop that process, or use another directory. Removing files does not help: the directory "
        "itself is locked, for as long as that process lives"
    )


def lost_message(path: str, what: str) -> str:
    """Return the text of :class:`LockLost`, the same on every file system."""
    return (
        f"{path}, by which this data directory is locked, {what}: another program may be at work here. Nothing more is "
        "accepted, and this process must stop; what it acknowledged is on disk, of what it was asked last that is not "
        "known. See who changed the directory, put back what was moved away, and start again"
    )


def _open(held: list[tuple[Path, int]], path: Path, flags: int) -> int:
    descriptor = os.open(path, flags | os.O_CLOEXEC, _FILE_MODE)
    held.append((path, descriptor))
    return descriptor


def _lock(descriptor: int, kind: int, path: Path) -> None:
    try:
        fcntl.flock(descriptor, kind | fcntl.LOCK_NB)
    except OSError as error:
        if error.errno not in _HELD:
            raise
        locked = DirectoryLocked(locked_message(str(path.parent), holder := _holder(descriptor, path)))
        locked.holder = holder
        raise locked from None


def _holder(descriptor: int, path: Path) -> str:
    """Return the process that holds a lock on an open file, from the kernel's table, else the id in ``path``."""
    status = os.fstat(descriptor)
    file = f"{os.major(status.st_dev):02x}:{os.minor(status.st_dev):02x}:{status.st_ino}"
    with suppress(OSError), open("/proc/locks", encoding="ascii") as table:
        for line in table:
            fields = line.split()
            if len(fields) > 5 and fields[1] == "FLOCK" and fields[5] == file and int(fields[4]) > 0:
                return fields[4]
    with suppress(OSError):
        return path.read_bytes()[:32].decode("ascii", "replace").strip() or "unknown"
    return "unknown"

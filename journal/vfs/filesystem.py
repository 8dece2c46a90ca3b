"""All system calls on files: :class:`OSFilesystem`, and functions for the files of any file system."""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from zope.interface import implementer

from journal.constants import MIB
from journal.interfaces import IFile, IFilesystem
from journal.vfs import directory_lock
from journal.vfs.directory_lock import OSLock

IOV_MAX = 1024
"""Linux takes at most this many buffers in one call."""

FORCED_AT_ONCE = 8
"""More threads than these make forces no faster."""

_READ_NOW_FLAG: int | None = getattr(os, "RWF_NOWAIT", None)
_FILE_MODE = 0o640
_DIRECTORY_MODE = 0o750


def check_path(path: str) -> str:
    """Return ``path`` if it stays below a file system's root; ``""`` is the root itself.

    Raises ``ValueError`` for absolute paths, ``.``, ``..``, empty parts and NUL.
    """
    if path and (not {"", ".", ".."}.isdisjoint(path.split("/")) or "\0" in path):
        raise ValueError(f"{path!r} is not a plain path below the root")
    return path


def write_fully(file: IFile, position: int, buffers: Sequence[bytes | memoryview]) -> int:
    """Write all of ``buffers``, one after the other from ``position`` on; return how many bytes that was.

    It continues after short writes without copying a buffer. Memoryviews must be of bytes. Raises the ``OSError`` of
    the system call, or EIO if a call made no progress; then any part may have been written.
    """
    pending = [buffer for buffer in buffers if len(buffer)]
    start = position
    first = 0
    while first < len(pending):
        written = file.write_some(position, pending[first : first + IOV_MAX])
        if written <= 0:
            raise OSError(errno.EIO, f"a write at {position} made no progress", file.path)
        position += written
        while written:
            length = len(pending[first])
            if written < length:
                pending[first] = memoryview(pending[first])[written:]
                break
            written -= length
            first += 1
    return position - start


def zero_fill(file: IFile, start: int, length: int, step: int = MIB) -> None:
    """Write ``length`` zero bytes from ``start`` on, ``step`` at a time. Unforced."""
    zeros = memoryview(bytes(min(step, length)))
    end = start + length
    for position in range(start, end, step):
        write_fully(file, position, [zeros[: end - position]])


@implementer(IFile)
class OSFile:
    """An open file by its descriptor. Several threads may read it at once; close it when no thread uses it any more.

    Every ``OSError`` names the file; the system's own errors for calls on descriptors do not.
    """

    __slots__ = ("_descriptor", "path")

    @property
    def descriptor(self) -> int:
        """The number of the open file."""
        self._check()
        return self._descriptor

    def __init__(self, path: str, descriptor: int) -> None:
        self.path = path
        self._descriptor = descriptor

    def read(self, position: int, length: int) -> bytes:
        """Return ``length`` bytes from ``position``; fewer only where the file ends."""
        try:
            data = os.pread(self._descriptor, length, position)
            if len(data) == length or not data:
                return data
            parts = [data]
            got = len(data)
            while got < length and (data := os.pread(self._descriptor, length - got, position + got)):
                parts.append(data)
                got += len(data)
        except OSError as error:
            raise self._named(error) from None
        return b"".join(parts)

    def read_now(self, position: int, length: int) -> bytes | None:
        """Read as :meth:`read` does, but return None if that would wait for the disk (or the platform cannot know)."""
        self._check(position)
        if _READ_NOW_FLAG is None:
            return None
        memory = bytearray(length)
        view = memoryview(memory)
        got = 0
        while got < length:
            try:
                count = os.preadv(self._descriptor, [view[got:]], position + got, _READ_NOW_FLAG)
            except OSError as error:
                if error.errno in (errno.EAGAIN, errno.EOPNOTSUPP):
                    return None
                raise self._named(error) from None
            if not count:
                break
            got += count
        return bytes(view[:got])

    def forget_cached(self, position: int, length: int) -> None:
        """Let the next read of these bytes come from the disk; it is a hint, and unforced bytes stay in the cache."""
        os.posix_fadvise(self._descriptor, position, length, os.POSIX_FADV_DONTNEED)

    def write_some(self, position: int, buffers: Sequence[bytes | memoryview]) -> int:
        """Write the start of ``buffers`` at ``position``; may be short. See :func:`write_fully`."""
        self._check(position)
        try:
            return os.pwritev(self._descriptor, buffers[:IOV_MAX], position)
        except OSError as error:
            raise self._named(error) from None

    def force(self) -> None:
        """Return once every byte written through this file is on disk."""
        self._check()
        try:
            os.fdatasync(self._descriptor)
        except OSError as error:
            raise self._named(error) from None

    def size(self) -> int:
        """Return the file's length in bytes."""
        try:
            return os.fstat(self._descriptor).st_size
        except OSError as error:
            raise self._named(error) from None

    def truncate(self, length: int) -> None:
        """Cut or extend with zeros to ``length`` bytes. Unforced."""
        try:
            os.ftruncate(self._descriptor, length)
        except OSError as error:
            raise self._named(error) from None

    def close(self) -> None:
        """Close the descriptor. Any later use except another close raises EBADF."""
        descriptor, self._descriptor = self._descriptor, -1
        if descriptor >= 0:
            os.close(descriptor)

    def _named(self, error: OSError) -> OSError:
        return OSError(error.errno, error.strerror, self.path)

    def _check(self, position: int = 0) -> None:
        # The calls with flags take -1 for "where the last call ended"; fdatasync(-1) raises ValueError.
        if position < 0 or self._descriptor < 0:
            number = errno.EINVAL if self._descriptor >= 0 else errno.EBADF
            raise OSError(number, os.strerror(number), self.path)


@implementer(IFilesystem)
class OSFilesystem:
    """The files below ``root``, a directory. ``make_directory("")`` makes the root itself, durably.

    Directories that are made have the mode ``directory_mode``. Files and directories that are made belong to ``owner``,
    a user and a group by their numbers, which root alone can say; None for who makes them.
    """

    def __init__(
        self,
        root: str | os.PathLike[str],
        directory_mode: int = _DIRECTORY_MODE,
        owner: tuple[int, int] | None = None,
    ) -> None:
        self.root = Path(root).absolute()
        self._above = f"{self.root}/"
        self._directory_mode = directory_mode
        self._owner = owner

    def open(self, path: str, create: bool = False, writable: bool = True) -> OSFile:
        """Return the file; with ``create`` a missing one is made."""
        # or opening a pipe would wait for a writer
        mode = os.O_RDWR if writable else os.O_RDONLY | os.O_NONBLOCK
        flags = os.O_CLOEXEC | mode | (os.O_CREAT if create else 0)
        # This runs three times for a flush of a new log; joining by pathlib takes as long as the call.
        try:
            descriptor = os.open(full := self._above + check_path(path), flags, _FILE_MODE)
        except FileNotFoundError:
            if os.path.islink(full):  # the directory lists it, so it has not been removed
                raise OSError(errno.ENXIO, "A link to nothing", path) from None
            raise
        if not writable and not stat.S_ISREG(kind := os.fstat(descriptor).st_mode):
            os.close(descriptor)
            if stat.S_ISDIR(kind):
                raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), path)
            raise OSError(errno.EINVAL, "Not a regular file", path)
        if create and self._owner is not None:
            os.fchown(descriptor, *self._owner)
        return OSFile(path, descriptor)

    def rename(self, old: str, new: str) -> None:
        """Give a file a new name, replacing a file that had it, atomically."""
        os.rename(self._full(old), self._full(new))

    def unlink(self, path: str) -> None:
        """Remove a file."""
        os.unlink(self._full(path))

    def make_directory(self, path: str) -> None:
        """Make a directory. Does nothing if it exists already."""
        full = self._full(path)
        try:
            os.mkdir(full, self._directory_mode)
        except FileExistsError:
            if not full.is_dir():
                raise
        else:
            if self._owner is not None:
                os.chown(full, *self._owner)
            if not path:
                _force_directory(full.parent)

    def remove_directory(self, path: str) -> None:
        """Remove an empty directory."""
        os.rmdir(self._full(path))

    def list_directory(self, path: str) -> list[str]:
        """Return the names in a directory, sorted."""
        return sorted(os.listdir(self._full(path)))

    def exists(self, path: str) -> bool:
        """Return whether a file or directory has that name; raises ``OSError`` if that cannot be found out."""
        try:
            os.stat(self._full(path))
        except (FileNotFoundError, NotADirectoryError):
            return False
        except OSError as error:
            if error.errno != errno.ELOOP:
                raise
        return True

    def force_directory(self, path: str) -> None:
        """Return once all names in the directory are on disk."""
        _force_directory(self._full(path))

    def force_files(self, files: Sequence[IFile]) -> None:
        """Force files, several at once: a file system makes one commit, and a disk one flush, of forces at the same
        time.

        512 files with 26 KB each on a busy disk: 0.4 to 1.8 s one after the other, 0.07 to 0.14 s at once.
        """
        with ThreadPoolExecutor(FORCED_AT_ONCE) as threads:
            for _ in threads.map(_force_file, files):
                pass  # raises the error of a force

    def lock(self, path: str) -> OSLock:
        """Take an exclusive lock on a file and its directory, and write our process id into the file."""
        lock = directory_lock.take(self._full(path))
        if self._owner is not None:
            os.chown(self._full(path), *self._owner)
        return lock

    def read_lock(self, path: str) -> OSLock:
        """Keep a file and its directory from being locked, while other readers are allowed; the file may be missing.

        Raises :class:`DirectoryLocked` if it is locked. Writes nothing.
        """
        return directory_lock.take_for_reading(self._full(path))

    def free_bytes(self) -> int:
        """Return how many bytes a process without privileges can still write to the disk."""
        numbers = os.statvfs(self.root)
        return numbers.f_bavail * numbers.f_frsize

    def _full(self, path: str) -> Path:
        return self.root / check_path(path)


def _force_file(file: IFile) -> None:
    file.force()


def _force_directory(full: Path) -> None:
    descriptor = os.open(full, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    except OSError as error:
        raise OSError(error.errno, error.strerror, str(full)) from None
    finally:
        os.close(descriptor)

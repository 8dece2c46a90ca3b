"""The memory file system models what a power cut, or a killed process, would leave."""

from __future__ import annotations

import errno
import os
from collections.abc import Sequence
from random import Random
from threading import RLock

from zope.interface import implementer

from journal.errors import DirectoryLocked, LockLost
from journal.interfaces import IFile, IFilesystem, ILock
from journal.testing.names import Directory, Names, os_error
from journal.testing.pages import Content
from journal.vfs.directory_lock import locked_message, lost_message
from journal.vfs.filesystem import IOV_MAX, check_path

SURVIVAL = (0.0, 0.1, 0.5, 0.9, 1.0)
"""The chances of survival that :meth:`MemoryFilesystem.crash_clone` draws from; 0 and 1 find faults of their own."""


@implementer(IFile)
class MemoryFile:
    """One open file of a :class:`MemoryFilesystem`."""

    __slots__ = ("_content", "_guard", "_open", "_writable", "path")

    descriptor = None
    """Nothing goes past it."""

    def __init__(self, path: str, content: Content, writable: bool, guard: RLock) -> None:
        self.path = path
        self._content = content
        self._writable = writable
        self._guard = guard
        self._open = True

    def read(self, position: int, length: int) -> bytes:
        """Return ``length`` bytes from ``position``; fewer only where the file ends."""
        self._check(position)
        with self._guard:
            return self._content.read(position, length)

    def read_now(self, position: int, length: int) -> bytes | None:
        """Read as :meth:`read` does: memory never waits. A fault plan can make it seem so."""
        return self.read(position, length)

    def forget_cached(self, position: int, length: int) -> None:
        """Do nothing: there is no disk below memory."""

    def write_some(self, position: int, buffers: Sequence[bytes | memoryview]) -> int:
        """Write the start of ``buffers`` at ``position``: all of them, up to IOV_MAX."""
        self._check(position)
        if not self._writable:
            raise os_error(errno.EBADF, self.path)
        data = buffers[0] if len(buffers) == 1 else b"".join(buffers[:IOV_MAX])
        with self._guard:
            self._content.write(position, data)
        return len(data)

    def force(self) -> None:
        """Make every byte of the file durable, but for pages that :meth:`lose` marked clean."""
        self._check()
        with self._guard:
            self._content.force()

    def lose(self) -> None:
        """Model a failed force: dirty pages become clean in the cache, and may never reach the disk."""
        self._check()
        self._content.lose()

    def size(self) -> int:
        """Return the file's length in bytes."""
        self._check()
        return self._content.size

    def truncate(self, length: int) -> None:
        """Cut or extend with zeros to ``length`` bytes. Unforced."""
        self._check(length)
        if not self._writable:
            raise os_error(errno.EINVAL, self.path)
        with self._guard:
            self._content.truncate(length)

    def close(self) -> None:
        """Close the file; any later use but another close raises EBADF."""
        self._open = False

    def _check(self, position: int = 0) -> None:
        if not self._open:
            raise os_error(errno.EBADF, self.path)
        if position < 0:
            raise os_error(errno.EINVAL, self.path)


@implementer(ILock)
class MemoryLock:
    """A lock that is held until it is released."""

    def __init__(self, filesystem: MemoryFilesystem, path: str) -> None:
        self._filesystem: MemoryFilesystem | None = filesystem
        self._path = path
        self._nodes = filesystem.nodes_of_lock(path)
        filesystem.locked.update(self._nodes)

    def check(self) -> None:
        """Raise :class:`LockLost` if the file or its directory is another one by now."""
        if self._filesystem is not None and self._filesystem.nodes_of_lock(self._path) != self._nodes:
            raise LockLost(lost_message(self._path, "has been removed, or replaced by another one"))

    def release(self) -> None:
        """Release the lock. A second release does nothing."""
        filesystem, self._filesystem = self._filesystem, None
        if filesystem is not None:
            filesystem.locked.difference_update(self._nodes)


@implementer(IFilesystem)
class MemoryFilesystem:
    """Files and directories in memory, for tests that cut the power.

    Any thread may use it. A file system and its clones share no file: what is written to one is never seen in another.
    """

    def __init__(self, free: int = 1 << 40, names: Names | None = None) -> None:
        self.free = free
        """The bytes that :meth:`free_bytes` returns; a fault plan models a full disk."""
        self._names = Names() if names is None else names
        self.locked: set[Directory | Content] = set()
        """The directories and files that a :class:`MemoryLock` holds."""
        self._guard = RLock()

    def crash_clone(self, seed: int, survive: float | None = None) -> MemoryFilesystem:
        """What a machine could find after a power cut at this moment; always the same for a seed.

        Of all that is unforced, each page, change of length and change of name survives with the chance
        ``survive``: 0 keeps nothing, 1 everything, and None lets the seed draw one of :data:`SURVIVAL`.
        """
        clone = self.kill_clone()
        clone.cut_power(Random(seed), survive)
        return clone

    def cut_power(self, random: Random, survive: float | None = None) -> None:
        """Lose what a power cut at this moment would, by the rules of :meth:`crash_clone`."""
        with self._guard:
            self._names.cut_power(random, random.choice(SURVIVAL) if survive is None else survive)

    def kill_clone(self, seed: int | None = None) -> MemoryFilesystem:
        """Return what the next process finds after SIGKILL: everything is readable, and no more durable than it was.

        With a seed memory was short meanwhile: of the pages that a failed force has marked clean some have left the
        cache, and are read as the disk has them.
        """
        with self._guard:
            clone = MemoryFilesystem(self.free, self._names.copy())
        if seed is not None:
            random = Random(seed)
            for content in clone._names.contents():
                content.evict(random)
        return clone

    def open(self, path: str, create: bool = False, writable: bool = True) -> MemoryFile:
        """Return the file; with ``create`` a missing one is made."""
        with self._guard:
            node = self._names.now.find(check_path(path))
            if node is None:
                if not create:
                    raise os_error(errno.ENOENT, path)
                place = self._names.now.place(path)
                node = self._new_file()
                self._names.change(node, place)
            if isinstance(node, Directory):
                raise os_error(errno.EISDIR, path)
            return MemoryFile(path, node, writable, self._guard)

    def rename(self, old: str, new: str) -> None:
        """Give a file a new name, replacing the file of that name atomically. Directories cannot be renamed."""
        with self._guard:
            node = self._file(old)
            if isinstance(self._names.now.find(check_path(new)), Directory):
                raise os_error(errno.EISDIR, new)
            self._names.change(node, self._names.now.place(new))

    def unlink(self, path: str) -> None:
        """Remove a file; those that have it open can go on using it."""
        with self._guard:
            self._names.change(self._file(path), None)

    def make_directory(self, path: str) -> None:
        """Make a directory; an existing one is no error."""
        with self._guard:
            node = self._names.now.find(check_path(path))
            if isinstance(node, Content):
                raise os_error(errno.EEXIST, path)
            if node is None:
                place = self._names.now.place(path)
                self._names.change(self._new_directory(), place)

    def remove_directory(self, path: str) -> None:
        """Remove an empty directory."""
        with self._guard:
            directory = self._directory(path)
            if self._names.now.entries[directory]:
                raise os_error(errno.ENOTEMPTY, path)
            if not path:
                raise os_error(errno.EBUSY, path)
            self._names.change(directory, None)

    def list_directory(self, path: str) -> list[str]:
        """Return the names in a directory, sorted."""
        with self._guard:
            return sorted(self._names.now.entries[self._directory(path)])

    def exists(self, path: str) -> bool:
        """Return whether a file or directory has that name."""
        with self._guard:
            try:
                return self._names.now.find(check_path(path)) is not None
            except (FileNotFoundError, NotADirectoryError):
                return False

    def force_directory(self, path: str) -> None:
        """Make all names in the directory durable."""
        with self._guard:
            self._names.force(self._directory(path))

    def force_files(self, files: Sequence[MemoryFile]) -> None:
        """Force one file after the other."""
        for file in files:
            file.force()

    def lock(self, path: str) -> MemoryLock:
        """Take an exclusive lock on a file and its directory. Clones start without any."""
        with self._guard:
            directory = check_path(path).rpartition("/")[0]
            if self._directory(directory) in self.locked:
                raise DirectoryLocked(locked_message(directory or "the directory", str(os.getpid())))
            self.open(path, create=True).close()
            return MemoryLock(self, path)

    def nodes_of_lock(self, path: str) -> list[Directory | Content]:
        """Return the nodes that have the names of a lock's directory and file now."""
        with self._guard:
            names = (path.rpartition("/")[0], path)
            return [node for name in names if (node := self._names.now.find(name)) is not None]

    def free_bytes(self) -> int:
        """Return :attr:`free`."""
        return self.free

    def _new_file(self) -> Content:
        return Content()

    def _new_directory(self) -> Directory:
        return Directory()

    def _file(self, path: str) -> Content:
        node = self._names.now.find(check_path(path))
        if node is None:
            raise os_error(errno.ENOENT, path)
        if isinstance(node, Directory):
            raise os_error(errno.EISDIR, path)
        return node

    def _directory(self, path: str) -> Directory:
        node = self._names.now.find(check_path(path))
        if node is None:
            raise os_error(errno.ENOENT, path)
        if not isinstance(node, Directory):
            raise os_error(errno.ENOTDIR, path)
        return node

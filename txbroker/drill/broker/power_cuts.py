"""Files of which the disk gets what was forced, and little else: the death of the process is then a power cut.

What is written waits in this process's memory until its file is forced, names until their directory is. The real
directory never holds more than a disk would after the power was cut: what was forced and, with ``share`` of all pages
and changes of names, what a kernel may have written back by itself, in any order. ``docs/drills.md`` says what for.
"""

from __future__ import annotations

import errno
import os
import shutil
import threading
from collections.abc import Sequence
from pathlib import Path
from random import Random
from typing import Final

from zope.interface import implementer

from journal.interfaces import IFile, IFilesystem
from journal.vfs.directory_lock import OSLock
from journal.vfs.filesystem import IOV_MAX, OSFile, OSFilesystem, check_path, write_fully

PAGE: Final = 4096
ZERO: Final = bytes(PAGE)
"""Every page of zeros is this object, so that files filled ahead of need cost no memory."""

SHARES: Final = (0.0, 0.0, 0.3, 0.9)
"""Each process keeps to one of them: often nothing unforced survives, sometimes some of it, sometimes nearly all."""

HOLDING: Final = ".unforced"
"""What follows the data directory's name in that of the one where files lie until their names are forced."""


class _Entry:
    """A file or directory, and where it really lies."""

    def __init__(self, holder: Path | _Directory, name: str) -> None:
        self.holder = holder
        self.name = name

    @property
    def real(self) -> Path:
        """Its path as the operating system knows it."""
        holder = self.holder
        return (holder.real if isinstance(holder, _Directory) else holder) / self.name


class _Directory(_Entry):
    """The names that are seen, and the changes of them that the disk does not have yet, in their order."""

    def __init__(self, holder: Path | _Directory, name: str) -> None:
        super().__init__(holder, name)
        self.entries: dict[str, _Entry] = {}
        self.changes: list[tuple[str, _Entry, bool]] = []
        """(name, entry, whether the name is given to it or taken from it)."""

    def force(self) -> None:
        """Give the disk all changes of names."""
        for name, entry, given in self.changes:
            if given:
                os.rename(entry.real, self.real / name)
                entry.holder, entry.name = self, name
            elif isinstance(entry, _Directory):
                shutil.rmtree(entry.real)
            else:
                os.unlink(entry.real)
        self.changes.clear()


class _Content(_Entry):
    """A file: pages that were not forced over what really lies there, of which ``kept`` bytes still count."""

    def __init__(self, holder: Path | _Directory, name: str, share: float, random: Random) -> None:
        super().__init__(holder, name)
        self._share = share
        self._random = random
        self._pages: dict[int, bytes] = {}
        self.size = self._kept = self.real.stat().st_size
        self._file: OSFile | None = None
        self._users = 0

    def opened(self) -> None:
        """One more uses it; from the first to the last of them its descriptor stays, whatever becomes of its name."""
        if self._file is None:
            self._file = OSFile(self.name, os.open(self.real, os.O_RDWR | os.O_CLOEXEC))
        self._users += 1

    def closed(self) -> None:
        """One less uses it."""
        self._users -= 1
        if not self._users and self._file is not None:
            self._file.close()
            self._file = None

    @property
    def _below(self) -> OSFile:
        assert self._file is not None, "somebody uses it"
        return self._file

    def read(self, position: int, length: int) -> bytes:
        """What the process sees: its own writes over what is on the disk."""
        end = min(position + length, self.size)
        if end <= position:
            return b""
        data = self._below.read(position, max(0, min(end, self._kept) - position))
        if not self._pages:
            return data.ljust(end - position, b"\0")
        found = bytearray(data.ljust(end - position, b"\0"))
        for page in range(position // PAGE, (end - 1) // PAGE + 1):
            if (written := self._pages.get(page)) is not None:
                first, last = max(position, page * PAGE), min(end, (page + 1) * PAGE)
                found[first - position : last - position] = written[first - page * PAGE : last - page * PAGE]
        return bytes(found)

    def write(self, position: int, data: bytes) -> None:
        """Into memory; some pages also to the disk, as it happens."""
        done = 0
        while done < len(data):
            page, offset = divmod(position + done, PAGE)
            part = data[done : done + PAGE - offset]
            if len(part) < PAGE:
                old = self.read(page * PAGE, PAGE).ljust(PAGE, b"\0")
                part = old[:offset] + part + old[offset + len(part) :]
            self._pages[page] = ZERO if part == ZERO else part
            done += PAGE - offset
            self.size = max(self.size, min(position + done, position + len(data)))
            if self._share and self._random.random() < self._share:
                self._write_back(page)

    def truncate(self, length: int) -> None:
        """Cut or extend, in memory."""
        for page in [page for page in self._pages if page * PAGE >= length]:
            del self._pages[page]
        if (last := self._pages.get(length // PAGE)) is not None:
            self._pages[length // PAGE] = last[: length % PAGE].ljust(PAGE, b"\0")
        self.size = length
        self._kept = min(self._kept, length)

    def force(self) -> None:
        """All of it to the disk: the operating system's memory will do, for it outlives the process."""
        for page in sorted(self._pages):
            self._write_back(page)
        self._pages.clear()
        if self._below.size() != self.size or self._kept != self.size:
            self._below.truncate(min(self._kept, self.size))
            self._below.truncate(self.size)
        self._kept = self.size

    def _write_back(self, page: int) -> None:
        below, start = self._below, page * PAGE
        if below.size() > self._kept:
            below.truncate(self._kept)  # changes of a file's length reach the disk in their order
        write_fully(below, start, [self._pages[page][: self.size - start]])
        self._kept = max(self._kept, min(start + PAGE, self.size))


@implementer(IFile)
class UnforcedFile:
    """An open file."""

    def __init__(self, path: str, content: _Content, lock: threading.RLock, writable: bool) -> None:
        self.path = path
        self._writable = writable
        self._content: _Content | None = content
        self._lock = lock
        content.opened()

    def _open(self, position: int = 0, cut: bool = False) -> _Content:
        if self._content is None:
            raise OSError(errno.EBADF, os.strerror(errno.EBADF), self.path)
        if position < 0 or (cut and not self._writable):
            raise OSError(errno.EINVAL, os.strerror(errno.EINVAL), self.path)
        return self._content

    def read(self, position: int, length: int) -> bytes:
        """What was written, forced or not."""
        with self._lock:
            return self._open(position).read(position, length)

    read_now = read

    def forget_cached(self, position: int, length: int) -> None:
        """Nothing: what is in memory here is what the disk does not have."""

    def write_some(self, position: int, buffers: Sequence[bytes | memoryview]) -> int:
        """Into memory; as much as the operating system takes in one call."""
        data = b"".join(buffers[:IOV_MAX])
        with self._lock:
            content = self._open(position)
            if not self._writable:
                raise OSError(errno.EBADF, os.strerror(errno.EBADF), self.path)
            content.write(position, data)
        return len(data)

    def force(self) -> None:
        """What was written is on the disk."""
        with self._lock:
            self._open().force()

    def size(self) -> int:
        """As the process sees it."""
        with self._lock:
            return self._open().size

    def truncate(self, length: int) -> None:
        """Cut or extend, in memory."""
        with self._lock:
            self._open(length, cut=True).truncate(length)

    def close(self) -> None:
        """Forces nothing."""
        with self._lock:
            content, self._content = self._content, None
            if content is not None:
                content.closed()


@implementer(IFilesystem)
class UnforcedIsLost(OSFilesystem):
    """The files below ``root`` for one process; nobody else sees what it has not forced.

    ``share`` of what is not forced survives its death; drawn from :data:`SHARES` by default. The root itself and the
    lock are the operating system's.
    """

    def __init__(
        self, root: str | os.PathLike[str], share: float | None = None, seed: int | None = None
    ) -> None:
        super().__init__(root)
        self._random = Random(seed)
        self._share = self._random.choice(SHARES) if share is None else share
        self._mutex = threading.RLock()
        self._holding = holding(self.root)
        shutil.rmtree(self._holding, ignore_errors=True)  # of a process before this one, which has died
        self._made = 0
        self._tree = _Directory(self.root.parent, self.root.name)
        if self.root.exists():
            self._load(self._tree)

    def _load(self, directory: _Directory) -> None:
        with os.scandir(directory.real) as found:
            for entry in found:
                if entry.is_dir():
                    below = _Directory(directory, entry.name)
                    self._load(below)
                    directory.entries[entry.name] = below
                else:
                    directory.entries[entry.name] = self._content(directory, entry.name)

    def _content(self, holder: Path | _Directory, name: str) -> _Content:
        return _Content(holder, name, self._share, self._random)

    def _new(self) -> str:
        self._holding.mkdir(exist_ok=True)
        self._made += 1
        return str(self._made)

    # -- names -------------------------------------------------------------------------------------

    def _find(self, path: str) -> _Entry:
        entry: _Entry = self._tree
        for name in check_path(path).split("/") if path else ():
            if not isinstance(entry, _Directory):
                raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), path)
            if name not in entry.entries:
                raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
            entry = entry.entries[name]
        return entry

    def _directory(self, path: str) -> _Directory:
        entry = self._find(path)
        if not isinstance(entry, _Directory):
            raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR), path)
        return entry

    def _place(self, path: str) -> tuple[_Directory, str]:
        above, _, name = check_path(path).rpartition("/")
        return self._directory(above), name

    def _changed(self, directory: _Directory, name: str, entry: _Entry, given: bool) -> None:
        directory.changes.append((name, entry, given))
        if self._share and self._random.random() < self._share:
            directory.force()  # a journaling file system writes changes of names in their order

    def open(self, path: str, create: bool = False, writable: bool = True) -> IFile:  # type: ignore[override]
        """The file; with ``create`` a missing one is made, whose name is lost until its directory is forced."""
        with self._mutex:
            directory, name = self._place(path)
            entry = directory.entries.get(name)
            if entry is None and create:
                held = self._new()
                (self._holding / held).touch(0o640)
                entry = directory.entries[name] = self._content(self._holding, held)
                self._changed(directory, name, entry, True)
            if entry is None:
                raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
            if not isinstance(entry, _Content):
                raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), path)
            return UnforcedFile(path, entry, self._mutex, writable)

    def rename(self, old: str, new: str) -> None:
        """Seen at once. A move to another directory, which the broker never makes, is durable at once."""
        with self._mutex:
            directory, name = self._place(old)
            other, to = self._place(new)
            entry = self._find(old)
            if isinstance(other.entries.get(to), _Directory):
                raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), new)
            if entry is other.entries.get(to):
                return
            del directory.entries[name]
            if other is not directory:
                directory.force()
            other.entries[to] = entry
            self._changed(other, to, entry, True)
            if other is not directory:
                other.force()

    def unlink(self, path: str) -> None:
        """Seen at once; the disk has the file until the directory is forced."""
        with self._mutex:
            entry = self._find(path)
            if isinstance(entry, _Directory):
                raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), path)
            self._remove(path, entry)

    def remove_directory(self, path: str) -> None:
        """An empty one."""
        with self._mutex:
            directory = self._directory(path)
            if directory.entries:
                raise OSError(errno.ENOTEMPTY, os.strerror(errno.ENOTEMPTY), path)
            self._remove(path, directory)

    def _remove(self, path: str, entry: _Entry) -> None:
        directory, name = self._place(path)
        del directory.entries[name]
        self._changed(directory, name, entry, False)

    def make_directory(self, path: str) -> None:
        """Lost, with all in it, until the one above is forced."""
        with self._mutex:
            if not path:
                super().make_directory(path)
                return
            directory, name = self._place(path)
            if name in directory.entries:
                if not isinstance(directory.entries[name], _Directory):
                    raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), path)
                return
            held = self._new()
            (self._holding / held).mkdir(0o750)
            made = directory.entries[name] = _Directory(self._holding, held)
            self._changed(directory, name, made, True)

    def list_directory(self, path: str) -> list[str]:
        """Names as they are seen."""
        with self._mutex:
            return sorted(self._directory(path).entries)

    def exists(self, path: str) -> bool:
        """Whether a file or directory is seen under that name."""
        try:
            with self._mutex:
                self._find(path)
        except (FileNotFoundError, NotADirectoryError):
            return False
        return True

    def force_directory(self, path: str) -> None:
        """The disk has all names as they are seen."""
        with self._mutex:
            self._directory(path).force()

    def lock(self, path: str) -> OSLock:
        """Take the lock, on the real file: it outlives no process anyway."""
        taken = super().lock(path)
        with self._mutex:
            directory, name = self._place(path)
            if name not in directory.entries:
                directory.entries[name] = self._content(directory, name)
        return taken


def holding(root: Path) -> Path:
    """Where files of a data directory lie until their names are forced; the drill removes it at its end."""
    return root.with_name(root.name + HOLDING)

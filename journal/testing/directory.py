"""The power-cut directory is a real directory that holds only what is surely on the disk.

It is the model of :mod:`journal.testing.memory` for programs that are really killed: what they have not forced waits
in their memory. SIGKILL then leaves what a power cut leaves at least; :meth:`PowerCutDirectory.cut_power` before it
leaves what a power cut may. ``docs/drills.md`` says what for.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from random import Random

from zope.interface import implementer

from journal.interfaces import IFilesystem
from journal.testing.memory import MemoryFilesystem
from journal.testing.names import Change, Directory, Names, Node, Table
from journal.testing.pages import PAGE, ZERO, Content
from journal.vfs.directory_lock import OSLock
from journal.vfs.filesystem import OSFile, OSFilesystem, check_path, write_fully

HOLDING = ".unforced"
"""The suffix of the directory beside it, which holds files that have no name on the disk."""


class RealDiskFile:
    """A :class:`~journal.testing.pages.DiskFile` in the real file that ``place`` names at the moment."""

    def __init__(self, place: Callable[[], Path], size: int) -> None:
        self._place = place
        self.size = size

    def _open(self) -> OSFile:
        place = self._place()
        return OSFile(place.name, os.open(place, os.O_RDWR | os.O_CLOEXEC))

    def read(self, first: int, last: int) -> list[bytes]:
        """Return the pages from ``first`` to ``last``."""
        count = last - first + 1
        data = b""
        if first * PAGE < self.size:
            file = self._open()
            data = file.read(first * PAGE, count * PAGE)
            file.close()
        data = data.ljust(count * PAGE, b"\0")
        return [data] if count == 1 else [data[at : at + PAGE] for at in range(0, len(data), PAGE)]

    def pages_from(self, first: int) -> Iterable[int]:
        """Return the numbers of all pages from ``first`` on."""
        return range(first, -(-self.size // PAGE))

    def store(self, pages: Mapping[int, bytes], size: int) -> None:
        """Put pages in place, and cut the file. They need not be forced: the operating system outlives the process."""
        file = self._open()
        if size < self.size:
            file.truncate(size)
        for page in sorted(pages):
            start = page * PAGE
            if start < size and (pages[page] is not ZERO or start < self.size):
                write_fully(file, start, [pages[page][: size - start]])
        file.truncate(size)
        file.close()
        self.size = size

    def copy(self) -> RealDiskFile:
        """Raise: a process has one directory."""
        raise NotImplementedError("the files of a real directory are not copied")


class RealTable(Table):
    """A table of names that makes its changes in a real directory too; nodes without a name lie in another one beside
    it.
    """

    def __init__(self, path: Path, held: Path) -> None:
        super().__init__(Directory())
        self._path = path
        self._held = held
        self._numbers: dict[Node, int] = {}
        if path.exists():
            self._load(self.root)

    def _load(self, directory: Directory) -> None:
        for entry in sorted(os.scandir(self.real(directory)), key=lambda entry: entry.name):
            if entry.is_dir() or entry.is_file():  # else it is the socket of a broker that was killed
                self.adopt(directory, entry.name)

    def adopt(self, directory: Directory, name: str) -> Node:
        """Take in what has this name in the real directory, with everything below it."""
        path = self.real(directory) / name
        node: Node = Directory() if path.is_dir() else self._content(path.stat().st_size)
        super().apply(Change(node, None, (directory, name), []))
        if isinstance(node, Directory):
            self._load(node)
        return node

    def real(self, node: Node) -> Path:
        """Return the real path of a node."""
        if node is self.root:
            return self._path
        if (place := self.places.get(node)) is not None:
            return self.real(place[0]) / place[1]
        return self._held / str(self._numbers.setdefault(node, len(self._numbers)))

    def new_file(self) -> Content:
        """Make a file without a name."""
        self._held.mkdir(exist_ok=True)
        content = self._content(0)
        self.real(content).touch(0o640)
        return content

    def _content(self, size: int) -> Content:
        content: Content = Content(RealDiskFile(lambda: self.real(content), size))
        return content

    def new_directory(self) -> Directory:
        """Make a directory without a name."""
        self._held.mkdir(exist_ok=True)
        directory = Directory()
        self.real(directory).mkdir(0o750)
        return directory

    def apply(self, change: Change) -> None:
        """Move the node's real file or directory; what it replaces or removes stays until the process ends."""
        self._held.mkdir(exist_ok=True)
        before = self.real(change.node)
        displaced = None
        if change.target is not None:
            displaced = self.entries.get(change.target[0], {}).get(change.target[1])
        super().apply(change)
        if displaced is not None and displaced is not change.node:
            os.link(self.real(change.node), self.real(displaced))
        os.rename(before, self.real(change.node))


@implementer(IFilesystem)
class PowerCutDirectory(MemoryFilesystem):
    """The files below ``root`` for one process. No other process sees what this one has not forced.

    The root itself and the lock are the operating system's.
    """

    def __init__(self, root: str | os.PathLike[str]) -> None:
        self._system = OSFilesystem(root)
        self.root = self._system.root
        held = holding(self.root)
        shutil.rmtree(held, ignore_errors=True)  # of an earlier process, which has ended
        self._table = RealTable(self.root, held)
        super().__init__(names=Names(self._table))

    def _new_file(self) -> Content:
        return self._table.new_file()

    def _new_directory(self) -> Directory:
        return self._table.new_directory()

    def cut_power(self, random: Random, survive: float | None = None) -> None:
        """Make the real directory what a power cut may leave; nothing can be changed afterwards."""
        self._guard.acquire()  # never released: the process is about to die
        super().cut_power(random, survive)

    def make_directory(self, path: str) -> None:
        """Make a directory; the root at once, any other is lost until the one above is forced."""
        if path:
            super().make_directory(path)
        else:
            self._system.make_directory(path)

    def lock(self, path: str) -> OSLock:  # type: ignore[override]
        """Take the lock, on the real file: it outlives no process anyway."""
        taken = self._system.lock(path)
        with self._guard:
            directory, name = self._names.now.place(check_path(path))
            if name not in self._names.now.entries[directory]:
                node = self._table.adopt(directory, name)
                self._names.now.apply(Change(node, None, (directory, name), []))
        return taken

    def free_bytes(self) -> int:
        """Return the bytes that can still be written to the disk."""
        return self._system.free_bytes()


def holding(root: Path) -> Path:
    """Return the directory for files that have no name on the disk; the drill removes it at its end."""
    return root.with_name(root.name + HOLDING)

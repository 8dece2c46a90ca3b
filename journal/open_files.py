"""Open files within a limit, so that ten thousand partitions do not run out of descriptors."""

from __future__ import annotations

from collections import OrderedDict
from threading import RLock

from journal.interfaces import IFile, IFilesystem

DEFAULT_LIMIT = 512


class _Open:
    __slots__ = ("file", "pins")

    def __init__(self, file: IFile) -> None:
        self.file = file
        self.pins = 1


class OpenFiles:
    """Files that are in use are *pinned* and never closed; of the others the longest unused go first.

    Whoever writes keeps its pin until it has forced what it wrote, so no file is ever closed with unforced
    writes and the force goes through the descriptor that wrote. All threads may call this (hence the one lock
    in the journal: the reactor opens for a read, a reader thread gives back); no system call is made under
    it.
    """

    def __init__(self, filesystem: IFilesystem, limit: int = DEFAULT_LIMIT) -> None:
        self.filesystem = filesystem
        self._limit = limit
        self._lock = RLock()  # a plan that is collected amid a call gives its file back here
        self._pinned: dict[str, _Open] = {}
        self._idle: OrderedDict[str, _Open] = OrderedDict()
        self._forgotten: dict[int, _Open] = {}

    def __len__(self) -> int:
        """How many files are open."""
        return len(self._pinned) + len(self._idle) + len(self._forgotten)

    def acquire(self, path: str, create: bool = False) -> IFile:
        """Return the file, open and pinned; give it back with :meth:`release`. Raises ``OSError``."""
        with self._lock:
            found = self._pin(path)
        if found is not None:
            return found.file
        opened = _Open(self.filesystem.open(path, create=create))
        with self._lock:
            found = self._pin(path)
            if found is None:
                self._pinned[path] = opened
            surplus = self._surplus()
        if found is not None:
            surplus.append(opened)
        self._close(surplus)
        return (found or opened).file

    def release(self, file: IFile) -> None:
        """Give back one pin. Raises ``RuntimeError`` if there is none."""
        with self._lock:
            surplus = self._unpin(file)
        self._close(surplus)

    def forget(self, path: str) -> None:
        """Close the file as soon as nobody uses it: its name is about to go or to mean something else."""
        with self._lock:
            surplus = []
            if path in self._idle:
                surplus.append(self._idle.pop(path))
            elif path in self._pinned:
                found = self._pinned.pop(path)
                self._forgotten[id(found.file)] = found
        self._close(surplus)

    def close(self) -> None:
        """Close every file that nobody uses."""
        with self._lock:
            surplus = list(self._idle.values())
            self._idle.clear()
        self._close(surplus)

    def _pin(self, path: str) -> _Open | None:
        found = self._pinned.get(path)
        if found is None:
            found = self._idle.pop(path, None)
            if found is None:
                return None
            self._pinned[path] = found
            found.pins = 0
        found.pins += 1
        return found

    def _unpin(self, file: IFile) -> list[_Open]:
        found = self._pinned.get(file.path)
        forgotten = found is None or found.file is not file
        if forgotten:
            found = self._forgotten.get(id(file))
        if found is None:
            raise RuntimeError(f"{file.path} is given back more often than it was taken")
        found.pins -= 1
        if found.pins:
            return []
        if forgotten:
            return [self._forgotten.pop(id(file))]
        self._idle[file.path] = self._pinned.pop(file.path)
        return self._surplus()

    def _surplus(self) -> list[_Open]:
        surplus = []
        while self._idle and len(self._idle) + len(self._pinned) > self._limit:
            surplus.append(self._idle.popitem(last=False)[1])
        return surplus

    @staticmethod
    def _close(surplus: list[_Open]) -> None:
        for opened in surplus:
            opened.file.close()

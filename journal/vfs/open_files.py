"""Open files within a limit, so that ten thousand partitions do not exhaust the descriptors."""

from __future__ import annotations

from collections import OrderedDict
from threading import RLock

from journal.interfaces import IFile, IFilesystem

DEFAULT_LIMIT = 512


class _Open:
    __slots__ = ("file", "pins", "unforced")

    def __init__(self, file: IFile) -> None:
        self.file = file
        self.pins = 1
        self.unforced = False


class OpenFiles:
    """Open files. Files in use are *pinned* and never closed; of the others the longest unused are closed first.

    A thread that writes keeps its pin until it has forced what it wrote, or leaves that to :meth:`force` with
    :meth:`release_unforced`. So no file is closed with unforced writes, and the force goes through the descriptor that
    wrote. A later descriptor would cover the same bytes. But if the kernel fails to write them and drops the file from
    memory between the two, the error is lost. All threads may call this (so here is the one lock of the journal: the
    reactor opens files for a read, a reader thread gives them back). No system call is made under the lock.
    """

    def __init__(self, filesystem: IFilesystem, limit: int = DEFAULT_LIMIT) -> None:
        self.filesystem = filesystem
        self._limit = limit
        self._lock = RLock()  # a plan that is garbage-collected during a call gives its file back here
        self._pinned: dict[str, _Open] = {}
        self._idle: OrderedDict[str, _Open] = OrderedDict()
        self._unforced: dict[str, _Open] = {}
        """Unused files, too, that must not be closed before they are forced."""
        self._directories: set[str] = set()
        """The files whose names are not forced."""
        self._forgotten: dict[int, _Open] = {}

    def __len__(self) -> int:
        """Return how many files are open."""
        return len(self._pinned) + len(self._idle) + len(self._unforced) + len(self._forgotten)

    def acquire(self, path: str, create: bool = False) -> IFile:
        """Return the file, open and pinned; release it with :meth:`release`. Raises ``OSError``."""
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
        """Release one pin. Raises ``RuntimeError`` if there is none."""
        with self._lock:
            surplus = self._unpin(file)
        self._close(surplus)

    def release_unforced(self, file: IFile, new: bool = False) -> None:
        """Release one pin of a file that was written to; :meth:`force` forces it, and its name if it is ``new``.

        If half of all files that may be open wait for a force, they are forced here. Raises ``OSError``.
        """
        with self._lock:
            self._pinned[file.path].unforced = True
            if new:
                self._directories.add(file.path.rpartition("/")[0])
            surplus = self._unpin(file)
            full = len(self._unforced) > self._limit // 2
        self._close(surplus)
        if full:
            self._force_files()

    def force(self) -> None:
        """Return once all files left to this are on disk, names too.

        Raises ``OSError``; then the process must stop.
        """
        self._force_files()
        with self._lock:
            directories, self._directories = self._directories, set()
        for directory in sorted(directories):
            self.filesystem.force_directory(directory)

    def _force_files(self) -> None:
        with self._lock:
            every = (*self._unforced.items(), *self._pinned.items())
            found = [opened for path, opened in every if opened.unforced and self._pin(path)]
        self.filesystem.force_files([opened.file for opened in found])
        surplus = []
        with self._lock:
            for opened in found:
                opened.unforced = False
                surplus += self._unpin(opened.file)
        self._close(surplus)

    def forget(self, path: str) -> None:
        """Close the file as soon as it is not in use: its name is about to be removed or reused."""
        with self._lock:
            surplus = []
            if path in self._idle:
                surplus.append(self._idle.pop(path))
            elif path in self._unforced:
                surplus.append(self._unforced.pop(path))
            elif path in self._pinned:
                found = self._pinned.pop(path)
                self._forgotten[id(found.file)] = found
        self._close(surplus)

    def close(self) -> None:
        """Close every file that is not in use, forced or not: the next step is a start, which writes again."""
        with self._lock:
            surplus = [*self._idle.values(), *self._unforced.values()]
            self._idle.clear()
            self._unforced.clear()
        self._close(surplus)

    def _pin(self, path: str) -> _Open | None:
        found = self._pinned.get(path)
        if found is None:
            found = self._idle.pop(path, None) or self._unforced.pop(path, None)
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
        del self._pinned[file.path]
        (self._unforced if found.unforced else self._idle)[file.path] = found
        return self._surplus()

    def _surplus(self) -> list[_Open]:
        surplus = []
        while self._idle and len(self._idle) + len(self._pinned) + len(self._unforced) > self._limit:
            surplus.append(self._idle.popitem(last=False)[1])
        return surplus

    @staticmethod
    def _close(surplus: list[_Open]) -> None:
        for opened in surplus:
            opened.file.close()

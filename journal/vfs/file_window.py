"""Files that are only read: opened and closed again, or read from start to end through a window in bounded memory."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Self

from journal.constants import MIB
from journal.interfaces import IFile, IFilesystem

WINDOW_BYTES = 4 * MIB
"""How many bytes are read at once. 512 MiB of journal: 0.40 s in reads of 64 MiB, each into new memory that the kernel
must map and clear first; 0.10 s in reads of 4 MiB, whose memory the C library reuses.
"""


class FileWindow:
    """A window over a file. ``read(position, length)`` returns its bytes, fewer only at its end; ``size`` is
    its length.
    """

    __slots__ = ("_bytes", "_read", "_start", "_view", "size")

    def __init__(self, read: Callable[[int, int], bytes], size: int, window: int = WINDOW_BYTES) -> None:
        self.size = size
        self._read = read
        self._bytes = window
        self._start = 0
        self._view = memoryview(b"")

    @classmethod
    def of(cls, data: bytes) -> Self:
        """Return a window over all of some bytes."""
        return cls(lambda position, length: data[position : position + length], len(data), len(data))

    def at(self, position: int, length: int) -> memoryview:
        """Return ``length`` bytes from ``position`` on; fewer only where the file ends. Valid as long as it is held."""
        start = position - self._start
        if not 0 <= start <= start + length <= len(self._view) and position < self.size:
            # The old window is dropped before the new one is read, so that its memory can be reused.
            self._view = memoryview(b"")
            self._view = memoryview(self._read(position, max(length, self._bytes)))
            self._start, start = position, 0
        return self._view[start : start + length] if start >= 0 else self._view[:0]


@contextmanager
def opened(filesystem: IFilesystem, path: str) -> Iterator[IFile]:
    """Open a file for reading, for as long as the context lasts."""
    file = filesystem.open(path, writable=False)
    try:
        yield file
    finally:
        file.close()


@contextmanager
def window(filesystem: IFilesystem, path: str) -> Iterator[FileWindow]:
    """Open a window over a file, a few MiB in memory at a time, for as long as the context lasts."""
    with opened(filesystem, path) as file:
        yield FileWindow(file.read, file.size())


def read_some(filesystem: IFilesystem, path: str, position: int, length: int) -> bytes:
    """Return some bytes of a file; fewer only where it ends."""
    with opened(filesystem, path) as file:
        return bytes(file.read(position, length))


def file_size(filesystem: IFilesystem, path: str) -> int:
    """Return a file's length in bytes."""
    with opened(filesystem, path) as file:
        return int(file.size())

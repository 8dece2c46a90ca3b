"""The bytes of one file as the page cache and the disk have them, and which of them a power cut may leave.

The model follows ext4 and XFS. Between two forces the kernel may write any dirty page back at any time, or
not: so after a power cut each page is what was forced, or *any* version written since, page by page, and
sometimes a mixture of their sectors. The length is metadata: its changes reach the disk in their order, each
without the bytes it makes room for (a hole reads zeros), and growth may be cut at a page boundary.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from random import Random
from types import MappingProxyType
from typing import NamedTuple, Protocol

PAGE = 4096
SECTOR = 512
ZERO = bytes(PAGE)
"""Every page of zeros is this object, so that zero-filled files cost no memory."""

TORN_SHARE = 0.25
"""One of so many crashes of a file with dirty pages tears a page between sectors."""


class _Resize(NamedTuple):
    """A change of length; ``cut`` maps pages that lost bytes to the version (by index) without them.

    ``tail`` is the page that lost only its end, if any: it stays where it is on the disk.
    """

    size: int
    cut: Mapping[int, int] = MappingProxyType({})
    tail: int = -1


class DiskFile(Protocol):
    """The part of one file that is surely on the disk: ``size`` bytes, in whole pages that end with zeros."""

    size: int

    def read(self, first: int, last: int) -> list[bytes]:
        """Return the pages from ``first`` to ``last``; zeros where there is nothing."""

    def pages_from(self, first: int) -> Iterable[int]:
        """Return the numbers of all pages from ``first`` on that may hold something else than zeros."""

    def store(self, pages: Mapping[int, bytes], size: int) -> None:
        """Put pages in place and make the file ``size`` bytes long; what lies behind that is cut off."""

    def copy(self) -> DiskFile:
        """Return another file with the same bytes."""


class MemoryDiskFile:
    """A :class:`DiskFile` in memory."""

    __slots__ = ("_pages", "size")

    def __init__(self) -> None:
        self.size = 0
        self._pages: dict[int, bytes] = {}

    def read(self, first: int, last: int) -> list[bytes]:
        """Return the pages from ``first`` to ``last``."""
        get = self._pages.get
        return [get(page, ZERO) for page in range(first, last + 1)]

    def pages_from(self, first: int) -> Iterable[int]:
        """Return the numbers of the pages that were ever written."""
        return [page for page, data in self._pages.items() if page >= first and data is not ZERO]

    def store(self, pages: Mapping[int, bytes], size: int) -> None:
        """Put pages in place, and cut; other pages than these can lie behind the end only if the file gets shorter."""
        self._pages.update(pages)
        touched = self._pages if size < self.size else pages
        self.size = size
        whole, rest = divmod(size, PAGE)
        for page in [page for page in touched if page >= whole]:
            if page == whole and rest:
                self._pages[page] = self._pages[page][:rest] + ZERO[rest:]
            else:
                del self._pages[page]

    def copy(self) -> MemoryDiskFile:
        """Return another file with the same bytes."""
        other = MemoryDiskFile()
        other.size = self.size
        other._pages = self._pages.copy()
        return other


class Content:
    """The bytes of a file: what is surely on disk, and every version of a page written since. Reads see the newest."""

    __slots__ = ("_disk", "_lost", "_resizes", "_versions", "size")

    def __init__(self, disk: DiskFile | None = None) -> None:
        self._disk: DiskFile = MemoryDiskFile() if disk is None else disk
        self.size = self._disk.size
        self._versions: dict[int, list[bytes]] = {}
        self._lost: set[int] = set()
        self._resizes: list[_Resize] = []

    def read(self, position: int, length: int) -> bytes:
        """Return ``length`` bytes from ``position``; fewer only where the file ends."""
        end = min(position + length, self.size)
        if end <= position:
            return b""
        first, offset = divmod(position, PAGE)
        last = (end - 1) // PAGE
        pages = self._disk.read(first, last)
        if self._versions:
            for page in range(first, last + 1):
                if (versions := self._versions.get(page)) is not None:
                    pages[page - first] = versions[-1]
        pages[-1] = pages[-1][: end - last * PAGE]
        pages[0] = pages[0][offset:]
        return pages[0] if len(pages) == 1 else b"".join(pages)

    def write(self, position: int, data: bytes | memoryview) -> None:
        """Write ``data`` at ``position``. A page written whole costs about 1 µs."""
        view = memoryview(data)
        length = len(view)
        page, offset = divmod(position, PAGE)
        done = 0
        while done < length:
            count = min(PAGE - offset, length - done)
            part = view[done : done + count]
            if count == PAGE:
                self._put(page, bytes(part))
            else:
                old = self._seen(page)
                self._put(page, b"".join((old[:offset], part, old[offset + count :])))
            done += count
            offset = 0
            page += 1
        if length and position + length > self.size:
            self.size = position + length
            self._resizes.append(_Resize(self.size))

    def truncate(self, length: int) -> None:
        """Cut, or extend with zeros."""
        if length == self.size:
            return
        cut: dict[int, int] = {}
        whole, rest = divmod(length, PAGE)
        tail = whole if rest else -1
        if length < self.size:
            for page in sorted({*self._disk.pages_from(whole), *self._versions}):
                if page < whole or (data := self._seen(page)) is ZERO:
                    continue
                self._put(page, data[:rest] + ZERO[rest:] if page == tail else ZERO)
                cut[page] = len(self._versions[page]) - 1
        self.size = length
        self._resizes.append(_Resize(length, cut, tail))

    def force(self) -> None:
        """Make what reads return durable, except for pages that a failed force has marked clean."""
        if self._lost:
            forced = self._taken_around_lost()
        else:
            forced = {page: versions[-1] for page, versions in self._versions.items()}
            self._versions.clear()
        self._resizes.clear()
        self._disk.store(forced, self.size)

    def lose(self) -> None:
        """Model a failed force: dirty pages count as clean from now on, though they may never have reached the disk.

        Reads give them until a crash, and no later force writes them, unless they are written again.
        """
        self._lost.update(self._versions)

    def evict(self, random: Random) -> None:
        """Model a lack of memory: some clean pages leave the cache, and reads return what the disk has of them.

        It makes a difference for those that a failed force has marked clean: the disk may have any version of them.
        """
        for page in sorted(self._lost):
            if random.random() < 0.5:
                versions = [*self._disk.read(page, page), *self._versions.pop(page)]
                self._disk.store({page: random.choice(versions)}, self._disk.size)
                self._lost.discard(page)

    def copy(self) -> Content:
        """Return the file as a new process finds it: nothing more durable, nothing less."""
        other = Content(self._disk.copy())
        other.size = self.size
        other._versions = {page: versions.copy() for page, versions in self._versions.items()}
        other._lost = self._lost.copy()
        other._resizes = self._resizes.copy()
        return other

    def cut_power(self, random: Random, survive: float) -> None:
        """Make the file what a machine may find after a power cut; all of it is durable then.

        ``survive`` is the chance of an unforced change: at 0 none is left, at 1 all that was written last.
        """
        size, oldest, newest = self._surviving_size(random, survive)
        pages: dict[int, bytes] = {}
        for page, versions in self._versions.items():
            low = oldest.get(page, -1)
            high = newest.get(page, len(versions) - 1)
            if survive == 1:
                chosen = low if page in self._lost else high
            elif low < high and random.random() < survive:
                chosen = random.randint(low + 1, high)
            else:
                chosen = low
            if chosen >= 0:
                pages[page] = versions[chosen]
        if self._versions and 0 < survive < 1 and random.random() < TORN_SHARE:
            page = random.choice(list(self._versions))
            low, high = oldest.get(page, -1), newest.get(page, len(self._versions[page]) - 1)
            pages[page] = self._torn(random, page, low, high)
        self._disk.store(pages, size)
        self.size = size
        self._versions.clear()
        self._lost.clear()
        self._resizes.clear()

    def _seen(self, page: int) -> bytes:
        versions = self._versions.get(page)
        return self._disk.read(page, page)[0] if versions is None else versions[-1]

    def _surviving_size(self, random: Random, survive: float) -> tuple[int, dict[int, int], dict[int, int]]:
        """Return a length, and for pages that were ever cut the oldest and newest version that can go with it."""
        kept = 0
        if survive == 1:
            kept = len(self._resizes)
        elif self._resizes and random.random() < survive:
            kept = random.randint(1, len(self._resizes))
        oldest: dict[int, int] = {}
        newest: dict[int, int] = {}
        for resize in self._resizes[:kept]:
            oldest.update(resize.cut)
        for resize in reversed(self._resizes[kept:]):
            newest.update((page, index - 1) for page, index in resize.cut.items() if page != resize.tail)
        sizes = [self._disk.size, *(resize.size for resize in self._resizes[:kept])]
        size = sizes[-1]
        if kept and survive < 1:
            boundaries = range(sizes[-2] // PAGE + 1, size // PAGE + 1)
            if boundaries and random.random() < 0.5:
                size = random.choice(boundaries) * PAGE
        return size, oldest, newest

    def _torn(self, random: Random, page: int, low: int, high: int) -> bytes:
        versions = [*self._disk.read(page, page), *self._versions[page]][low + 1 : high + 2]
        starts = range(0, PAGE, SECTOR)
        return b"".join(random.choice(versions)[start : start + SECTOR] for start in starts)

    def _put(self, page: int, data: bytes) -> None:
        if data == ZERO:
            data = ZERO
        versions = self._versions.get(page)
        if versions is None:
            self._versions[page] = [data]
        else:
            versions.append(data)
            self._lost.discard(page)

    def _taken_around_lost(self) -> dict[int, bytes]:
        """Take what a force writes out of the versions, and return it."""
        forced: dict[int, bytes] = {}
        cut: dict[int, int] = {}
        for resize in self._resizes:
            cut.update(resize.cut)
        for page, versions in list(self._versions.items()):
            if page in self._lost:
                index = cut.get(page, -1)
                if index >= 0:
                    forced[page] = versions[index]
                    del versions[: index + 1]
            else:
                forced[page] = versions[-1]
                versions.clear()
            if not versions:
                del self._versions[page]
                self._lost.discard(page)
        return forced

"""The fault file system fails where a plan says: errors, short writes, a full disk, a power cut."""

from __future__ import annotations

import errno
import os
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from enum import Enum
from fnmatch import fnmatchcase
from typing import Any

from zope.interface import implementer

from journal.interfaces import IFile, IFilesystem, ILock


class PowerCut(BaseException):
    """The power has been cut. This is no ``Exception``, so that no handler in the tested code goes on after it."""


class Operation(Enum):
    """The kinds of operation that are counted and can fail."""

    OPEN = "open"
    CREATE = "create"
    READ = "read"
    READ_NOW = "read now"
    WRITE = "write"
    FORCE = "force"
    TRUNCATE = "truncate"
    RENAME = "rename"
    UNLINK = "unlink"
    MAKE_DIRECTORY = "make directory"
    REMOVE_DIRECTORY = "remove directory"
    LIST_DIRECTORY = "list directory"
    FORCE_DIRECTORY = "force directory"
    LOCK = "lock"
    FREE_BYTES = "free bytes"


CHANGES = frozenset(Operation) - {
    Operation.OPEN,
    Operation.READ,
    Operation.READ_NOW,
    Operation.LIST_DIRECTORY,
    Operation.LOCK,
    Operation.FREE_BYTES,
}
"""Operations that change what a crash may leave: the ``on_operation`` hook is called before each."""


@dataclass
class Fault:
    """From the ``nth`` operation (from 1) of its kind and path on, the next ``times`` of them fail.

    ``path`` is a glob (for a rename, of the old name). With ``short`` a write lets that many bytes through
    before it fails; with ``error`` None on top it is just short. A failed force takes its pages with it:
    the next one succeeds without writing them (as Linux does). EAGAIN at READ_NOW reads None.
    """

    kind: Operation
    nth: int = 1
    path: str = "*"
    error: int | None = errno.EIO
    short: int | None = None
    times: int = 1
    seen: int = 0
    """Operations of that kind and path so far."""

    def strikes(self, kind: Operation, path: str) -> bool:
        """Count the operation, and return whether it fails."""
        if kind is not self.kind or not fnmatchcase(path, self.path):
            return False
        self.seen += 1
        return self.nth <= self.seen < self.nth + self.times


Hook = Callable[[Operation, str], None]


class FaultPlan:
    """A plan of faults, and the count of all operations. It may be changed at any time."""

    def __init__(
        self, faults: Iterable[Fault] = (), on_operation: Hook | None = None, free_bytes: int | None = None
    ) -> None:
        self.faults = list(faults)
        self.on_operation = on_operation
        """Called before every operation of :data:`CHANGES`, with its kind and path; may raise PowerCut."""
        self.free_bytes = free_bytes
        """The number of free bytes that the file system reports; None for the real one."""
        self.counts: Counter[Operation] = Counter()
        self.off = False
        """Set by a :class:`PowerCut`: from then on every operation raises it, and nothing changes any more."""

    def before(self, kind: Operation, path: str) -> Fault | None:
        """Count an operation, call the hook; return the fault that strikes, if any is more than an error."""
        if self.off:
            raise PowerCut(f"{kind.value} of {path!r} after the power was cut")
        if self.on_operation is not None and kind in CHANGES:
            try:
                self.on_operation(kind, path)
            except PowerCut:
                self.off = True
                raise
        self.counts[kind] += 1
        struck = [fault for fault in self.faults if fault.strikes(kind, path)]
        if not struck:
            return None
        if kind in (Operation.WRITE, Operation.FORCE):
            return struck[0]
        raise_error(struck[0], path)
        return None


def raise_error(fault: Fault, path: str) -> None:
    """Raise the fault's error, if it has one."""
    if fault.error is not None:
        raise OSError(fault.error, f"{os.strerror(fault.error)} (as planned)", path)


def cut_power_at(nth: int) -> Hook:
    """Return a hook that cuts the power instead of the ``nth`` state-changing operation (from 1)."""
    remaining = nth

    def hook(kind: Operation, path: str) -> None:
        nonlocal remaining
        remaining -= 1
        if remaining <= 0:
            raise PowerCut(f"before {kind.value} of {path!r}, state-changing operation {nth}")

    return hook


@implementer(IFile)
class FaultFile:
    """An open file whose operations go through the plan."""

    descriptor = None
    """Nothing goes past it."""

    def __init__(self, inner: Any, plan: FaultPlan) -> None:
        self.path: str = inner.path
        self._inner = inner
        self._plan = plan

    def read(self, position: int, length: int) -> bytes:
        """Read, or fail."""
        self._plan.before(Operation.READ, self.path)
        data: bytes = self._inner.read(position, length)
        return data

    def read_now(self, position: int, length: int) -> bytes | None:
        """Read, fail, or read None where the plan says EAGAIN."""
        try:
            self._plan.before(Operation.READ_NOW, self.path)
        except BlockingIOError:
            return None
        data: bytes | None = self._inner.read_now(position, length)
        return data

    def forget_cached(self, position: int, length: int) -> None:
        """Pass the hint on, which never fails."""
        self._inner.forget_cached(position, length)

    def write_some(self, position: int, buffers: Sequence[bytes | memoryview]) -> int:
        """Write, write less, fail, or write less and fail."""
        fault = self._plan.before(Operation.WRITE, self.path)
        if fault is None:
            written: int = self._inner.write_some(position, buffers)
            return written
        short = b"".join(buffers)[: fault.short or 0]
        written = self._inner.write_some(position, [short]) if short else 0
        raise_error(fault, self.path)
        return written

    def force(self) -> None:
        """Force, or fail and lose the dirty pages (where ``inner`` can: a file in memory)."""
        fault = self._plan.before(Operation.FORCE, self.path)
        if fault is not None:
            if hasattr(self._inner, "lose"):
                self._inner.lose()
            raise_error(fault, self.path)
        self._inner.force()

    def size(self) -> int:
        """The file's length in bytes."""
        length: int = self._inner.size()
        return length

    def truncate(self, length: int) -> None:
        """Cut or extend, or fail."""
        self._plan.before(Operation.TRUNCATE, self.path)
        self._inner.truncate(length)

    def close(self) -> None:
        """Close; works even without power, for handlers that run on the way out."""
        self._inner.close()


@implementer(IFilesystem)
class FaultFilesystem:
    """A file system around another one: it counts operations, and fails as ``plan`` says."""

    def __init__(self, inner: Any, plan: FaultPlan | None = None) -> None:
        self.inner = inner
        self.plan = plan if plan is not None else FaultPlan()

    def open(self, path: str, create: bool = False, writable: bool = True) -> FaultFile:
        """Open, or fail; counts as CREATE if it makes the file."""
        kind = Operation.CREATE if create and not self.exists(path) else Operation.OPEN
        self.plan.before(kind, path)
        return FaultFile(self.inner.open(path, create=create, writable=writable), self.plan)

    def rename(self, old: str, new: str) -> None:
        """Rename, or fail; hook and faults are given the old name."""
        self.plan.before(Operation.RENAME, old)
        self.inner.rename(old, new)

    def unlink(self, path: str) -> None:
        """Remove, or fail."""
        self.plan.before(Operation.UNLINK, path)
        self.inner.unlink(path)

    def make_directory(self, path: str) -> None:
        """Make, or fail."""
        self.plan.before(Operation.MAKE_DIRECTORY, path)
        self.inner.make_directory(path)

    def remove_directory(self, path: str) -> None:
        """Remove, or fail."""
        self.plan.before(Operation.REMOVE_DIRECTORY, path)
        self.inner.remove_directory(path)

    def list_directory(self, path: str) -> list[str]:
        """List, or fail."""
        self.plan.before(Operation.LIST_DIRECTORY, path)
        names: list[str] = self.inner.list_directory(path)
        return names

    def exists(self, path: str) -> bool:
        """Return what the inner file system says; never fails and is not counted."""
        found: bool = self.inner.exists(path)
        return found

    def force_directory(self, path: str) -> None:
        """Force, or fail."""
        self.plan.before(Operation.FORCE_DIRECTORY, path)
        self.inner.force_directory(path)

    def force_files(self, files: Sequence[Any]) -> None:
        """Force one file after the other, each of which may fail."""
        for file in files:
            file.force()

    def lock(self, path: str) -> ILock:
        """Lock, or fail."""
        self.plan.before(Operation.LOCK, path)
        lock: ILock = self.inner.lock(path)
        return lock

    def free_bytes(self) -> int:
        """Return the free bytes of the plan, or else of the inner file system."""
        self.plan.before(Operation.FREE_BYTES, "")
        free: int = self.inner.free_bytes() if self.plan.free_bytes is None else self.plan.free_bytes
        return free

"""Files in a broker that kills itself at a call on one of them: the operating system's, or a model of a power cut."""

from __future__ import annotations

import itertools
import os
import signal
import threading
import time
from collections.abc import Callable, Sequence
from fnmatch import fnmatchcase
from random import Random
from typing import Any, Final
from weakref import WeakValueDictionary

from zope.interface import implementer

from journal.interfaces import IFile, IFilesystem
from journal.testing.directory import PowerCutDirectory
from journal.testing.faults import Operation
from journal.vfs import force_calls
from journal.vfs.filesystem import OSFilesystem
from journal.wal.writer import JournalGroup
from txbroker.drill.broker.kill_points import Moment, Point

SECTOR: Final = 512
"""How many bytes a disk writes whole or not at all. A killed process leaves whole pages, which consist of such
sectors.
"""


class Trigger:
    """A trigger armed with a point kills its own process when the point is reached for the nth time; thread-safe."""

    def __init__(self) -> None:
        self._point: Point | None = None
        self._left = 0
        self._lsns: set[int] = set()
        self._in_group = False
        self.last_act: Callable[[], None] = lambda: None
        """The action just before the death."""
        self._files: WeakValueDictionary[int, KillingFile] = WeakValueDictionary()
        self._numbers = itertools.count()

    def number_of(self, file: KillingFile) -> int:
        """Return a number that stands for a file where the system has descriptors."""
        number = next(self._numbers)
        self._files[number] = file
        return number

    def serve(self, area: bytearray, asked: int, done: int) -> None:
        """Write and force past the files, as :func:`journal.vfs.forcing.serve`, with calls that go through this."""

        def write(number: int, data: memoryview, position: int) -> int:
            return self._files[number].write_some(position, [data])

        force_calls.serve(area, asked, done, write, lambda number: self._files[number].force())

    def arm(self, point: Point | None, nth: int = 1) -> None:
        """Kill the process at the ``nth`` time from now that this point is reached; never, if None."""
        self._lsns.clear()
        self._left = nth
        self._point = point

    def accepted(self, decision: object, lsn: int) -> None:
        """Note that the engine has queued a decision."""
        point = self._point
        if point is not None and isinstance(decision, point.records):
            self._lsns.add(lsn)

    def writing(self, group: JournalGroup) -> None:
        """Note that a group is about to be written."""
        self._in_group = any(group.first_lsn <= lsn <= group.last_lsn for lsn in tuple(self._lsns))

    def reached(self, moment: Moment, operation: Operation, path: str) -> bool:
        """Return whether the process is to be killed now; each call that matches the point counts."""
        point = self._point
        if (
            point is None
            or point.moment is not moment
            or operation not in point.operations
            or not fnmatchcase(path, point.path)
            or (point.records and not self._in_group)
            or point.thread not in threading.current_thread().name
        ):
            return False
        return self.counted()

    def passed(self, name: str) -> None:
        """Report that a point was reached which no call on a file marks: kill the process if it is the nth time."""
        if self._point is not None and self._point.name == name and self.counted():
            self.die(name)

    def counted(self) -> bool:
        """Count down; return whether this was the nth time."""
        self._left -= 1
        return self._left == 0

    def die(self, where: str) -> None:
        """Send SIGKILL to this process; does not return."""
        name = self._point.name if self._point is not None else ""
        os.write(2, f"drill: SIGKILL at {name}: {where}\n".encode())
        self.last_act()
        os.kill(os.getpid(), signal.SIGKILL)
        while True:  # the signal is on its way; nothing more may be done in this thread
            time.sleep(1)

    def call(self, operation: Operation, path: str, call: Any, *arguments: Any) -> Any:
        """Make the call, and kill the process before or after it if it is the point."""
        where = f"{operation.value} of {path}"
        if self.reached(Moment.BEFORE, operation, path):
            self.die(f"before {where}")
        result = call(*arguments)
        if self.reached(Moment.AFTER, operation, path):
            self.die(f"after {where}")
        return result


class KillingFile:
    """An open file whose changing calls go through the trigger; reads go straight to the file."""

    def __init__(self, file: Any, trigger: Trigger) -> None:
        self.path = file.path
        self.read = file.read
        self.read_now = file.read_now
        self.forget_cached = file.forget_cached
        self.size = file.size
        self.close = file.close
        self._file = file
        self._trigger = trigger
        self.descriptor = trigger.number_of(self)

    def write_some(self, position: int, buffers: Sequence[bytes | memoryview]) -> int:
        """Write; or write half and kill the process. Half means whole sectors: the bytes of one sector are
        never torn.
        """
        length = sum(map(len, buffers))
        half = -(-(position + length // 2) // SECTOR) * SECTOR - position
        if half < length and self._trigger.reached(Moment.HALF, Operation.WRITE, self.path):
            self._file.write_some(position, [b"".join(buffers)[:half]])
            self._trigger.die(f"{half} bytes of a write of {length} to {self.path} at {position}")
        written: int = self._trigger.call(
            Operation.WRITE, self.path, self._file.write_some, position, buffers
        )
        return written

    def force(self) -> None:
        """Force the file."""
        self._trigger.call(Operation.FORCE, self.path, self._file.force)

    def truncate(self, length: int) -> None:
        """Cut or extend the file."""
        self._trigger.call(Operation.TRUNCATE, self.path, self._file.truncate, length)


@implementer(IFilesystem)
class KillingFilesystem:
    """The file system of a drill's broker: changing calls go through the trigger to another file system."""

    def __init__(self, inner: Any, trigger: Trigger) -> None:
        self.remove_directory = inner.remove_directory
        self.list_directory = inner.list_directory
        self.exists = inner.exists
        self.lock = inner.lock
        self.free_bytes = inner.free_bytes
        self._inner = inner
        self._trigger = trigger

    def open(self, path: str, create: bool = False, writable: bool = True) -> KillingFile:
        """Open a file; the call counts as CREATE if it may make the file."""
        file = self._inner.open(path, create, writable)
        if create and self._trigger.reached(Moment.AFTER, Operation.CREATE, path):
            self._trigger.die(f"after opening {path} to be made")
        return KillingFile(file, self._trigger)

    def rename(self, old: str, new: str) -> None:
        """Rename a file; the point's path is the old name."""
        self._trigger.call(Operation.RENAME, old, self._inner.rename, old, new)

    def unlink(self, path: str) -> None:
        """Remove a file."""
        self._trigger.call(Operation.UNLINK, path, self._inner.unlink, path)

    def make_directory(self, path: str) -> None:
        """Make a directory."""
        self._trigger.call(Operation.MAKE_DIRECTORY, path, self._inner.make_directory, path)

    def force_directory(self, path: str) -> None:
        """Force a directory's names."""
        self._trigger.call(Operation.FORCE_DIRECTORY, path, self._inner.force_directory, path)

    def force_files(self, files: Sequence[IFile]) -> None:
        """Force the files as the other file system does, each through the trigger."""
        self._inner.force_files(files)


def on_system(root: str | os.PathLike[str], trigger: Trigger) -> KillingFilesystem:
    """Return the operating system's files: written bytes survive the death, forced or not."""
    return KillingFilesystem(OSFilesystem(root), trigger)


def on_power_cuts(root: str | os.PathLike[str], trigger: Trigger) -> KillingFilesystem:
    """Return files for which each death is a power cut: all or some bytes that are not forced are lost with the
    process.
    """
    files = PowerCutDirectory(root)
    trigger.last_act = lambda: files.cut_power(Random())
    return KillingFilesystem(files, trigger)

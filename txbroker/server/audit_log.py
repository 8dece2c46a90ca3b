"""The audit log: lines of JSON in a file of their own, or on standard output, by a thread that nobody waits for.

:mod:`txbroker.broker.access.audit` says what is in them. Each line has either ``lsn``, of the record that it tells, or
``through``: everything has been told up to that LSN. So the last line of the file says where the next start goes on,
and nothing is kept elsewhere. Lines are forced before others are written behind them.

If the file cannot be written, its lines wait in memory, so many at most, and are tried again every second. What finds
no room is counted, and told in the next line that can be written.
"""

from __future__ import annotations

import errno
import os
import stat
import sys
import threading
from collections import deque
from collections.abc import Callable, Iterator
from typing import Final

import msgspec
from twisted.logger import Logger

from journal.constants import KIB
from txbroker.broker.access.audit import Line, time_of
from txbroker.errors import InvalidSetting
from txbroker.server.settings.config import STANDARD_OUTPUT

MODE: Final = 0o640

MOST_RECORDS: Final = 10_000
"""Most lines that wait, of records."""
MOST_OTHERS: Final = 1_000
"""With so many waiting, lines that tell no record find no room."""
AT_ONCE: Final = 1_000
"""Most lines of one write."""
RETRY: Final = 1.0
"""Seconds after which a write that has failed is tried again."""
MOST_SIBLINGS: Final = 20
"""Most files beside the log that are looked at for its end, if it was moved away."""
BLOCK: Final = 64 * KIB

_FULL: Final = frozenset({errno.ENOSPC, errno.EDQUOT})
_encode = msgspec.json.Encoder().encode


class AuditFile:
    """The file that lines are appended to. Every method raises ``OSError`` as the system does."""

    def __init__(self, path: str) -> None:
        self.path = path
        self._descriptor = -1

    @property
    def is_open(self) -> bool:
        """Whether it is open."""
        return self._descriptor >= 0

    def open(self) -> None:
        """Open the file of the name, made if it is not there; what was open is closed then."""
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC | os.O_NONBLOCK | os.O_NOCTTY
        opened = os.open(self.path, flags, MODE)
        if not stat.S_ISREG(os.fstat(opened).st_mode):
            os.close(opened)
            raise OSError(errno.EINVAL, "it is no regular file")
        self.close()
        self._descriptor = opened

    def write(self, data: bytes) -> int:
        """Append some of the bytes; return how many."""
        return os.write(self._descriptor, data)

    def force(self) -> None:
        """Return when what was written is on the disk."""
        os.fdatasync(self._descriptor)

    def is_moved(self) -> bool:
        """Return whether the name is another file's by now, or nobody's."""
        mine = os.fstat(self._descriptor)
        try:
            found = os.stat(self.path)
        except FileNotFoundError:
            return True
        return (found.st_dev, found.st_ino) != (mine.st_dev, mine.st_ino)

    def is_torn(self) -> bool:
        """Return whether the last line has no end."""
        with open(self.path, "rb") as file:
            size = file.seek(0, os.SEEK_END)
            file.seek(max(size - 1, 0))
            return file.read(1) not in (b"", b"\n")

    def last_lsn(self) -> int | None:
        """Return the LSN up to which everything has been told, 0 if that is not known; None if nobody can know it.

        If the file is new, those beside it with longer names (logrotate's) are looked at, the newest first.
        """
        for path in (self.path, *_siblings(self.path)):
            try:
                found = last_lsn(path)
            except OSError:
                continue
            if found is not None:
                return found
        return 0

    def close(self) -> None:
        """Close it."""
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1


class StandardOutput(AuditFile):
    """The process's own standard output, whatever stands in its place in Python. It cannot be read again."""

    def __init__(self) -> None:
        super().__init__("on standard output")

    def open(self) -> None:
        """Take it."""
        if sys.__stdout__ is None:
            raise OSError(errno.EBADF, "there is none")
        self._descriptor = sys.__stdout__.fileno()

    def force(self) -> None:
        """Do nothing: that is for who reads it."""

    def is_moved(self) -> bool:
        """Return False."""
        return False

    def is_torn(self) -> bool:
        """Return False."""
        return False

    def last_lsn(self) -> int | None:
        """Return None."""
        return None

    def close(self) -> None:
        """Leave it open."""


def last_lsn(path: str) -> int | None:
    """Return the LSN of the last whole line of a file; None if it has none."""
    with open(path, "rb") as file:
        size = length = file.seek(0, os.SEEK_END)
        for block in (BLOCK, 32 * BLOCK, size):
            length = min(block, size)
            file.seek(size - length)
            lines = file.read(length).split(b"\n")
            for line in reversed(lines if length == size else lines[1:]):
                if (found := _lsn_of(line)) is not None:
                    return found
            if length == size:
                break
    return None


def _lsn_of(line: bytes) -> int | None:
    try:
        known = msgspec.json.decode(line, type=_Place)
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return None
    return known.through if known.lsn is None else known.lsn


class _Place(msgspec.Struct):
    """What a line says of its place."""

    what: str
    lsn: int | None = None
    through: int | None = None


def _siblings(path: str) -> list[str]:
    """Return the files beside one whose names are longer: the newest first."""
    folder, name = os.path.split(path)
    with os.scandir(folder or ".") as found:
        beside = [each for each in found if each.name.startswith((f"{name}.", f"{name}-")) and each.is_file()]
        newest = sorted(beside, key=lambda each: each.stat().st_mtime_ns, reverse=True)
    return [each.path for each in newest[:MOST_SIBLINGS]]


def file_of(setting: str) -> AuditFile:
    """Return where the audit goes by the setting ``audit``."""
    return StandardOutput() if setting == STANDARD_OUTPUT else AuditFile(setting)


class AuditLog:
    """An audit trail (:class:`txbroker.broker.access.audit.AuditTrail`); the module says more.

    ``say(call, *arguments, **named)`` makes a call of the log on the reactor's thread, ``wall()`` is the wall clock.
    ``has_failed``: the last write did. ``lost`` counts lines that found no room.
    """

    log = Logger()

    def __init__(self, file: AuditFile, wall: Callable[[], int], say: Callable[..., object]) -> None:
        self._file = file
        self._wall = wall
        self._say = say
        self._changed = threading.Condition()
        self._waiting: deque[tuple[Line, int]] = deque()
        self._dropped = 0
        self._dropped_lsns: list[int] = []
        self._ends = self._reopens = False
        self._thread: threading.Thread | None = None
        # The rest is the thread's alone: the bytes of the lines that it writes, and how many of them are written.
        self._data = b""
        self._sent = self._through = 0
        self.has_failed = False
        self.lost = 0

    # -- the start --------------------------------------------------------------------------------

    def open(self) -> None:
        """Open the file; raises InvalidSetting if that cannot be done. A full disk is no obstacle."""
        try:
            self._file.open()
            self._begin_file()
        except OSError as error:
            if error.errno not in _FULL:
                raise InvalidSetting(
                    f"the audit, {self._file.path}, cannot be opened: {error.strerror}; nothing was started"
                ) from error
            self._note_failure(error)

    def known(self) -> int | None:
        """Return the LSN up to which everything has been told; 0 if that is not known, None if it cannot be."""
        found = self._file.last_lsn()
        self._through = found or 0
        return found

    def settle(self) -> None:
        """Write what waits, unless that fails; only while there is no thread."""
        while self._waiting and self.carry_out():
            pass

    def start(self) -> None:
        """Begin to write by itself."""
        self._thread = threading.Thread(target=self._run, name="txbroker audit", daemon=True)
        self._thread.start()

    # -- for everybody ----------------------------------------------------------------------------

    def put(self, line: Line, lsn: int = 0) -> None:
        """Write a line soon, or count it as lost. ``lsn``: with it everything has been told up to there."""
        with self._changed:
            if len(self._waiting) >= (MOST_RECORDS if lsn else MOST_OTHERS):
                self._dropped += 1
                self.lost += 1
                if lsn:
                    self._dropped_lsns[1:] = [lsn]
                return
            self._tell_dropped()
            self._waiting.append((line, lsn))
            self._changed.notify()

    def _tell_dropped(self) -> None:
        if self._dropped:
            line: Line = {"time": time_of(self._wall()), "what": "audit.lost", "lines": self._dropped}
            if self._dropped_lsns:
                line |= {"from_lsn": self._dropped_lsns[0], "to_lsn": self._dropped_lsns[-1]}
            self._waiting.append((line, 0))
            self._dropped, self._dropped_lsns = 0, []

    def reopen(self) -> None:
        """Go on in the file of the name, which may have been moved away."""
        with self._changed:
            self._reopens = True
            self._changed.notify()

    def stop(self, patience: float) -> bool:
        """Write what waits, and end; return False if that takes longer than so many seconds."""
        with self._changed:
            self._ends = True
            self._changed.notify()
        thread = self._thread
        if thread is None:
            self.settle()
        else:
            thread.join(patience)
            if thread.is_alive():
                return False
        self._file.close()
        return True

    # -- the thread -------------------------------------------------------------------------------

    def _run(self) -> None:
        while True:
            with self._changed:
                while not (self._waiting or self._data or self._reopens or self._ends):
                    self._changed.wait()
            done = self.carry_out()
            with self._changed:
                if self._ends and not (done and self._waiting):
                    return
                if not done and not self._ends:
                    self._changed.wait(RETRY)

    def carry_out(self) -> bool:
        """Write and force some of the lines that wait; return False if that failed, and nothing more should be tried
        now.
        """
        try:
            self._look_after_file()
            if not self._data:
                self._data = b"".join(self._lines())
            while self._sent < len(self._data):
                self._sent += self._file.write(self._data[self._sent :])
            if self._data:
                self._file.force()
        except OSError as error:
            self._note_failure(error)
            return False
        self._data, self._sent = b"", 0
        if self.has_failed:
            self.has_failed = False
            self._say(self.log.info, "the audit goes on, {path}", path=self._file.path)
        return True

    def _look_after_file(self) -> None:
        """Go on in the file of the name, if that is another one now, or if it is asked for."""
        with self._changed:
            wanted, self._reopens = self._reopens, False
        was_open = self._file.is_open
        if was_open and not wanted and not self._file.is_moved():
            return
        try:
            self._file.open()
        except OSError as error:
            if not was_open:
                raise
            self._say(
                self.log.error, "the audit, {path}, cannot be opened again: {error}; it goes on in the open file",
                path=self._file.path, error=error,
            )  # fmt: skip
            return
        note = {"time": time_of(self._wall()), "what": "audit.continued", "through": self._through}
        self._begin_file(_encode(note) + b"\n")

    def _begin_file(self, first: bytes = b"") -> None:
        """Write ``first`` before all that waits, in a line of its own; what is written in part is written anew."""
        start = b"\n" if self._file.is_torn() else b""
        self._data = start + first + self._data[self._data.rfind(b"\n", 0, self._sent) + 1 :]
        self._sent = 0

    def _lines(self) -> Iterator[bytes]:
        """Take lines that wait, as bytes."""
        with self._changed:
            taken = [self._waiting.popleft() for _ in range(min(len(self._waiting), AT_ONCE))]
            if not self._waiting:
                self._tell_dropped()
        for line, lsn in taken:
            self._through = lsn or self._through
            yield _encode(line if "lsn" in line else line | {"through": self._through}) + b"\n"

    def _note_failure(self, error: OSError) -> None:
        if not self.has_failed:
            self.has_failed = True
            self._say(
                self.log.error, "the audit, {path}, cannot be written: {error}; its lines wait, {most} at most",
                path=self._file.path, error=error, most=MOST_RECORDS,
            )  # fmt: skip

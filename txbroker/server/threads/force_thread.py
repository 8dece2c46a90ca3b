"""The thread that writes and forces small groups of the journal: asked and heard by eventfds, on the reactor.

Where :mod:`journal.vfs.forcing` is compiled it does not need the interpreter's lock. So neither does a force wait for
the reactor's turn to end, nor the reactor for a thread that has the lock.
"""

from __future__ import annotations

import errno
import os
import threading
from collections.abc import Callable
from contextlib import suppress
from select import POLLIN, poll
from typing import Any, Final

from twisted.internet.interfaces import IReadDescriptor
from twisted.logger import Logger
from zope.interface import implementer

from journal.vfs import force_calls
from journal.vfs.forcing import serve
from journal.wal.writer import ALONE_BYTES, Forced, Placed

Then = Callable[[Forced], None]

_HEADER: Final = force_calls.HEADER


@implementer(IReadDescriptor)
class ForceThread:
    """One thread with one job at a time. Every method is for the reactor's thread.

    It is a daemon: one that hangs in a force of a broken disk must not keep the process from ending.
    """

    log = Logger()

    def __init__(self, reactor: Any) -> None:
        self._reactor = reactor
        self._area = bytearray(_HEADER + ALONE_BYTES)
        self._job = memoryview(self._area)[:_HEADER].cast("q")
        self._data = memoryview(self._area)[_HEADER:]
        self._asked = os.eventfd(0, os.EFD_CLOEXEC)
        self._done = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        self._then: Then | None = None
        self._broken = 0
        self._thread = threading.Thread(target=self._run, name="txbroker forces", daemon=True)

    def start(self) -> None:
        """Start the thread."""
        self._reactor.addReader(self)
        self._thread.start()

    def submit(self, placed: Placed, then: Then) -> None:
        """Have a group written and forced, then ``then`` called on the reactor with what came of it."""
        assert self._then is None, "one group at a time"
        self._then = then
        if self._broken:
            self._reactor.callLater(0, self._end, Forced(self._broken, force_calls.WRITING, 0, 0, 0))
            return
        position = 0
        for piece in placed.pieces:
            end = position + len(piece)
            self._data[position:end] = piece
            position = end
        job = self._job
        job[force_calls.DESCRIPTOR], job[force_calls.POSITION] = placed.descriptor, placed.position
        job[force_calls.SIZE] = position
        os.eventfd_write(self._asked, 1)

    def stop(self, patience: float) -> bool:
        """End after the job that is under way, which is not heard of any more; return False if the thread still runs
        after that many seconds.
        """
        self._reactor.removeReader(self)
        if self._thread.ident is None:
            self._close()
            return True
        if self._then is not None and not self._broken and not self._has_done(patience):
            return False
        self._job[force_calls.DESCRIPTOR] = force_calls.END
        os.eventfd_write(self._asked, 1)
        self._thread.join(patience)
        if self._thread.is_alive():
            return False
        self._close()
        return True

    def _has_done(self, patience: float) -> bool:
        waiting = poll()
        waiting.register(self._done, POLLIN)
        return bool(waiting.poll(patience * 1000))

    def _close(self) -> None:
        for descriptor in (self._asked, self._done):
            with suppress(OSError):  # what closed it has ended the thread, too
                os.close(descriptor)

    def _run(self) -> None:
        try:
            serve(self._area, self._asked, self._done)
        except OSError as error:  # of an eventfd: the journal was not touched
            self._reactor.callFromThread(self._break, error)

    def _break(self, error: OSError) -> None:
        self.log.error("the thread that forces has ended: {error}", error=error)
        self._broken = error.errno or errno.EIO
        if self._then is not None:
            self._end(Forced(self._broken, force_calls.WRITING, 0, 0, 0))

    # -- for the reactor ---------------------------------------------------------------------------

    def fileno(self) -> int:
        """Return the descriptor that can be read when a job is done."""
        return self._done

    def doRead(self) -> None:
        """Take what came of the job."""
        try:
            os.eventfd_read(self._done)
        except BlockingIOError:
            return
        job = self._job
        self._end(
            Forced(
                job[force_calls.ERROR], job[force_calls.STAGE], job[force_calls.BEGUN],
                job[force_calls.WRITTEN], job[force_calls.FORCED],
            )
        )  # fmt: skip

    def _end(self, forced: Forced) -> None:
        then, self._then = self._then, None
        if then is not None:
            try:
                then(forced)
            except Exception:  # noqa: BLE001  (else the reactor would listen no more)
                self.log.failure("what came of a force could not be handled")

    def connectionLost(self, reason: object) -> None:
        """Do nothing: an eventfd does not end by itself."""

    def logPrefix(self) -> str:
        """Return the name in the log."""
        return "forces"

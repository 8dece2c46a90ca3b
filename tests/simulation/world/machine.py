"""The simulated machine: threads that stop before every call on files, a manual reactor, a disk with a power switch."""

from __future__ import annotations

import sys
from collections import Counter, deque
from collections.abc import Callable
from types import FrameType
from typing import Any, Final

from greenlet import GreenletExit, getcurrent, greenlet
from twisted.internet.task import Clock

from journal.testing import CHANGES, Fault, FaultPlan, ManualClock, Operation, PowerCut

Site = tuple[str, str, str]
"""Where the power was cut: the calling line, the operation, the kind of file."""

_BETWEEN = (
    "/journal/testing/",
    "/journal/vfs/filesystem.py",
    "/tests/simulation/world/disk.py",
    "/tests/simulation/world/machine.py",
)


class Plan(FaultPlan):
    """What goes wrong with files in one run of the process. A thread that is stepped stops before each call."""

    def __init__(self, main: greenlet, counts: Counter[str]) -> None:
        super().__init__()
        self.on_operation = self._count_down
        self.cut_in = 0
        """The power is cut before the so many-th change of the disk from now; 0: not at all."""
        self.cut_on: tuple[Operation | None, str] = (None, "")
        """Only such changes count, and of paths that begin so."""
        self.cut_at: Site | None = None
        self.struck = False
        """Whether a call has failed as planned."""
        self._main = main
        self._counts = counts

    def before(self, kind: Operation, path: str) -> Fault | None:
        """Let others go on first, if this is a thread; then fail, cut, or neither."""
        if getcurrent() is not self._main:
            self._main.switch()
        if not self.faults:
            return super().before(kind, path)
        try:
            fault = super().before(kind, path)
        except OSError:
            self._strikes(kind)
            raise
        if fault is not None:
            self._strikes(kind, fault)
        return fault

    def _strikes(self, kind: Operation, fault: Fault | None = None) -> None:
        if kind is Operation.READ_NOW:
            return
        failed = fault is None or fault.error is not None
        self.struck = self.struck or failed
        self._counts[f"{'failed' if failed else 'short'} {kind.value}"] += 1

    def _count_down(self, kind: Operation, path: str) -> None:
        wanted, where = self.cut_on
        if self.cut_in and wanted in (None, kind) and path.startswith(where):
            self.cut_in -= 1
            if not self.cut_in:
                self.cut_at = (_caller(sys._getframe(2)), kind.value, kind_of_file(path))
                raise PowerCut(f"before {kind.value} of {path!r}")


def _caller(frame: FrameType | None) -> str:
    while frame is not None:
        name = frame.f_code.co_filename
        if not any(part in name for part in _BETWEEN):
            return f"{name.rpartition('/')[2]}:{frame.f_lineno}"
        frame = frame.f_back
    return "?"


def kind_of_file(path: str) -> str:
    """A path without what differs from file to file."""
    first, *rest = path.split("/")
    if not rest:
        return first or "the data directory"
    if first == "partitions" and len(rest) == 1:
        return "partitions/*"
    return "/".join([first, *("*" for _ in rest[:-1]), f"*.{rest[-1].rpartition('.')[2]}"])


LOOKS: Final = 100_000
"""How often the broker may look at the time in one turn of the reactor, in which it stands still; 100 is usual."""


class EndlessTurn(BaseException):
    """The broker waits within a turn for what happens only in another."""


class Reactor(Clock):
    """Twisted's clock, and calls from threads, which come in at the next turn."""

    def __init__(self, machine_clock: ManualClock) -> None:
        super().__init__()
        self._machine_clock = machine_clock
        self._looks = 0
        self.from_threads: deque[tuple[Callable[..., Any], tuple[Any, ...]]] = deque()

    def seconds(self) -> float:
        """Return the time."""
        self._looks += 1
        if self._looks > LOOKS:
            raise EndlessTurn(f"the time was looked at more than {LOOKS:,} times in one turn")
        return super().seconds()

    def callFromThread(self, call: Callable[..., Any], *arguments: Any) -> None:
        """Run it on the reactor, soon."""
        self.from_threads.append((call, arguments))

    def turn(self) -> bool:
        """One turn: what threads have left, then what is due by now. Says whether there was anything."""
        self._looks = 0
        left = len(self.from_threads)
        due = [call for call in self.calls if call.getTime() <= self.rightNow]
        for _ in range(left):
            call, arguments = self.from_threads.popleft()
            call(*arguments)
        for timer in due:
            if timer.active():
                self.calls.remove(timer)
                timer.called = 1
                timer.func(*timer.args, **timer.kw)
        return bool(left or due)

    def pass_time(self, microseconds: int) -> None:
        """Let time pass, for the machine's clock too, and take the turn that follows."""
        self._machine_clock.advance(microseconds)
        self.rightNow += microseconds / 1e6
        self.turn()


class SteppedWorker:
    """A ``WorkerThread`` whose threads go on only in :meth:`step`: from one call on files to the next."""

    def __init__(self, name: str, call_from_thread: Callable[..., object], threads: int = 1) -> None:
        self.name = name
        self._call_from_thread = call_from_thread
        self._queue: deque[tuple[Any, Any, Any]] = deque()
        self._threads: list[greenlet | None] = [None] * threads
        self._off = False
        """Whether the power went under one of its threads: none goes on."""

    def submit(self, work: Callable[[], Any], done: Any, failed: Any) -> None:
        """Queue work."""
        self._queue.append((work, done, failed))

    def start(self) -> None:
        """Nothing goes on by itself."""

    def stop(self, patience: float) -> bool:
        """Run all that has been submitted to its end."""
        while self.step(1 << 30):
            pass
        return True

    def step(self, calls: int, which: int = 0) -> bool:
        """Let a thread go on for so many calls on files, or to the end of its work; False if there is none to do."""
        if self._off:
            return False
        which %= len(self._threads)
        thread = self._threads[which]
        if thread is None:
            if not self._queue:
                return False
            thread = self._threads[which] = greenlet(self._run)
            thread.switch(*self._queue.popleft())
        while calls and not thread.dead:
            calls -= 1
            thread.switch()
        if thread.dead:
            self._threads[which] = None
        return True

    @property
    def idle(self) -> bool:
        """Whether there is nothing to do."""
        return not self._queue and not any(self._threads)

    def kill(self) -> None:
        """The process is gone. Whatever its threads still try fails, as the plan says that the power is off."""
        self._queue.clear()
        for thread in self._threads:
            if thread is not None and not thread.dead:
                thread.throw()

    def _run(self, work: Callable[[], Any], done: Any, failed: Any) -> None:
        try:
            result = work()
        except PowerCut:
            self._off = True
        except GreenletExit:
            return
        except BaseException as error:  # noqa: BLE001  (whatever it is, the reactor decides)
            self._call_from_thread(failed, error)
        else:
            self._call_from_thread(done, result)


__all__ = ["CHANGES", "Plan", "Reactor", "Site", "SteppedWorker", "kind_of_file"]

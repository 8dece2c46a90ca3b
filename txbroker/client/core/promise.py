"""Promises of later results, and coroutines that await them without an event loop.

The operations of the client are ``async`` functions that await only promises. :func:`start` runs one. It resumes inside
the call that settles the promise, on the same thread. So the blocking, the Twisted and the asyncio client use the same
operations.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Generator
from types import CoroutineType, coroutine
from typing import Any, Generic, TypeVar

T = TypeVar("T")


class Promise(Generic[T]):
    """A result or an error, present or future. Its callbacks run in the call that settles it.

    Each callback runs once, except one that an interrupt has ended: when the promise is settled again, that one runs
    again, and then the others.
    """

    __slots__ = ("_callbacks", "_value", "done", "error")

    def __init__(self) -> None:
        self.done = False
        self.error: BaseException | None = None
        self._value: T | None = None
        self._callbacks: list[Callable[[], object]] | None = None

    @property
    def waiting(self) -> int:
        """How many callbacks will run in the call that settles it."""
        return len(self._callbacks) if self._callbacks else 0

    def resolve(self, value: T) -> None:
        """Settle with a value. Does nothing if it is settled, except to finish a settling that was interrupted."""
        if not self.done:
            self._value = value
            self.done = True
        if self._callbacks:
            self._settled()

    def fail(self, error: BaseException) -> None:
        """Settle with an error. Does nothing if it is settled already."""
        if not self.done:
            self.error = error
            self.done = True
        self._settled()

    def finish(self) -> None:
        """Run the callbacks that an interrupt has left out; only once it is settled."""
        self._settled()

    def _settled(self) -> None:
        # An interrupt may come at any line: a callback that did not return is called again.
        while self._callbacks:
            callback = self._callbacks[0]
            callback()
            if self._callbacks and self._callbacks[0] is callback:
                self._callbacks.pop(0)

    def then(self, callback: Callable[[], object]) -> None:
        """Call ``callback`` when the promise is settled, at once if it is."""
        if self.done:
            callback()
        elif self._callbacks is None:
            self._callbacks = [callback]
        else:
            self._callbacks.append(callback)

    def forget(self, callback: Callable[[], object]) -> None:
        """Do not call a callback that :meth:`then` got, because its caller gave up. Does nothing if it was called
        already.
        """
        if self._callbacks is not None and callback in self._callbacks:
            self._callbacks.remove(callback)

    def result(self) -> T:
        """Return the value, or raise the error; only once it is settled."""
        if self.error is not None:
            raise self.error.with_traceback(None)  # it may be raised often, each time for another caller
        return self._value  # type: ignore[return-value]

    def __await__(self) -> Generator[Promise[Any], None, T]:
        while not self.done:
            yield self
        return self.result()


class Cancelled(BaseException):
    """An operation ended at its await, because its caller has given up."""


class Task(Promise[T]):
    """A running coroutine: settled with what it returns or raises, or with :class:`Cancelled`."""

    __slots__ = ("_awaited", "_coroutine", "_given_up")

    def __init__(self, coroutine: Coroutine[Promise[Any], None, T]) -> None:
        super().__init__()
        self._coroutine: CoroutineType[Promise[Any], None, T] = coroutine  # type: ignore[assignment]  # of async functions
        self._awaited: Promise[Any] | None = None
        self._given_up = False
        try:
            self._advance()
        except BaseException:
            self.cancel()  # interrupted: no caller will get this task, and it may keep others waiting
            raise

    def cancel(self) -> None:
        """End the coroutine at its await: its ``finally`` clauses run, and must not wait. Does nothing once it is
        settled.

        Requests and tasks that it has begun go on without it.
        """
        self._given_up = True
        if self.done or self._coroutine.cr_running:
            return
        awaited, self._awaited = self._awaited, None
        if awaited is not None:
            awaited.forget(self._advance)
        try:
            self._coroutine.close()
        finally:
            self.fail(Cancelled())

    def wake(self) -> None:
        """Resume the coroutine if its promise is settled, or else when it is. That happens by itself, unless it was
        interrupted.
        """
        awaited = self._awaited
        if awaited is None or awaited.done:
            self._advance()
        else:
            awaited.forget(self._advance)
            awaited.then(self._advance)

    def _advance(self) -> None:
        if self.done or self._coroutine.cr_running:
            return
        if self._coroutine.cr_frame is None:  # it has ended, and an interrupt came before that was noted
            self.fail(Cancelled())
            return
        try:
            awaited = self._coroutine.send(None)
        except StopIteration as stop:
            self.resolve(stop.value)
        except (KeyboardInterrupt, SystemExit) as error:
            self.fail(error)  # callers that wait for the promise must not wait for ever
            raise
        except BaseException as error:  # noqa: BLE001 - it is the promise's to carry
            self.fail(error)
        else:
            self._awaited = awaited
            if self._given_up:
                self.cancel()
            else:
                awaited.then(self._advance)


class Errand(Task[None]):
    """A task that no caller waits for: what it raises is also raised in the call in which it resumed.

    So an exception of a signal's handler reaches the program, wherever it came.
    """

    __slots__ = ()

    def fail(self, error: BaseException) -> None:
        """End with an error."""
        super().fail(error)
        if not isinstance(error, Cancelled):
            raise error


class Chore:
    """Work that is begun whenever it is wanted, one errand at a time. ``ended`` is called at the end of each.

    After an interrupt anywhere, :meth:`go_on` goes on with it.
    """

    __slots__ = ("_begun", "_ended", "_errand", "_work")

    def __init__(
        self,
        work: Callable[[], Coroutine[Promise[Any], None, None]],
        ended: Callable[[], object] | None = None,
    ) -> None:
        self._work = work
        self._ended = ended
        self._begun: Promise[None] = Promise()
        self._errand: Errand | None = None

    @property
    def is_under_way(self) -> bool:
        """Whether an errand has not ended."""
        return self._errand is not None and not self._errand.done

    def begin(self) -> None:
        """Make an errand, which the next :meth:`go_on` starts. Only if none is under way."""
        begun: Promise[None] = Promise()
        errand = Errand(self._run(begun))
        if self._ended is not None:
            errand.then(self._ended)
        self._begun, self._errand = begun, errand

    async def _run(self, begun: Promise[None]) -> None:
        await begun  # so that the effects of the work find the errand noted
        await self._work()

    def go_on(self) -> None:
        """Start the errand that was made, or resume it if an interrupt has kept it from that."""
        self._begun.resolve(None)
        if self._errand is not None:
            self._errand.wake()

    def cancel(self) -> None:
        """End the errand that is under way."""
        if self._errand is not None:
            self._errand.cancel()


start = Task
"""Run a coroutine until its first unsettled promise; it resumes when that is settled."""


@coroutine
def ended(promise: Promise[Any]) -> Generator[Promise[Any], None, None]:
    """Wait until a promise is settled; raises nothing of it."""
    while not promise.done:
        yield promise


def settled(promise: Promise[Any]) -> Promise[None]:
    """Return a promise that is resolved when another is settled, with a value or an error."""
    found: Promise[None] = Promise()
    promise.then(lambda: found.resolve(None))
    return found

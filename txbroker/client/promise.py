"""What will be known later, and coroutines that wait for it without any event loop.

The operations of the client are ``async`` functions that await only promises. :func:`start` runs one; it
goes on inside the call that keeps the promise, on the same thread. So the same operation serves the
blocking, the Twisted and the asyncio face.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Generator
from typing import Any, Generic, TypeVar

T = TypeVar("T")


class Promise(Generic[T]):
    """A result or an error, there or still to come. Callbacks run once, in the call that settles it."""

    __slots__ = ("_callbacks", "_value", "done", "error")

    def __init__(self) -> None:
        self.done = False
        self.error: BaseException | None = None
        self._value: T | None = None
        self._callbacks: list[Callable[[], object]] | None = None

    def resolve(self, value: T) -> None:
        """Keep the promise; does nothing if it is settled already."""
        if not self.done:
            self._value = value
            self.done = True
            self._settled()

    def fail(self, error: BaseException) -> None:
        """Break the promise; does nothing if it is settled already."""
        if not self.done:
            self.error = error
            self.done = True
            self._settled()

    def _settled(self) -> None:
        callbacks, self._callbacks = self._callbacks, None
        for callback in callbacks or ():
            callback()

    def then(self, callback: Callable[[], object]) -> None:
        """Call ``callback`` when settled, at once if it is."""
        if self.done:
            callback()
        elif self._callbacks is None:
            self._callbacks = [callback]
        else:
            self._callbacks.append(callback)

    def result(self) -> T:
        """The value, or raises the error; only once it is done."""
        if self.error is not None:
            raise self.error.with_traceback(None)  # it may be raised often, each time for another caller
        return self._value  # type: ignore[return-value]

    def __await__(self) -> Generator[Promise[Any], None, T]:
        if not self.done:
            yield self
        return self.result()


def start(coroutine: Coroutine[Promise[Any], None, T]) -> Promise[T]:
    """Run a coroutine until its first unsettled promise; it goes on when that is settled."""
    promise: Promise[T] = Promise()
    _advance(coroutine, promise)
    return promise


def _advance(coroutine: Coroutine[Promise[Any], None, T], promise: Promise[T]) -> None:
    try:
        awaited = coroutine.send(None)
    except StopIteration as stop:
        promise.resolve(stop.value)
    except (KeyboardInterrupt, SystemExit) as error:
        promise.fail(error)  # whoever waits for the promise must not wait for ever
        raise
    except BaseException as error:  # noqa: BLE001 - it is the promise's to carry
        promise.fail(error)
    else:
        awaited.then(lambda: _advance(coroutine, promise))

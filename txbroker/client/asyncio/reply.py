"""The result of a call of the asyncio client: a Future that gives its operation up when it is cancelled."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Generator
from typing import Any, TypeVar

from txbroker.client.core.promise import Task
from txbroker.client.loop.connection import LoopConnection

T = TypeVar("T")


class Reply(asyncio.Future[T]):
    """The end of an operation as a Future. Cancelling it gives the operation up at once, and calls ``given_up``.

    Cancelling a task that awaits it and has not resumed yet gives the operation up, too.
    """

    def __init__(
        self,
        task: Task[T],
        connection: LoopConnection,
        loop: asyncio.AbstractEventLoop,
        given_up: Callable[[], object] | None = None,
    ) -> None:
        super().__init__(loop=loop)
        self._task = task
        self._connection = connection
        self._given_up = given_up
        task.then(self._settle)

    def _settle(self) -> None:
        if self.cancelled():
            return
        error = self._task.error
        if error is not None:
            self.set_exception(error)
        else:
            self.set_result(self._task.result())

    def cancel(self, msg: Any = None) -> bool:
        """Give the operation up."""
        if not super().cancel(msg=msg):
            return False
        self._task.cancel()
        self._connection._settle()
        self._tell()
        return True

    def _tell(self) -> None:
        if self._given_up is not None:
            self._given_up()

    def __await__(self) -> Generator[Any, None, T]:
        try:
            return (yield from super().__await__())
        except asyncio.CancelledError:
            self._tell()
            raise

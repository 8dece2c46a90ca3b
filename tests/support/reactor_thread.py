"""A reactor on a thread of its own, for tests that open real connections to what runs on one."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

from twisted.internet.defer import maybeDeferred
from twisted.internet.selectreactor import SelectReactor
from twisted.internet.threads import blockingCallFromThread

T = TypeVar("T")


class ReactorThread:
    """Runs calls on its reactor and hands out what they return, once a Deferred among it has fired."""

    def __init__(self) -> None:
        self.reactor: Any = SelectReactor()
        self._ports: list[Any] = []
        self._thread = threading.Thread(target=self.reactor.run, kwargs={"installSignalHandlers": False})
        self._thread.start()

    def run(self, call: Callable[..., T], *arguments: Any) -> Any:
        return blockingCallFromThread(self.reactor, maybeDeferred, call, *arguments)

    def listen(self, endpoint: Any, factory: Any) -> int:
        """Listen until the end, and return the port."""
        port = self.run(endpoint.listen, factory)
        self._ports.append(port)
        return port.getHost().port

    def end(self) -> None:
        for port in self._ports:
            self.run(port.stopListening)
        self.reactor.callFromThread(self.reactor.stop)
        self._thread.join()


@contextmanager
def reactor_thread() -> Iterator[ReactorThread]:
    thread = ReactorThread()
    try:
        yield thread
    finally:
        thread.end()

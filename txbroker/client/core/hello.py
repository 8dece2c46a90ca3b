"""The hello of a client: what becomes of it decides whether there is a session."""

from __future__ import annotations

from typing import Protocol, cast

from txbroker import errors
from txbroker.client.core.call import AnswerLost, Call
from txbroker.client.core.options import REFUSED_FOR_GOOD
from txbroker.wire.messages import Answer, Hello, Welcome


class Greets(Protocol):
    """The core, as far as its hello needs it."""

    abort: str

    def welcomed(self, welcome: Welcome) -> None:
        """There is a session."""

    def stop(self, error: errors.TxBrokerError) -> None:
        """There is none, and never will be."""


class Greeting(Call[Welcome]):
    """The hello: its answer opens the session, its refusal ends the client or the connection."""

    __slots__ = ("_core",)

    def __init__(self, core: Greets, hello: Hello, deadline: float) -> None:
        super().__init__(hello, Welcome, b"", deadline)
        self._core = core

    def answered(self, head: Answer, data: memoryview) -> None:
        """There is a session."""
        super().answered(head, data)
        self._core.welcomed(cast(Welcome, head))

    def refused(self, error: errors.TxBrokerError) -> None:
        """There is none, now or ever."""
        self.fail(error)
        if isinstance(error, REFUSED_FOR_GOOD):
            self._core.stop(error)
            self._core.abort = str(error)
        elif not isinstance(error, AnswerLost):
            self._core.abort = f"the broker refused the session: {error}"


def replaced(identity: str, known: str) -> errors.BrokerReplaced:
    """Behind the address is another broker: numbers and xids would mean other transactions, "unknown" be no answer."""
    return errors.BrokerReplaced(
        f"the broker behind the address has other data ({identity}) than the one this connection was made to "
        f"({known}); nothing was sent to it. Open a new connection to work with it. What is undecided at the old one "
        "can be ended only there, when it is back"
    )

"""The hello of a client. Its answer decides whether there is a session."""

from __future__ import annotations

from typing import Protocol, cast

from txbroker import errors
from txbroker.client.core.call import AnswerLost, Call
from txbroker.client.core.options import REFUSED_FOR_GOOD
from txbroker.wire.messages import Answer, Hello, Welcome


class Greets(Protocol):
    """The part of the core that a hello needs."""

    abort: str

    def welcomed(self, welcome: Welcome) -> None:
        """Begin the session."""

    def stop(self, error: errors.TxBrokerError) -> None:
        """End the client: there will be no session."""


class Greeting(Call[Welcome]):
    """The hello: its answer opens the session; its refusal ends the client or the connection."""

    __slots__ = ("_core",)

    def __init__(self, core: Greets, hello: Hello, deadline: float) -> None:
        super().__init__(hello, Welcome, b"", deadline)
        self._core = core

    def answered(self, head: Answer, data: memoryview) -> None:
        """Begin the session."""
        super().answered(head, data)
        self._core.welcomed(cast(Welcome, head))

    def refused(self, error: errors.TxBrokerError) -> None:
        """End the client or the connection."""
        self.fail(error)
        if isinstance(error, REFUSED_FOR_GOOD):
            self._core.stop(error)
            self._core.abort = str(error)
        elif not isinstance(error, AnswerLost):
            self._core.abort = f"the broker refused the session: {error}"


def replaced(identity: str, known: str) -> errors.BrokerReplaced:
    """Return the error for another broker behind the address, where numbers and xids mean other transactions."""
    return errors.BrokerReplaced(
        f"the broker behind the address has other data ({identity}) than the one this connection was made to "
        f"({known}); nothing was sent to it. Open a new connection to work with it. What is undecided at the old one "
        "can be ended only there, when it is back"
    )

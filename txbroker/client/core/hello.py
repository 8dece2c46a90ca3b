"""The hello of a client: what becomes of it decides whether there is a session."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

from txbroker import errors
from txbroker.client.core.call import AnswerLost, Call
from txbroker.client.core.options import REFUSED_FOR_GOOD
from txbroker.wire.messages import Answer, Hello, Welcome

if TYPE_CHECKING:
    from txbroker.client.core.core import Core


class Greeting(Call[Welcome]):
    """The hello: its answer opens the session, its refusal ends the client or the connection."""

    __slots__ = ("_core",)

    def __init__(self, core: Core, hello: Hello, deadline: float) -> None:
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

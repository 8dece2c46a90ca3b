"""One attempt to log in: what those of all mechanisms have in common."""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar, Final

from txbroker.errors import AuthenticationFailed
from txbroker.login.facts import ConnectionFacts
from txbroker.login.outcomes import Challenge, Failure, Step, Success
from txbroker.login.throttle import FailureTable

REFUSED: Final = (
    "the login was refused: user and password, certificate or token are wrong, or may not be used in this way. Nothing "
    "was done, and the connection is closed. The broker's log says why"
)
MAX_MESSAGE: Final = 1_024
"""Most bytes of a message of a mechanism that does not say otherwise."""


def refused() -> AuthenticationFailed:
    """Return the error for a client: the same for every reason."""
    return AuthenticationFailed(REFUSED)


class Exchange:
    """One attempt to log in, in one mechanism. It ends with its first success or failure.

    A mechanism is a class with :meth:`begin`, and :meth:`go_on` if it challenges the client.
    """

    limit: ClassVar[int] = MAX_MESSAGE
    client_begins: ClassVar[bool] = True
    """Whether the first message of the client says something; if it has sent none then, it is asked for it."""

    def __init__(self, mechanism: str, facts: ConnectionFacts, failures: FailureTable) -> None:
        self.mechanism = mechanism
        self._facts = facts
        self._failures = failures
        self._asked = False
        self._next: Callable[[bytes], Step] = self.begin

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.mechanism})"

    def step(self, data: bytes) -> Step:
        """Judge what the client sent; the first is its initial response (empty if it sent none).

        Never raises, whatever the bytes are.
        """
        if len(data) > self.limit and self._next != self._over:
            return self._fail(f"a message of {len(data)} bytes, {self.limit} are the most")
        if not data and self.client_begins and self._next == self.begin and not self._asked:
            self._asked = True
            return Challenge(b"")
        return self._next(data)

    def begin(self, data: bytes) -> Step:
        """Judge the initial response."""
        raise NotImplementedError

    def abandon(self) -> None:
        """Forget the attempt, for its connection is lost: its callback is not called any more."""
        self._next = self._over

    def _over(self, data: bytes) -> Step:  # noqa: ARG002 - whatever it says
        return Failure(refused(), "a message after the end of a login")

    def _fail(self, reason: str, user: str = "") -> Failure:
        """End the attempt. ``user`` is who the client says to be, if that can be a user's name at all."""
        self._next = self._over
        return Failure(refused(), reason, self._failures.failed(self._facts.address, user), user)

    def _succeed(self, success: Success) -> Success:
        self._next = self._over
        return success


class RefusedExchange(Exchange):
    """An attempt that fails whatever the client sends."""

    client_begins = False

    def __init__(self, mechanism: str, facts: ConnectionFacts, failures: FailureTable, reason: str) -> None:
        super().__init__(mechanism, facts, failures)
        self._reason = reason

    def begin(self, data: bytes) -> Step:  # noqa: ARG002 - whatever it says
        """Refuse."""
        return self._fail(self._reason)

"""All logins of a broker: which mechanisms a connection is offered, and what they share."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

from journal.formats.access_entries import User
from journal.interfaces import IClock
from txbroker.login.facts import ConnectionFacts
from txbroker.login.outcomes import Outcome, Step
from txbroker.login.tokens import TokenIssuer


class Access(Protocol):
    """The part of ``AccessFold`` that logins read, anew each time. ``changed`` differs after each change of users."""

    users: dict[str, User]
    key: bytes
    changed: int
    is_confirmed: bool


class RunBlocking(Protocol):
    """Runs ``work`` on a thread of a pool, then calls ``done`` with its result or ``failed`` with what it raised.

    Both are called on the thread that called this, later: in another turn of its loop. Two threads are enough.
    """

    def __call__(
        self,
        work: Callable[[], Any],
        done: Callable[[Any], None],
        failed: Callable[[BaseException], None],
        /,
    ) -> None:
        """Queue the work."""


class Exchange(Protocol):
    """One attempt to log in, in one mechanism. It ends with its first success or failure."""

    mechanism: str

    def step(self, data: bytes) -> Step:
        """Judge what the client sent; the first is its initial response (empty if it sent none).

        Never raises, whatever the bytes are.
        """

    def abandon(self) -> None:
        """Forget the attempt, for its connection is lost: its callback is not called any more."""


class Logins:
    """What all logins of a broker share: users, keys of issuers, failures, and the line of passwords to be checked.

    ``access`` is the fold of users. ``run_blocking`` is where PBKDF2 runs. ``random(n)`` returns n unguessable bytes.
    All methods are called on one thread.
    """

    def __init__(
        self,
        access: Access,
        run_blocking: RunBlocking,
        clock: IClock,
        random: Callable[[int], bytes],
        issuers: Sequence[TokenIssuer] = (),
    ) -> None:
        raise NotImplementedError

    def trust(self, issuers: Sequence[TokenIssuer]) -> None:
        """Accept the tokens of these issuers from now on, and of no other."""
        raise NotImplementedError

    def mechanisms(self, facts: ConnectionFacts) -> list[str]:
        """Return the names of the mechanisms to offer on a connection, the strongest first."""
        raise NotImplementedError

    def begin(self, facts: ConnectionFacts, mechanism: str, done: Callable[[Outcome], None]) -> Exchange:
        """Begin an attempt. ``done`` is called with its outcome if a step returned ``Pending``, and only then.

        A mechanism that is not offered on the connection, whatever its name, fails with its first step.
        """
        raise NotImplementedError

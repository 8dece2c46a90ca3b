"""What a step of a login comes to: a challenge, success, failure, or that it takes a while."""

from __future__ import annotations

import msgspec

from txbroker.errors import TxBrokerError


class Challenge(msgspec.Struct, frozen=True):
    """The client is to be sent ``data`` (which may be empty) and to answer it."""

    data: bytes

    def __repr__(self) -> str:
        return "Challenge(hidden)"


class Success(msgspec.Struct, frozen=True):
    """The connection is ``principal``'s. ``data`` goes to the client with the good news: it proves the broker.

    ``valid_until`` is in seconds since 1970 UTC, None without an end; then the session has to end, or its client has
    to log in anew. ``delay`` is how many seconds the caller waits before it tells the client: 0.0, unless others failed
    at the same user from the same address before. Without it the time of an answer would tell a guesser that it fails.
    """

    principal: str
    data: bytes = b""
    valid_until: float | None = None
    delay: float = 0.0

    def __repr__(self) -> str:
        return f"Success(principal={self.principal!r}, valid_until={self.valid_until})"


class Failure(msgspec.Struct, frozen=True):
    """The client is not let in.

    ``error`` is for the client: :class:`~txbroker.errors.AuthenticationFailed` with the same text whatever the reason,
    or :class:`~txbroker.errors.TooManyLogins` if nothing was judged. ``reason`` is for the broker's log; no secret is
    in it. ``delay`` is how many seconds the caller waits before it sends the error and closes the connection.
    ``user`` is who the client says to be, empty if that cannot be a user's name.
    """

    error: TxBrokerError
    reason: str
    delay: float = 0.0
    user: str = ""


class Pending(msgspec.Struct, frozen=True):
    """The outcome takes a while, and comes through the callback that was given to ``Logins.begin``."""


Outcome = Success | Failure
Step = Challenge | Success | Failure | Pending

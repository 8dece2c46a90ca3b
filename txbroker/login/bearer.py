"""OAUTHBEARER (RFC 7628): a token of an issuer that the broker trusts, shown where nobody can listen."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Final

from txbroker.login.exchange import Exchange
from txbroker.login.facts import ConnectionFacts
from txbroker.login.outcomes import Challenge, Failure, Step, Success
from txbroker.login.throttle import FailureTable
from txbroker.login.tokens import MAX_TOKEN, TokenIssuer, TokenRefused, prove
from txbroker.login.verifiers import NAME
from txbroker.login.ways import Ways

OAUTHBEARER: Final = "OAUTHBEARER"
REFUSAL: Final = b'{"status":"invalid_token"}'
"""What the client is told before the failure (RFC 7628, section 3.2.2), whatever the reason."""

_OTHERS: Final = r"(?:(?!auth=)[A-Za-z]+=[\t\n\r -~]*\x01)*"
_MESSAGE: Final = re.compile(
    rf"[ny],(?:a=({NAME}))?,\x01{_OTHERS}auth=(?i:bearer) +([A-Za-z0-9._~+/-]+=*)\x01{_OTHERS}\x01"
)


class BearerExchange(Exchange):
    """One attempt by OAUTHBEARER. ``wall`` is the time in seconds since 1970 UTC."""

    limit = MAX_TOKEN + 1_024

    def __init__(
        self,
        facts: ConnectionFacts,
        failures: FailureTable,
        ways: Ways,
        issuers: Mapping[str, TokenIssuer],
        wall: Callable[[], float],
    ) -> None:
        super().__init__(OAUTHBEARER, facts, failures)
        self._ways = ways
        self._issuers = issuers
        self._wall = wall
        self._failure: Failure

    def begin(self, data: bytes) -> Step:
        """Verify the token and find its user."""
        found = _MESSAGE.fullmatch(data.decode("latin-1"))
        if found is None:
            return self._refuse("a message that is no OAUTHBEARER with a bearer token")
        identity, token = found.groups()
        try:
            proven = prove(token, self._issuers, self._wall())
        except TokenRefused as refusal:
            return self._refuse(f"the token is refused: {refusal}")
        subject = f"subject {proven.subject.subject[:100]!r} of {proven.subject.issuer!r}"
        users = self._ways.by_token(proven.subject)
        if len(users) != 1:
            named = f"users {', '.join(sorted(users))} name" if users else "no user names"
            return self._refuse(f"{named} {subject}")
        (user,) = users
        if identity not in (None, user):
            return self._refuse(f"{subject} is user {user!r}, the identity is another")
        return self._succeed(Success(user, valid_until=proven.valid_until))

    def _refuse(self, reason: str) -> Step:
        """Tell the client as RFC 7628 wants it; the failure comes when it has answered."""
        self._failure = self._fail(reason)
        self._next = lambda _: self._told()
        return Challenge(REFUSAL)

    def _told(self) -> Step:
        self._next = self._over
        return self._failure

"""EXTERNAL and ANONYMOUS (RFC 4422, 4505): nothing is proven here, for it is known already, or nothing is."""

from __future__ import annotations

from typing import Final

from journal.parties import ADMINISTRATOR, ANONYMOUS
from txbroker.login.exchange import Exchange
from txbroker.login.facts import ConnectionFacts
from txbroker.login.outcomes import Step, Success
from txbroker.login.throttle import FailureTable
from txbroker.login.ways import Ways

EXTERNAL: Final = "EXTERNAL"
ANONYMOUS_MECHANISM: Final = "ANONYMOUS"


class ExternalExchange(Exchange):
    """One attempt by EXTERNAL: the user that names the client's certificate, or the administrator."""

    client_begins = False

    def __init__(self, facts: ConnectionFacts, failures: FailureTable, ways: Ways) -> None:
        super().__init__(EXTERNAL, facts, failures)
        self._ways = ways

    def begin(self, data: bytes) -> Step:
        """Find the user; ``data`` is empty or the name of it."""
        facts = self._facts
        users = {ADMINISTRATOR} if facts.administrator else self._ways.by_certificate(facts.peer_names)
        if not users:
            return self._fail(f"no user names a certificate of {_shown(facts.peer_names)}")
        if len(users) > 1:
            return self._fail(
                f"the certificate of {_shown(facts.peer_names)} is named by users {', '.join(sorted(users))}"
            )
        (user,) = users
        if data not in (b"", user.encode()):
            return self._fail(f"the certificate is of user {user!r}, the identity is another")
        return self._succeed(Success(user))


class AnonymousExchange(Exchange):
    """One attempt by ANONYMOUS. What the client tells of itself is not looked at."""

    client_begins = False

    def __init__(self, facts: ConnectionFacts, failures: FailureTable) -> None:
        super().__init__(ANONYMOUS_MECHANISM, facts, failures)

    def begin(self, data: bytes) -> Step:  # noqa: ARG002 - whatever it says
        """Let it in."""
        return self._succeed(Success(ANONYMOUS))


def _shown(names: tuple[str, ...]) -> str:
    return ", ".join(name[:200] for name in names[:4])

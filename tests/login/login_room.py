"""A room with a broker's logins: real users in the fold, a clock and a pool that tests step by hand."""

from __future__ import annotations

from itertools import count
from typing import Any

from journal.folds.access import AccessFold
from journal.parties import Actor
from journal.records.access_entries import TokenSubject, User
from journal.records.record import AccessSet, UserRemoved, UserSet
from journal.testing import ManualClock
from tests.support.manual_worker import ManualWorker
from txbroker.client.login.verifier import verifier_of
from txbroker.errors import AuthenticationFailed
from txbroker.login.facts import ConnectionFacts
from txbroker.login.logins import Logins
from txbroker.login.outcomes import Failure, Outcome, Pending, Step, Success

SECOND = 1_000_000
HASH = bytes(range(32))
"""The hash of the certificate that the broker shows."""
PENCIL = verifier_of("pencil", 4_096, b"salt" * 4)
ALICE = User(
    "alice", PENCIL, ["CN=alice,O=Example", "DNS:alice.example"], [TokenSubject("https://issuer", "alice-7")]
)
BOB = User("bob", None, ["CN=bob"])
LOOPBACK = ConnectionFacts(address="127.0.0.1", secure=True)
TLS = ConnectionFacts(address="192.0.2.7", secure=True, certificate_hash=HASH)
OPEN = ConnectionFacts(address="192.0.2.7")
BY = Actor("test")


class LoginRoom:
    """Logins of a broker with the users alice (pencil) and bob (no password)."""

    def __init__(self, *users: User) -> None:
        self.access = AccessFold()
        self.clock = ManualClock()
        self.worker = ManualWorker()
        self.outcomes: list[Outcome] = []
        self.draws = count(1)
        self._lsn = count(1)
        self._apply(AccessSet(True, True, b"k" * 32, BY, 0))
        for user in users or (ALICE, BOB):
            self.set(user)
        self.logins = Logins(self.access, self.worker.submit, self.clock, self.random)

    def random(self, size: int) -> bytes:
        return next(self.draws).to_bytes(size)

    def _apply(self, record: Any) -> None:
        self.access.apply(next(self._lsn), record, b"")

    def set(self, user: User) -> None:
        self._apply(UserSet(user, BY, 0))

    def remove(self, name: str) -> None:
        self._apply(UserRemoved(name, BY, 0))

    def begin(self, mechanism: str, facts: ConnectionFacts = TLS) -> Any:
        return self.logins.begin(facts, mechanism, self.outcomes.append)

    def step(self, mechanism: str, data: bytes, facts: ConnectionFacts = TLS) -> Step:
        """The first step of a new attempt; what is pending is done."""
        outcome = self.begin(mechanism, facts).step(data)
        if isinstance(outcome, Pending):
            self.worker.step()
            outcome = self.outcomes.pop()
        return outcome


def failure(outcome: object) -> str:
    """The reason of what must be a failure, which says to the client what all of them do."""
    assert isinstance(outcome, Failure), outcome
    assert type(outcome.error) is AuthenticationFailed
    assert str(outcome.error).startswith(
        "the login was refused: user and password, certificate or token are wrong"
    )
    assert 0 <= outcome.delay <= 4
    return outcome.reason


def success(outcome: object) -> Success:
    assert isinstance(outcome, Success), outcome
    return outcome

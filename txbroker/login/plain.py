"""PLAIN (RFC 4616): the password itself, so only where nobody can listen."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final

from journal.records.access_entries import MAX_PASSWORD, MAX_USER, ScramVerifier
from txbroker.errors import TooManyLogins
from txbroker.login.exchange import Exchange
from txbroker.login.facts import ConnectionFacts
from txbroker.login.outcomes import Failure, Outcome, Pending, Step, Success
from txbroker.login.passwords import MAX_WAITING, Check, PasswordChecker
from txbroker.login.throttle import FailureTable
from txbroker.login.verifiers import NAME, Verifiers

PLAIN: Final = "PLAIN"

_MESSAGE: Final = re.compile(rb"(%b)?\0(%b)\0([^\0]+)" % (NAME.encode(), NAME.encode()), re.DOTALL)


class PlainExchange(Exchange):
    """One attempt by PLAIN. Its password is checked off the loop, unless it is known to be right."""

    limit = 2 * (MAX_USER + 1) + MAX_PASSWORD

    def __init__(
        self,
        facts: ConnectionFacts,
        failures: FailureTable,
        verifiers: Verifiers,
        passwords: PasswordChecker,
        done: Callable[[Outcome], None],
    ) -> None:
        super().__init__(PLAIN, facts, failures)
        self._verifiers = verifiers
        self._passwords = passwords
        self._done = done
        self._check: Check | None = None
        self._name = ""
        self._known = False
        self._verifier: ScramVerifier

    def begin(self, data: bytes) -> Step:
        """Have the password checked."""
        found = _MESSAGE.fullmatch(data)
        if found is None:
            return self._fail("a message that is no PLAIN, or names what can be no user")
        identity, name, password = found.groups()
        self._name = name.decode()
        if identity not in (None, name):
            return self._fail_user("the identity is another than the user")
        self._verifier, self._known = self._verifiers.look_up(self._name)
        if self._passwords.is_known(self._name, self._verifier, password):
            return self._conclude(True)
        self._next = self._not_awaited
        self._check = self._passwords.check(self._name, self._verifier, password, self, self._checked)
        return Pending() if self._check else self._busy(f"{MAX_WAITING} passwords wait to be checked")

    def abandon(self) -> None:
        """Forget the attempt; its password is not checked if that has not begun."""
        super().abandon()
        if self._check is not None:
            self._check.waiting.pop(self, None)

    def _not_awaited(self, data: bytes) -> Step:  # noqa: ARG002 - whatever it says
        self.abandon()
        return self._fail_user("a message while the password was being checked")

    def _checked(self, right: bool | None) -> None:
        self._done(
            self._busy("the password could not be checked") if right is None else self._conclude(right)
        )

    def _conclude(self, right: bool) -> Outcome:
        if not self._known:
            return self._fail_user("there is no such user with a password")
        if not right:
            return self._fail_user("the password is wrong")
        if not self._verifiers.is_still(self._name, self._verifier):
            return self._fail_user("the user changed during the login")
        delay = self._failures.succeeded(self._facts.address, self._name)
        return self._succeed(Success(self._name, delay=delay))

    def _busy(self, reason: str) -> Failure:
        self._next = self._over
        error = TooManyLogins(
            f"the broker cannot check the password now: {MAX_WAITING:,} others wait for that, or it is stopping. "
            "Nothing was judged or done. Try again in some seconds; a login by SCRAM-SHA-256 does not wait for this"
        )
        return Failure(error, f"user {self._name!r}: {reason}")

    def _fail_user(self, reason: str) -> Failure:
        return self._fail(f"user {self._name!r}: {reason}", self._name)

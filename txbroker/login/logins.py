"""All logins of a broker: which mechanisms a connection is offered, and what they share."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from importlib.util import find_spec
from typing import Final

from journal.interfaces import IClock
from journal.records.access_entries import User
from txbroker.errors import InvalidSetting
from txbroker.login.bearer import OAUTHBEARER, BearerExchange
from txbroker.login.exchange import Exchange, RefusedExchange
from txbroker.login.external import ANONYMOUS_MECHANISM, EXTERNAL, AnonymousExchange, ExternalExchange
from txbroker.login.facts import ConnectionFacts
from txbroker.login.outcomes import Outcome
from txbroker.login.passwords import PasswordChecker, RunBlocking
from txbroker.login.plain import PLAIN, PlainExchange
from txbroker.login.scram import SCRAM, SCRAM_PLUS, ScramExchange
from txbroker.login.throttle import FailureTable
from txbroker.login.tokens import TokenIssuer
from txbroker.login.verifiers import Verifiers
from txbroker.login.ways import Access, Ways

UNCONFIRMED: Final = (
    "the users have not been confirmed since the data directory was repaired: they may be old "
    "('txbroker access confirm' over admin.sock)"
)


class Logins:
    """What all logins of a broker share: users, keys of issuers, failures, and the line of passwords to be checked.

    ``access`` is the fold of users. ``run_blocking`` is where PBKDF2 runs. ``random(n)`` returns n unguessable bytes.
    All methods are called on one thread, and none waits for anything.

    As long as ``access.is_confirmed`` is False only the administrator is let in: ``facts`` demand a login then.
    """

    def __init__(
        self,
        access: Access,
        run_blocking: RunBlocking,
        clock: IClock,
        random: Callable[[int], bytes],
        issuers: Sequence[TokenIssuer] = (),
    ) -> None:
        self._access = access
        self._clock = clock
        self._random = random
        self._failures = FailureTable(clock.seconds)
        self._verifiers = Verifiers(access, random(32))
        self._ways = Ways(access)
        self._passwords = PasswordChecker(run_blocking, random)
        self._issuers: dict[str, TokenIssuer] = {}
        self._has_scramp = find_spec("scramp") is not None
        self.trust(issuers)

    def prepare(self) -> None:
        """Import the packages that judge logins, for 0.4 s; otherwise the first login waits for that.

        May be called on any thread.
        """
        if self._has_scramp:
            import scramp  # noqa: F401
        if self._issuers:
            import jwt  # noqa: F401

    def trust(self, issuers: Sequence[TokenIssuer]) -> None:
        """Accept the tokens of these issuers from now on, and of no other.

        Raises ``InvalidSetting`` if one is given twice.
        """
        by_name = {issuer.issuer: issuer for issuer in issuers}
        if len(by_name) < len(issuers):
            raise InvalidSetting(
                "an issuer of tokens is given twice: there is one audience for each. Nothing was changed"
            )
        self._issuers = by_name

    def mechanisms(self, facts: ConnectionFacts) -> list[str]:
        """Return the names of the mechanisms to offer on a connection, the strongest first."""
        offered = {
            EXTERNAL: facts.administrator or self._knows(facts),
            OAUTHBEARER: facts.secure and bool(self._issuers),
            SCRAM_PLUS: self._has_scramp and facts.certificate_hash is not None,
            SCRAM: self._has_scramp,
            PLAIN: self._has_scramp and facts.secure,
            ANONYMOUS_MECHANISM: not facts.login_required,
        }
        return [name for name, is_offered in offered.items() if is_offered]

    def _knows(self, facts: ConnectionFacts) -> bool:
        """Whether a certificate may be of use: where no login is needed, one that no user names is none."""
        names = facts.peer_names
        return bool(names) and (facts.login_required or bool(self._ways.by_certificate(names)))

    def begin(self, facts: ConnectionFacts, mechanism: str, done: Callable[[Outcome], None]) -> Exchange:
        """Begin an attempt. ``done`` is called with its outcome if a step returned ``Pending``, and only then.

        A mechanism that is not offered on the connection, whatever its name, fails with its first step.
        """
        failures = self._failures
        if mechanism not in self.mechanisms(facts):
            reason = f"mechanism {mechanism[:30]!r} is not offered on this connection"
            return RefusedExchange(mechanism, facts, failures, reason)
        needs_users = mechanism != ANONYMOUS_MECHANISM and not (mechanism == EXTERNAL and facts.administrator)
        if needs_users and not self._access.is_confirmed:
            return RefusedExchange(mechanism, facts, failures, UNCONFIRMED)
        match mechanism:
            case "EXTERNAL":
                return ExternalExchange(facts, failures, self._ways)
            case "OAUTHBEARER":
                return BearerExchange(facts, failures, self._ways, self._issuers, self._wall)
            case "PLAIN":
                return PlainExchange(facts, failures, self._verifiers, self._passwords, done)
            case "ANONYMOUS":
                return AnonymousExchange(facts, failures)
            case _:
                return ScramExchange(mechanism, facts, failures, self._verifiers, self._random)

    def can_log_in(self, user: User) -> bool:
        """Return whether a way of a user can let it in here. Whether an endpoint asks for certificates is not known."""
        by_password = self._has_scramp and user.scram is not None
        return (
            by_password
            or bool(user.certificates)
            or any(each.issuer in self._issuers for each in user.tokens)
        )

    def _wall(self) -> float:
        return self._clock.wall() / 1_000_000

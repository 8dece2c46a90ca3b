"""The parts of a broker that let clients in, and say what they may do."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

from journal.folds.access import AccessFold
from journal.folds.identity import IdentityFold
from txbroker.broker.access.access_admin import AccessAdministration
from txbroker.broker.access.access_policy import AccessPolicy
from txbroker.broker.access.entrance import Entrance
from txbroker.broker.access.quotas import QuotaBook
from txbroker.broker.access.welcome import Greeting
from txbroker.broker.sessions.rights import Policy
from txbroker.login.logins import Logins

if TYPE_CHECKING:
    from journal.engine.engine import Engine


class Ends(NamedTuple):
    """What ends sessions: because a client is back, because its connection is gone, for a reason, and with a word."""

    supersede: Callable[[Any], None]
    end: Callable[[Any], None]
    finish: Callable[[Any, str], None]
    send_away: Callable[[Any, str], None]


class LettingIn(NamedTuple):
    """Those parts."""

    greeting: Greeting
    quotas: QuotaBook
    entrance: Entrance
    admin: AccessAdministration


def letting_in(
    broker: Any,
    engine: Engine,
    access: AccessFold,
    identity: IdentityFold,
    policy: AccessPolicy,
    logins: Logins,
    ends: Ends,
    call_later: Callable[..., Any] | None,
    random: Callable[[int], bytes],
) -> LettingIn:
    """Return them for a broker, whose ``policy`` may be replaced later."""
    settings, sessions = broker.settings, broker.sessions
    greeting = Greeting(engine, settings, sessions, broker.transacting, identity, random)
    quotas = QuotaBook(engine, access, broker.producers, sessions, call_later, broker.fetching.drained)

    def present() -> Policy:
        found: Policy = broker.policy
        return found

    entrance = Entrance(
        engine, settings, sessions, greeting, access, logins, present, quotas, call_later, ends.supersede, ends.end,
        ends.finish,
    )  # fmt: skip
    admin = AccessAdministration(
        engine, access, policy, sessions, random, ends.send_away, quotas, logins.can_log_in
    )
    return LettingIn(greeting, quotas, entrance, admin)

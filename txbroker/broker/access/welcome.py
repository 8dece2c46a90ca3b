"""Welcomes: what a client gets that has logged in, and the end of its former session.

A client that connects again shows what its last welcome contained: number of the session, nonce of the start, secret. A
number alone proves nothing: a data directory restored from a copy gives the same ones out again, to others.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from journal.constants import STARTS_KEPT
from journal.folds.identity import IdentityFold
from journal.records.record import Identified
from txbroker.broker.sessions.session import Session
from txbroker.broker.sessions.settings import BrokerSettings
from txbroker.broker.transactions.transactions import Transacting
from txbroker.errors import AuthenticationFailed, BrokerReplaced, TxBrokerError
from txbroker.wire.messages import FormerSession, Welcome
from txbroker.wire.secret import SECRET_BYTES, Secret

if TYPE_CHECKING:
    from journal.engine.engine import Engine


class Greeting:
    """The judge of former sessions, and the welcome of new ones.

    ``sessions`` are the open ones, by number; ``random(n)`` returns n random bytes.
    """

    def __init__(
        self,
        engine: Engine,
        settings: BrokerSettings,
        sessions: dict[int, Session],
        transacting: Transacting,
        identity: IdentityFold,
        random: Callable[[int], bytes],
    ) -> None:
        self._engine = engine
        self._settings = settings
        self._sessions = sessions
        self._transacting = transacting
        self._identity = identity
        self._random = random
        self._identified_by = 0
        if not identity.identity:
            self._identified_by = engine.accept(Identified(random(16).hex(), engine.now()))

    def new_secret(self) -> Secret:
        """Return a secret for a session."""
        return Secret(self._random(SECRET_BYTES))

    def judge(self, former: FormerSession | None, principal: str) -> TxBrokerError | None:
        """Return what is wrong with the former session that a client shows; None if nothing is, or if it shows none."""
        if former is None:
            return None
        start = former.session >> 32
        if not self._engine.starts.knows(start, former.start):
            return self._other_data(former.session)
        before = self._sessions.get(former.session)
        if before is None and former.session < self._transacting.next_session:
            return None
        if before is not None and before.secret.is_same(former.secret):
            if before.principal == principal:
                return None
            return AuthenticationFailed(
                f"the session that the login shows, {former.session}, is not that of {principal}; it was not ended. "
                "Log in as its principal, or open a new connection"
            )
        return BrokerReplaced(
            f"session {former.session} of the broker's present start has not the secret that the login shows: it is "
            "another client's, or the broker's machine was set back in time while it ran. Nothing was sent to it but "
            "the login, and no session was ended. Open a new connection"
        )

    def _other_data(self, session: int) -> BrokerReplaced:
        engine = self._engine
        why = "its data were set back to an older copy, or are other data"
        if session >> 32 < engine.starts.restored:
            why = f"its data were restored from a backup, and start {engine.starts.restored} began a new time line"
        elif session >> 32 < engine.starts.oldest:
            why = f"{why}, or have been started more than {STARTS_KEPT} times since"
        return BrokerReplaced(
            f"the broker behind the address (identity {self._identity.identity}, start {engine.start_number}) knows "
            f"nothing of the start that gave out session {session}: {why}. Nothing was sent to it but the login, and "
            "a session of that number, if there is one now, was not ended. Open a new connection, and check before you "
            "go on: what was acknowledged or prepared before may be missing"
        )

    def former(self, former: FormerSession | None) -> Session | None:
        """Return the judged former session of a client, if it is open."""
        return None if former is None else self._sessions.get(former.session)

    def begin(self, session: Session, principal: str, former: FormerSession | None) -> None:
        """Give the session its number. A client that shows a secret keeps it, and its producers.

        Whether an earlier start gave out that secret is not known, and need not be: only secret and principal identify
        a producer's owner.
        """
        has_secret = former is not None and len(former.secret.value) == SECRET_BYTES
        secret = former.secret if former is not None and has_secret else None
        session.begin(self._transacting.new_session(), principal, secret)
        self._sessions[session.number] = session

    def welcome(self, session: Session, correlation: int, data: bytes, valid_for: int) -> Welcome:
        """Return the answer to the last message of a login."""
        settings = self._settings
        return Welcome(
            correlation,
            session.number,
            settings.max_frame,
            settings.max_request,
            self._identity.identity,
            self._engine.starts.nonce,
            session.secret,
            settings.max_fetch_positions,
            session.principal,
            data,
            valid_for,
            self._engine.schedule.time(self._engine.now()),
        )

    @property
    def may_be_told(self) -> bool:
        """Return whether identity and nonce are forced: a start forces its own record, the first identity comes later.

        After a crash before that, either would be another one.
        """
        return self._identified_by <= self._engine.forced_lsn

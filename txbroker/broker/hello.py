"""Hellos: a session's welcome, and the end of the same client's former session.

A client that connects again shows what its last welcome contained: number of the session, nonce of the start, secret. A
number alone proves nothing: a data directory restored from a copy gives the same ones out again, to others.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from journal.constants import STARTS_KEPT
from journal.folds.identity import IdentityFold
from journal.formats.record import Identified
from txbroker.broker.session import Session
from txbroker.broker.settings import BrokerSettings
from txbroker.broker.transactions import Transacting
from txbroker.errors import BrokerReplaced
from txbroker.wire.messages import VERSIONS, FormerSession, Hello, Welcome
from txbroker.wire.secret import SECRET_BYTES, Secret

if TYPE_CHECKING:
    from journal.engine.engine import Engine


class Greeting:
    """The judge of hellos. ``sessions`` are the open ones, by number; ``random(n)`` returns n random bytes."""

    def __init__(
        self,
        engine: Engine,
        settings: BrokerSettings,
        sessions: Mapping[int, Session],
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

    def judge(self, former: FormerSession | None) -> BrokerReplaced | None:
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
            return None
        return BrokerReplaced(
            f"session {former.session} of the broker's present start has not the secret that the hello shows: it is "
            "another client's, or the broker's machine was set back in time while it ran. Nothing was sent to it but "
            "the hello, and no session was ended. Open a new connection"
        )

    def _other_data(self, session: int) -> BrokerReplaced:
        engine = self._engine
        why = "its data were set back to an older copy, or are other data"
        if session >> 32 < engine.starts.oldest:
            why = f"{why}, or have been started more than {STARTS_KEPT} times since"
        return BrokerReplaced(
            f"the broker behind the address (identity {self._identity.identity}, start {engine.start_number}) knows "
            f"nothing of the start that gave out session {session}: {why}. Nothing was sent to it but the hello, and "
            "a session of that number, if there is one now, was not ended. Open a new connection, and check before you "
            "go on: what was acknowledged or prepared before may be missing"
        )

    def former(self, hello: Hello) -> Session | None:
        """Return the former session of a judged hello's client, if it is open."""
        return None if hello.after is None else self._sessions.get(hello.after.session)

    def welcome(self, session: Session, hello: Hello) -> Welcome:
        """Return the answer to a judged hello. A client that shows a secret keeps it, and its producers.

        Whether an earlier start gave out that secret is not known, and need not be: only the secret identifies a
        producer's owner.
        """
        settings = self._settings
        if hello.after is not None and len(hello.after.secret.value) == SECRET_BYTES:
            session.go_on_with(hello.after.secret)
        return Welcome(
            hello.correlation,
            max(set(hello.versions) & set(VERSIONS)),
            session.number,
            "txbroker",
            settings.max_frame,
            settings.max_request,
            self._identity.identity,
            self._engine.starts.nonce,
            session.secret,
            settings.max_fetch_positions,
        )

    @property
    def may_be_told(self) -> bool:
        """Return whether identity and nonce are forced: a start forces its own record, the first identity comes later.

        After a crash before that, either would be another one.
        """
        return self._identified_by <= self._engine.forced_lsn

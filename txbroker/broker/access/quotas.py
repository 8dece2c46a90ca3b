"""Quotas: what one principal may use, over all its sessions. Who has none costs a comparison.

Bytes a second are kept by a token bucket of one second's bytes (Turner, IEEE Communications Magazine 24(10), 1986) that
may go below zero: what comes in is taken as it comes, and a request is never cut. While the bucket is below zero the
principal waits at its own sockets: they are not read (``bytes_in``), or its fetches are not carried out
(``bytes_out``). Nobody else waits, and nothing is refused. The other quotas are judged when something is to be made;
what there is stays if a quota is lowered.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Final

from twisted.logger import Logger

from journal.folds.access import AccessFold
from journal.folds.producers import ProducersFold
from journal.parties import parts_of
from journal.records.access_entries import NO_QUOTAS, Quotas
from journal.transaction_states import TransactionNumber
from txbroker.broker.sessions.allowance import Allowance, Bucket
from txbroker.broker.sessions.settings import SECOND
from txbroker.errors import LimitExceeded

if TYPE_CHECKING:
    from journal.engine.engine import Engine
    from txbroker.broker.fetches.fetch_attempt import CallLater
    from txbroker.broker.sessions.session import Session

LOOKED_AT: Final = 20
"""The work that looking at one topic or prepared transaction counts for in its session's turn."""

MOST_SAID: Final = 20
"""Most transactions over their age that are said one by one in the log at a time."""


class QuotaBook:
    """The allowances of all principals that have quotas and open sessions. ``exceeded`` counts by quota: refusals,
    waits, and transactions over their age.

    ``resume(session)`` has the fetches of a session tried again.
    """

    log = Logger()

    def __init__(
        self,
        engine: Engine,
        access: AccessFold,
        producers: ProducersFold,
        sessions: Mapping[int, Session],
        call_later: CallLater | None,
        resume: Callable[[Session], object],
    ) -> None:
        self._engine = engine
        self._access = access
        self._producers = producers
        self._sessions = sessions
        self._call_later = call_later
        self._resume = resume
        self._allowances: dict[str, Allowance] = {}
        self._told: dict[TransactionNumber, None] = {}
        self.exceeded: Counter[str] = Counter(dict.fromkeys(Quotas.__struct_fields__, 0))

    # -- whose they are ---------------------------------------------------------------------------

    def begin(self, session: Session) -> None:
        """Note a session whose client has just proven who it is."""
        quotas = self._quotas_of(session.principal)
        if quotas != NO_QUOTAS:
            self._attach(session, quotas)

    def end(self, session: Session) -> None:
        """Note that a session has ended."""
        allowance = session.allowance
        if allowance is not None:
            session.allowance = None
            allowance.sessions.pop(session, None)
            if not allowance.sessions and not _waits(allowance):
                self._allowances.pop(allowance.principal, None)

    def changed(self, principal: str) -> None:
        """Have the sessions of a user go by the quotas that it has now."""
        quotas = self._quotas_of(principal)
        for session in self._sessions.values():
            if session.principal == principal:
                if quotas != NO_QUOTAS:
                    self._attach(session, quotas)
                elif session.allowance is not None:
                    session.allowance = None
                    session.throttle(False)
                    self._resume(session)
        if quotas == NO_QUOTAS:
            self._allowances.pop(principal, None)

    def _quotas_of(self, principal: str) -> Quotas:
        user = self._access.users.get(principal)
        return NO_QUOTAS if user is None else user.quotas

    def _attach(self, session: Session, quotas: Quotas) -> None:
        now = self._engine.now()
        allowance = self._allowances.get(session.principal)
        if allowance is None:
            allowance = self._allowances[session.principal] = Allowance(session.principal, quotas, now)
        elif allowance.quotas != quotas:
            allowance.alter(quotas, now)
        allowance.sessions[session] = None
        session.allowance = allowance
        session.throttle(allowance.incoming is not None and allowance.incoming.waits)
        self._resume(session)

    # -- bytes a second ---------------------------------------------------------------------------

    def took(self, allowance: Allowance, size: int) -> None:
        """Note bytes of requests that have come; do not read the principal's connections while they were too many."""
        bucket = allowance.incoming
        if bucket is not None and self._take(allowance, bucket, size, "bytes_in"):
            for session in allowance.sessions:
                session.throttle(True)

    def gave(self, allowance: Allowance, size: int) -> None:
        """Note bytes of messages that were fetched."""
        bucket = allowance.outgoing
        if bucket is not None:
            self._take(allowance, bucket, size, "bytes_out")

    def _take(self, allowance: Allowance, bucket: Bucket, size: int, name: str) -> bool:
        """Take bytes; return whether the principal waits from now on, or does already."""
        seconds = bucket.take(size, self._engine.now())
        if seconds and not bucket.waits and self._call_later is not None:
            bucket.waits = True
            self.exceeded[name] += 1
            self._call_later(seconds, partial(self._refilled, allowance, bucket))
        return bucket.waits

    def _refilled(self, allowance: Allowance, bucket: Bucket) -> None:
        seconds = bucket.take(0, self._engine.now())
        if seconds and self._call_later is not None and bucket in (allowance.incoming, allowance.outgoing):
            self._call_later(seconds, partial(self._refilled, allowance, bucket))
            return
        bucket.waits = False
        for session in list(allowance.sessions):
            if bucket is allowance.incoming:
                session.throttle(False)
            else:
                self._resume(session)
        if not allowance.sessions and not _waits(allowance):
            self._allowances.pop(allowance.principal, None)

    # -- what is made -----------------------------------------------------------------------------

    def judge_session(self, principal: str) -> LimitExceeded | None:
        """Return why there can be no other session of a principal; None if there can."""
        limit = self._quotas_of(principal).sessions
        if limit is None:
            return None
        allowance = self._allowances.get(principal)
        present = 0 if allowance is None else len(allowance.sessions)
        return None if present < limit else self._over("sessions", principal, limit, present)

    def judge_topic(self, session: Session) -> None:
        """Raise LimitExceeded if the session's principal has made as many topics as it may."""
        allowance = session.allowance
        if allowance is None or allowance.quotas.topics is None:
            return
        topics, principal = self._engine.catalog.topics, allowance.principal
        session.work += LOOKED_AT * len(topics)
        present = sum(topic.owner == principal for topic in topics.values())
        if present >= allowance.quotas.topics:
            raise self._over("topics", principal, allowance.quotas.topics, present)

    def judge_producer(self, session: Session) -> None:
        """Raise LimitExceeded if the session's principal has as many producers as it may."""
        allowance = session.allowance
        if allowance is not None and allowance.quotas.producers is not None:
            present = self._producers.of_principals[allowance.principal]
            if present >= allowance.quotas.producers:
                raise self._over("producers", allowance.principal, allowance.quotas.producers, present)

    def judge_prepare(self, session: Session) -> None:
        """Raise LimitExceeded if the session's principal has as many prepared transactions as it may."""
        allowance = session.allowance
        prepared = self._engine.transactions.prepared
        if allowance is None or (limit := allowance.quotas.prepared) is None or len(prepared) < limit:
            return
        principal = allowance.principal
        session.work += LOOKED_AT * len(prepared)
        present = sum(
            each.owner is not None and each.owner.principal == principal for each in prepared.values()
        )
        if present >= limit:
            raise self._over("prepared", principal, limit, present)

    def _over(self, name: str, principal: str, limit: int, present: int) -> LimitExceeded:
        self.exceeded[name] += 1
        return LimitExceeded(
            f"the quota {name} of {principal} is {limit}, and there are {present}; nothing was made. {_ADVICE[name]}, "
            "or have an administrator raise it: txbroker users alter --quota",
            name, principal, limit, present,
        )  # fmt: skip

    # -- the age of what is prepared --------------------------------------------------------------

    def look(self, now: int) -> None:
        """Say of which users transactions have been prepared for longer than their quota; every second or so."""
        ages = {
            user.name: user.quotas.prepared_age
            for user in self._access.users.values()
            if user.quotas.prepared_age is not None
        }
        prepared = self._engine.transactions.prepared
        self._told = {number: None for number in self._told if number in prepared}
        if not ages:
            return
        least, said = now - min(ages.values()), 0
        for number, transaction in prepared.items():
            if transaction.prepared_at >= least:
                break
            principal = parts_of(transaction.owner)[0]
            age = ages.get(principal)
            if age is None or transaction.prepared_at >= now - age or number in self._told:
                continue
            self._told[number] = None
            self.exceeded["prepared_age"] += 1
            said += 1
            if said <= MOST_SAID:
                self.log.warn(
                    "transaction {number} (xid {xid}) of {owner} has been prepared for more than {age:g} s, the quota "
                    "prepared_age of {principal}: 'txbroker transactions show {number}'",
                    number=number, xid=transaction.xid, owner=transaction.owner, age=age / SECOND,
                    principal=principal,
                )  # fmt: skip
        if said > MOST_SAID:
            self.log.warn("so have {more} more", more=said - MOST_SAID)


_ADVICE: Final = {
    "sessions": "Close one",
    "topics": "Delete one",
    "producers": "Go on with those",
    "prepared": "Decide some",
}


def _waits(allowance: Allowance) -> bool:
    """Whether it owes something: that is not forgotten with its last session."""
    return any(each is not None and each.waits for each in (allowance.incoming, allowance.outgoing))

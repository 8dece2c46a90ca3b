"""Reads that begin with whole transactions: an add, and right behind it the one-phase commit, or prepare, of just that.

Carried out together they take two thirds of what they take one after the other (`make bench-guard`). So is the commit
of what was prepared like this. Whatever is unusual about them is left to :mod:`txbroker.broker.transactions`, so there
is one
place that refuses.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from crc32c import crc32c

from journal.constants import MAX_REQUEST_MESSAGES
from journal.formats.frame_check import check_run
from journal.transaction import number_of
from journal.transactions.whole_commit import Whole, WholeCommits
from journal.transactions.whole_prepare import WholePrepares
from txbroker.broker.scheduler import REQUEST
from txbroker.broker.sends import frame_limit
from txbroker.broker.session import OPEN, Session
from txbroker.broker.transactions import MAX_SERIAL
from txbroker.errors import RequestRefused
from txbroker.wire.codec import encode
from txbroker.wire.messages import Add, AnyRequest, Commit, Committed, Done, Prepare

if TYPE_CHECKING:
    from txbroker.broker.broker import Broker

Requests = list[tuple[AnyRequest, memoryview]]
BEGINNINGS = (Add, Commit)
"""What reads begin with that are looked at here."""

Broke = Callable[[Session, Any, Exception], None]
"""What is called with a session, its request, and the error of ours that ended it."""


class Wholes:
    """Carries out what comes whole, in the order in which it comes."""

    def __init__(self, broker: Broker, broke: Broke) -> None:
        engine = broker.engine
        self._line = broker.parking.line
        self._stores = engine.catalog.stores
        self._max_frame = broker.settings.max_frame
        self._when_forced = engine.when_forced
        self._commits = WholeCommits(engine)
        self._prepares = WholePrepares(engine)
        self._table = engine.transactions
        self._broke = broke

    def take(self, session: Session, requests: Requests, goes_on: Callable[[], bool]) -> int:
        """Carry out those that a read begins with; return how many requests these were: the others are the broker's.

        No more are begun when ``goes_on()`` says so, which is not asked in a read of one.
        """
        done, taken, count = 0, 0, len(requests)
        while taken < count and not self._line and session.state is OPEN:
            last, data = requests[taken]
            taken += 1
            try:
                if type(last) is Commit:
                    answer: Committed | Done | None = self._second_phase(session, last)
                elif type(last) is Add and taken < count:
                    add, last = last, requests[taken][0]
                    answer = self._both(session, add, data, last)
                    taken += 1
                else:
                    answer = None
            except Exception as error:  # noqa: BLE001  (see txbroker.broker.broker for who pays for it)
                self._broke(session, last, error)
                return count
            if answer is None:
                break
            self._when_forced(session.deliver, encode(answer))
            done = taken
            if done < count and count > 2 and not goes_on():
                break
        return done

    def _both(
        self, session: Session, add: Add, data: memoryview, then: AnyRequest
    ) -> Committed | Done | None:
        """The answer to the second; None, with nothing changed, if they have to go the long way."""
        if type(then) is Commit:
            if then.session not in (0, session.number) or not (add.xid is then.xid is None) or then.operator:
                return None
        elif type(then) is not Prepare or add.xid != then.xid:
            return None
        whole = self._whole(session, add, data, then)
        if whole is None:
            return None
        answer = self._one_phase(whole, then) if isinstance(then, Commit) else self._first_phase(whole, then)
        if answer is not None:
            session.last_serial = add.serial
        return answer

    def _whole(self, session: Session, add: Add, data: memoryview, then: Commit | Prepare) -> Whole | None:
        """What both say together; None if they do not agree, or if it is not for this session to begin now."""
        serial, totals, store = add.serial, then.totals, self._stores.get(add.partition)
        if (
            store is None
            or totals is None
            or totals.requests != 1
            or then.serial != serial
            or not session.last_serial < serial <= MAX_SERIAL
            or add.seen < 0
            or then.seen < 0
        ):
            return None
        try:
            opens = store.settings.check_compressed != 0
            count = check_run(data, frame_limit(store, self._max_frame), opens, MAX_REQUEST_MESSAGES)
        except RequestRefused:
            return None  # it is refused again, and the transaction with it
        session.work += REQUEST * (count - 1)
        frames = bytes(data)
        if totals.messages != count or totals.checksum != crc32c(frames):
            return None
        number = number_of((session.number, serial))
        return Whole(number, store, frames, totals, (add.seen, then.seen), session.owner)

    def _one_phase(self, whole: Whole, commit: Commit) -> Committed | None:
        outcome = self._commits.commit(whole)
        return None if outcome is None else Committed(commit.correlation, outcome.placements)

    def _first_phase(self, whole: Whole, prepare: Prepare) -> Done | None:
        try:
            prepare.xid.check()
        except RequestRefused:
            return None
        done = self._prepares.prepare(whole, prepare.xid)
        return Done(prepare.correlation) if done else None

    def _second_phase(self, session: Session, commit: Commit) -> Committed | None:
        own = commit.session in (0, session.number)
        if not own or commit.totals is not None or commit.xid is not None or commit.operator:
            return None
        transaction = self._table.prepared.get(number_of((session.number, commit.serial)))
        if transaction is None or not 0 <= commit.seen < commit.serial:
            return None
        outcome = self._prepares.commit(transaction, commit.seen)
        return None if outcome is None else Committed(commit.correlation, outcome.placements)

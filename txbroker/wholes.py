"""Reads that begin with whole transactions: an add, and right behind it the one-phase commit of just that.

Carried out together they take two thirds of what they take one after the other (`make bench-guard`). Whatever is
unusual about them is left to :mod:`txbroker.transacting`, so there is one place that refuses.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from crc32c import crc32c

from journal.frame_check import check_run
from journal.transaction import TransactionNumber
from journal.whole_commit import Whole, WholeCommits
from txbroker.codec import encode
from txbroker.commands import Add, AnyRequest, Commit, Committed
from txbroker.errors import RequestRefused
from txbroker.sending import frame_limit
from txbroker.session import Session, SessionState
from txbroker.transacting import MAX_SERIAL

if TYPE_CHECKING:
    from txbroker.broker import Broker

Requests = list[tuple[AnyRequest, memoryview]]
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
        self._broke = broke

    def take(self, session: Session, requests: Requests) -> Requests:
        """Carry out those that a read begins with; return what is left of it, for the broker to take one by one."""
        taken = 0
        while taken + 1 < len(requests):
            (add, data), (commit, _) = requests[taken : taken + 2]
            if type(add) is not Add or type(commit) is not Commit or self._line:
                break
            try:
                answer = self._carry_out(session, add, data, commit)
            except Exception as error:  # noqa: BLE001  (see txbroker.broker for who pays for it)
                self._broke(session, commit, error)
                return []
            if answer is None:
                break
            self._when_forced(session.deliver, encode(answer))
            taken += 2
        return requests[taken:]

    def _carry_out(self, session: Session, add: Add, data: memoryview, commit: Commit) -> Committed | None:
        """The answer; None, with nothing changed, if they have to go the long way."""
        serial, totals, store = add.serial, commit.totals, self._stores.get(add.partition)
        own = commit.session in (0, session.number) and commit.serial == serial
        if (
            not own
            or store is None
            or totals is None
            or totals.requests != 1
            or not session.last_serial < serial <= MAX_SERIAL
            or add.seen < 0
            or not (add.xid is commit.xid is None)
            or commit.operator
            or session.state is not SessionState.OPEN
        ):
            return None
        try:
            opens = store.settings.check_compressed != 0
            count = check_run(data, frame_limit(store, self._max_frame), opens)
        except RequestRefused:
            return None  # it is refused again, and the transaction with it
        frames = bytes(data)
        if totals.messages != count or totals.checksum != crc32c(frames):
            return None
        number = TransactionNumber(session.number, serial)
        whole = Whole(number, store, frames, totals, (add.seen, commit.seen), session.owner)
        outcome = self._commits.commit(whole)
        if outcome is None:
            return None
        session.last_serial = serial
        return Committed(commit.correlation, outcome.placements)

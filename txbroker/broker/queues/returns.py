"""Messages of queues that come back: with the session that had them, or with the transaction that held them."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final

from twisted.logger import Logger

from journal.offset_set import OffsetSet
from journal.records.group_entries import Retried, Settled
from txbroker.broker.fetches.fetch_attempt import CallLater
from txbroker.broker.queues.settler import Settler
from txbroker.broker.sessions.session import Session, unheard
from txbroker.errors import RequestRefused, TooManyParked
from txbroker.queues.deliveries import Deliveries
from txbroker.queues.level import ROLLED_BACK
from txbroker.queues.queue_deliveries import LevelDeliveries

if TYPE_CHECKING:
    from journal.engine.engine import Engine

RETURNED_AT_ONCE: Final = 256
"""Messages of an ended session whose attempt is counted in one turn."""
LOST: Final = "it was not acknowledged"


class Returns:
    """Makes such messages ready again, with an attempt counted by a record."""

    log = Logger()

    def __init__(
        self, engine: Engine, deliveries: Deliveries, settler: Settler, call_later: CallLater | None
    ) -> None:
        self._engine, self._deliveries, self._settler = engine, deliveries, settler
        self._call_later = call_later
        self._ended: deque[int] = deque()
        """Sessions that have ended with messages."""
        self.is_stopping = False
        """Whether the broker stops: then no attempt is counted of what sessions have."""
        self.serve: Callable[[LevelDeliveries], object] = unheard
        """Called with a queue of which messages may be ready."""

    def forget(self, session: Session) -> None:
        """Make ready what a session has that has ended, with an attempt counted for each message."""
        if not self.is_stopping and self._deliveries.held_by(session.number):
            self._ended.append(session.number)
            if len(self._ended) == 1:
                self._return_some()

    def released(self) -> None:
        """Have an attempt counted for what transactions had that were prepared, and are rolled back now."""
        if not self.is_stopping and ROLLED_BACK not in self._ended:
            self._ended.append(ROLLED_BACK)
            if len(self._ended) == 1:
                self._return_some()

    def _return_some(self) -> None:
        """Return some messages of ended sessions; go on in a later turn."""
        while self._ended and not self._engine.failed:
            holder = self._ended[0]
            states = self._deliveries.held_by(holder)
            if not states:
                self._ended.popleft()
                continue
            if not self._engine.busy:
                self.count(states[0], holder, states[0].lowest(holder, RETURNED_AT_ONCE))
            elif self._call_later is None:
                return
            if self._call_later is not None:
                self._call_later(0.001 if self._engine.busy else 0, self._return_some)
                return

    def count(self, state: LevelDeliveries, holder: int, some: OffsetSet, why: str = LOST) -> None:
        """Return these messages of a holder, with an attempt counted for each."""
        if not some:
            return
        offsets = [offset for first, end in some.runs() for offset in range(first, end)]
        retried = [Retried(offset, state.attempts(offset), 0, why) for offset in offsets]
        try:
            settled = self._settler.settle(state, retried=retried)
        except TooManyParked:
            state.give_back(holder, some)  # so many were returned already that their attempts are not kept
        except RequestRefused as error:
            self.log.error(
                "what an ended session had of queue {queue!r} is ready again, and no attempt is counted: {error}",
                queue=state.queue.name, error=str(error),
            )  # fmt: skip
            state.give_back(holder, some)
        else:
            self.returned(holder, settled)
        self.serve(state)

    def returned(self, holder: int, settled: Sequence[Settled]) -> None:
        """Note that a session has acknowledged messages, or returned them, as the record says."""
        now = self._engine.now()
        for each in settled:
            state = self._deliveries.at(each.partition)
            if state is None:
                continue
            state.let_go(holder)
            if each.unfinished:
                state.settled(holder, [(one.offset, one.due) for one in each.unfinished], now)
                self.serve(state)

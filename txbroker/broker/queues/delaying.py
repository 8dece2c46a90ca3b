"""Messages that came to delayed exchanges are put into the schedule (decision 0066).

Until then they are in a queue that nobody sees, one of each such exchange. One transaction of the broker's own finishes
some of them there and schedules them: no message is ever in neither, or in both.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Sequence
from typing import TYPE_CHECKING, Any, Final

from twisted.logger import Logger

from journal.constants import KIB
from journal.errors import CorruptSegment, MemoryExhausted, OffsetOutOfRange
from journal.folds.queues import Exchange, QueuesFold
from journal.formats.envelope import Clock, log_for, seal
from journal.formats.frame import HEADER, walk
from journal.log.message_store import MessageStore
from journal.parties import Owner
from journal.records.group_entries import GroupPositions, finishing
from journal.records.queue_entries import QUEUE_GROUP, address_of
from journal.schedule.schedule import Schedule
from journal.schedule.steps import Steps, Work
from journal.transaction_states import CLIENT
from journal.transactions.unsent import Unsent, UnsentRun
from txbroker.broker.queues.reading import read
from txbroker.broker.queues.removals import Removals
from txbroker.broker.sessions.session import unheard
from txbroker.broker.sessions.settings import BrokerSettings
from txbroker.errors import LimitExceeded, RequestRefused
from txbroker.groups.own_numbers import OwnNumbers
from txbroker.queues.delays import waited
from txbroker.queues.deliveries import Deliveries
from txbroker.queues.level import range_of
from txbroker.queues.queue_deliveries import LevelDeliveries

if TYPE_CHECKING:
    from journal.engine.engine import Engine

MOVER: Final = Owner("", "delayed exchanges", "broker")
"""Whose the transactions are that schedule messages."""
PIECE: Final = 64 * KIB
"""Bytes of messages that one transaction schedules, about; and one message at least."""
MOST: Final = 256
"""Most messages that one transaction schedules: 5 ms."""
LATER: Final = 1_000_000
"""µs after which what could not be scheduled is tried again."""


class Delaying:
    """Schedules what came to delayed exchanges. A pass looks at all queues of such messages in which something is new.

    ``recorded`` returns what a group settles as a record has it, ``numbers`` are for transactions.
    """

    log = Logger()

    def __init__(
        self,
        engine: Engine,
        settings: BrokerSettings,
        fold: QueuesFold,
        deliveries: Deliveries,
        removals: Removals,
        schedule: Schedule,
        recorded: Callable[[list[GroupPositions]], list[GroupPositions]],
        numbers: OwnNumbers,
    ) -> None:
        self._engine, self._settings = engine, settings
        self._fold, self._deliveries, self._removals = fold, deliveries, removals
        self._schedule, self._recorded, self._numbers = schedule, recorded, numbers
        self._line = dict.fromkeys(each.partition for each in fold.queues.values() if each.has_waiting)
        """Partitions to be looked at."""
        self._again_at = 0
        """The journal time before which nothing is tried, because something could not be done."""
        self._said = ""
        self.wake: Callable[[], object] = unheard
        """Called when a pass is to be made."""

    # -- what is accepted --------------------------------------------------------------------------

    def judge(self, count: int, size: int) -> None:
        """Raise LimitExceeded unless so many messages more, with so many bytes, may wait."""
        most, most_bytes = self._settings.max_scheduled, self._settings.max_scheduled_bytes
        waiting = self._schedule.waiting() + self.new() + count
        if waiting > most:
            raise LimitExceeded(
                f"{waiting:,} messages would wait in the schedule, the limit is {most:,}; nothing was sent. Wait until "
                "some are due, take some back, or raise max_scheduled"
            )
        held = sum(store.total_bytes for store in self._schedule.stores) + size
        if held > most_bytes:
            raise LimitExceeded(
                f"the logs of the schedule would take {held:,} bytes, the limit is {most_bytes:,}; nothing was sent. "
                "Wait until some are due, or raise max_scheduled_bytes"
            )

    def new(self) -> int:
        """Return how many messages are to wait at exchanges and are not in the schedule yet."""
        return sum(self._new_at(each) for each in self._fold.delayed.values())

    def waiting_at(self, exchange: Exchange) -> int:
        """Return how many messages wait at an exchange, with those that are not in the schedule yet."""
        return self._schedule.fold.targets.get(_target_of(exchange), 0) + self._new_at(exchange)

    def _new_at(self, exchange: Exchange) -> int:
        """Return how many messages are to wait at an exchange and are not in the schedule yet."""
        queue = self._fold.waiting_queue(exchange)
        return 0 if queue is None else self._deliveries.of(queue).accepted

    # -- what is done ------------------------------------------------------------------------------

    def published(self, stores: Iterable[MessageStore]) -> None:
        """Look at those of these logs that have got messages which are to wait."""
        if not self._fold.delayed:
            return
        found = [
            store.number
            for store in stores
            if (queue := self._fold.by_partition.get(store.number)) is not None and queue.has_waiting
        ]
        if found:
            self._line.update(dict.fromkeys(found))
            self.wake()

    def next_in(self) -> int | None:
        """Return after how many µs a pass has something to do; 0 for soon, None if nothing is new."""
        return max(0, self._again_at - self._engine.now()) if self._line else None

    def run(self) -> Steps:
        """Schedule what is new, a part of each queue in turn."""
        while self._line and not (self._engine.busy or self._engine.full) and self.next_in() == 0:
            number = next(iter(self._line))
            del self._line[number]
            state = self._deliveries.at(number)
            try:
                has_more = state is not None and (yield from self._move(state))
            except BaseException:
                self._line[number] = None  # the next pass looks at it again
                raise
            if has_more:
                self._line[number] = None  # behind the others
            yield None

    def _move(self, state: LevelDeliveries) -> Generator[Work | None, Any, bool]:
        """Schedule some messages of a queue; return whether there may be more."""
        run = state.ready_run(self._engine.now())
        if run is None:
            return False
        first, end = run
        try:
            data = yield from read(state.store, first, end, PIECE)
        except OffsetOutOfRange:
            return False  # it was deleted meanwhile
        except CorruptSegment as error:
            self._removals.damaged(state, None, first, min(end, max(first, error.last_offset) + 1), error)
            return True
        again = state.ready_run(self._engine.now())
        exchange = self._fold.waited_at(state.queue)
        if exchange is None or self._deliveries.at(state.store.number) is not state:
            return False
        if not self._engine.busy and again is not None and again[0] == first:
            try:
                self._schedule_some(state, exchange, first, min(end, again[1]), data)
            except MemoryExhausted:
                self._engine.want_flush()
                self._again_at = self._engine.now() + LATER
            except RequestRefused as error:
                self._blocked(exchange, error)
        return True

    def _blocked(self, exchange: Exchange, error: RequestRefused) -> None:
        """Try again later; only a new reason is logged."""
        self._again_at = self._engine.now() + LATER
        if self._said != str(error):
            self._said = str(error)
            self.log.error(
                "messages that came to exchange {exchange!r} cannot be scheduled, and it is tried again: {error}",
                exchange=exchange.name, error=str(error),
            )  # fmt: skip

    def _schedule_some(
        self, state: LevelDeliveries, exchange: Exchange, first: int, end: int, data: bytes
    ) -> None:
        logs = [store.number for store in self._schedule.make()]
        runs, end = self._envelopes(state.store, exchange, first, end, data, logs)
        moved = range_of(first, end)
        positions = self._recorded(
            [GroupPositions(QUEUE_GROUP, b"", [], finishing(state.store.number, moved))]
        )
        transactions, number = self._engine.transactions, self._numbers.following()
        transactions.check_unheld(positions)
        unsent = Unsent(runs, positions)
        transactions.commit(
            number, CLIENT, None, number.serial - 1, None, "", unsent, None, MOVER, is_limited=False
        )
        self._numbers.used(number)
        state.ended(None, moved)
        self._said = ""

    def _envelopes(
        self, store: MessageStore, exchange: Exchange, first: int, end: int, data: bytes, logs: Sequence[int]
    ) -> tuple[Sequence[UnsentRun], int]:
        """Return the envelopes of messages from offset ``first`` to below ``end``, or of the first of them, as runs for
        these logs of the schedule; and the offset behind the last.

        A message is due when its delay has passed since it was put into the queue. That is counted by schedule time,
        for which the time counts in which the broker was stopped.
        """
        now, schedule = self._schedule.now(Clock.ELAPSED), self._schedule.fold
        found, to = dict[int, list[bytes]](), first
        for position, length, offset, _ in walk(data):
            if not first <= offset < end:
                continue
            if to - first == MOST:
                break
            framed = data[position : position + length]
            delay, frame = waited(framed)
            stamped = HEADER.unpack_from(framed)[3]
            age = max(0, now - schedule.latest_time(stamped, offset < store.checkpointed_end))
            due = max(1, now - age + delay)
            sealed = seal(frame, _target_of(exchange), Clock.ELAPSED, due)
            found.setdefault(logs[log_for(due - now)], []).append(sealed)
            to = offset + 1
        return [(log, len(frames), b"".join(frames), ()) for log, frames in found.items()], to


def _target_of(exchange: Exchange) -> int:
    """Return how the schedule names an exchange: what finds no way from there is dropped."""
    return address_of(exchange.number, mandatory=False)

"""Messages taken from queues: requests that get some at once or wait for them, and what becomes of them with the
session.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator, Sequence
from contextlib import closing
from typing import TYPE_CHECKING, Any, Final

from twisted.logger import Logger

from journal.errors import CorruptSegment, InvalidFrame, OffsetOutOfRange
from journal.folds.queues import DeclaredQueue
from journal.formats.frame import walk
from journal.formats.offset_set_bytes import decode_offsets, encode_offsets
from journal.log.message_store import MessageStore
from journal.offset_set import OffsetSet
from journal.records.group_entries import GroupPositions, Retried, Settled
from journal.records.queue_entries import QUEUE_GROUP
from journal.records.record import OffsetsCommitted
from txbroker.broker.fetches.fetch_attempt import CallLater
from txbroker.broker.fetches.stepwise_answers import Steps, Stepwise, Work
from txbroker.broker.groups.consumer_groups import Consuming
from txbroker.broker.sessions.accounts import Accounts
from txbroker.broker.sessions.session import Session, SessionState, unheard
from txbroker.errors import (
    InvalidSetting,
    LimitExceeded,
    RequestRefused,
    TooManyParked,
    UnknownQueue,
)
from txbroker.queues.deliveries import ROLLED_BACK, Deliveries, QueueDeliveries, range_of
from txbroker.wire.codec import encode
from txbroker.wire.messages import MAX_TAKEN, GiveBack, Request, TakeMessages, Taken
from txbroker.wire.refusals import refusal

if TYPE_CHECKING:
    from journal.engine.engine import Engine
    from txbroker.broker.sessions.allowance import Allowance

MAX_WAITING: Final = 1000
"""Most requests of one session that wait for messages."""
RETURNED_AT_ONCE: Final = 256
"""Messages of an ended session whose attempt is counted in one turn."""
RUNS_AT_ONCE: Final = 32
"""Runs of messages that are read in one step: 1.5 ms."""
SERVED_AT_ONCE: Final = 16
"""Most requests that are answered in one turn: the messages of each are found by a walk of up to 5 ms."""
LOST: Final = "it was not acknowledged"


class _Waiting:
    """A request that waits for messages."""

    __slots__ = ("command", "session", "timer")

    def __init__(self, session: Session, command: TakeMessages) -> None:
        self.session, self.command = session, command
        self.timer: Any = None


class Takes:
    """The meaning of TakeMessages and GiveBack."""

    log = Logger()

    def __init__(
        self,
        engine: Engine,
        deliveries: Deliveries,
        consuming: Consuming,
        stepwise: Stepwise,
        answers: Accounts,
        max_wait: int,
        max_bytes: int,
        call_later: CallLater | None,
    ) -> None:
        self._engine, self.deliveries, self._consuming = engine, deliveries, consuming
        self._stepwise, self._answers = stepwise, answers
        self._max_wait, self._max_bytes, self._call_later = max_wait, max_bytes, call_later
        self._waiting: dict[int, deque[_Waiting]] = {}
        self._of_session: dict[int, int] = {}
        self._serving: dict[int, bool] = {}
        """The queues that are being served, and whether there may be more for them meanwhile."""
        self._put_off: dict[int, Any] = {}
        """Queues that are served on in a later turn, with the timer of that."""
        self._ended: deque[int] = deque()
        """Sessions that have ended with messages."""
        self._dues: dict[int, tuple[int, Any]] = {}
        """When the first message of a queue is due at which somebody waits, and the timer of that."""
        self.is_stopping = False
        """Whether the broker stops: then no attempt is counted of what sessions have."""
        self.taken = 0
        self.gave: Callable[[Allowance, int], object] = unheard
        """Called with bytes of messages that were given out."""
        self.handlers: dict[type[Request], Any] = {TakeMessages: self.take, GiveBack: self.give_back}
        deliveries.on_ready, deliveries.on_released = self._serve, self._released

    # -- requests ----------------------------------------------------------------------------------

    def take(self, session: Session, command: TakeMessages, data: memoryview) -> None:  # noqa: ARG002
        """Answer with messages, now or when there are some, or time is up."""
        state = self._state(command.partition)
        if not 1 <= command.most <= MAX_TAKEN:
            raise InvalidSetting(f"{command.most} messages to be taken; it must be from 1 to {MAX_TAKEN}")
        if session.allowance is not None and session.allowance.holds_fetches:
            raise LimitExceeded("the quota bytes_out is used up for now; nothing was taken. Ask again later")
        if session.state is SessionState.CLOSED:
            return  # it waited in line, and its session has ended
        waiting = _Waiting(session, command)
        if not self._waiting.get(command.partition) and self._give(state, waiting):
            return
        wait = min(command.max_wait, self._max_wait)
        if wait <= 0:
            self._answers.put(session, encode(Taken(command.correlation, command.partition)))
            return
        count = self._of_session.get(session.number, 0)
        if count >= MAX_WAITING:
            raise LimitExceeded(
                f"{count} requests of this session wait for messages of queues, {MAX_WAITING} are allowed; nothing was "
                "taken"
            )
        self._of_session[session.number] = count + 1
        self._waiting.setdefault(command.partition, deque()).append(waiting)
        if self._call_later is not None:
            waiting.timer = self._call_later(wait / 1e6, lambda: self._expire(waiting))
        self._look_at_due(state)

    def give_back(self, session: Session, command: GiveBack, data: memoryview) -> None:  # noqa: ARG002
        """Make messages ready again that the session has."""
        state = self.deliveries.at(command.partition)
        if state is None:
            return  # the queue was deleted, and they with it
        try:
            offsets = decode_offsets(command.offsets, command.base)
        except InvalidFrame as error:
            raise InvalidFrame(f"what is given back: {error}; nothing has changed") from error
        if command.counted:
            self._return(state, session.number, state.some_of(session.number, offsets))
            return
        state.give_back(session.number, offsets)
        self._serve(state)

    def cancel(self, session: Session, correlation: int) -> None:
        """Answer a request of that session now that waits, if there is one of that number."""
        for line in self._waiting.values():
            for each in line:
                if each.session is session and each.command.correlation == correlation:
                    self._expire(each)
                    return

    def _state(self, partition: int) -> QueueDeliveries:
        found = self.deliveries.at(partition)
        if found is None:
            raise UnknownQueue(
                f"partition number {partition} is no queue's; nothing has changed. The queue may have been deleted: "
                "ask for it again by its name"
            )
        return found

    def waiting_at(self, partition: int) -> int:
        """Return how many requests wait for messages of that queue."""
        return len(self._waiting.get(partition, ()))

    # -- waiting -----------------------------------------------------------------------------------

    def published(self, store: MessageStore) -> None:
        """Serve those that wait at a queue which has new messages."""
        if store.number in self._waiting and (state := self.deliveries.at(store.number)) is not None:
            self._serve(state)

    def _serve(self, state: QueueDeliveries) -> None:
        """Give what is ready to those that wait, in the order in which they came."""
        number = state.store.number
        if number in self._serving:
            self._serving[number] = True  # an answer has given some back: it goes on below
            return
        self._serving[number] = True
        try:
            while self._serving[number]:
                self._serving[number] = False
                self._serve_all(state)
        finally:
            del self._serving[number]
        if number in self._waiting:
            self._look_at_due(state)

    def _serve_all(self, state: QueueDeliveries) -> None:
        line = self._waiting.get(state.store.number)
        passed, left = list[_Waiting](), SERVED_AT_ONCE
        state.release_due(self._engine.now())
        while line:
            if not left and self._call_later is not None:
                self._serve_on(state.store.number)
                break
            waiting = line.popleft()
            if waiting.session.state is SessionState.CLOSED:
                self._stop_waiting(waiting)
            elif waiting.session.congested:
                passed.append(waiting)
            elif self._give(state, waiting):
                self._stop_waiting(waiting)
                left -= 1
            else:
                line.appendleft(waiting)
                break
        if line is not None:
            line.extendleft(reversed(passed))
            if not line:
                self._waiting.pop(state.store.number, None)

    def _serve_on(self, number: int) -> None:
        """Serve a queue on in a later turn."""

        def serve_on() -> None:
            del self._put_off[number]
            if number in self._waiting and (state := self.deliveries.at(number)) is not None:
                self._serve(state)

        if number not in self._put_off:
            assert self._call_later is not None
            self._put_off[number] = self._call_later(0, serve_on)

    def drained(self, session: Session) -> None:
        """Serve a session again whose peer has taken its answers."""
        if self._of_session.get(session.number):
            for number in list(self._waiting):
                if any(each.session is session for each in self._waiting.get(number, ())):
                    self._serve(self._state(number))

    def _stop_waiting(self, waiting: _Waiting) -> None:
        if waiting.timer is not None and waiting.timer.active():
            waiting.timer.cancel()
        number = waiting.session.number
        left = self._of_session.get(number, 1) - 1
        if left:
            self._of_session[number] = left
        else:
            self._of_session.pop(number, None)

    def _expire(self, waiting: _Waiting) -> None:
        number = waiting.command.partition
        line = self._waiting.get(number)
        if line is None or waiting not in line:
            return
        line.remove(waiting)
        if not line:
            del self._waiting[number]
        self._stop_waiting(waiting)
        self._answers.put(waiting.session, encode(Taken(waiting.command.correlation, number)))

    def _look_at_due(self, state: QueueDeliveries) -> None:
        """Come back when the first message of a queue is due at which somebody waits."""
        due, number = state.next_due(), state.store.number
        if due is None or self._call_later is None:
            return
        known, timer = self._dues.get(number, (0, None))
        if timer is not None and timer.active():
            if known <= due:
                return
            timer.cancel()
        wait = max(0, due - self._engine.now()) / 1e6 + 0.001
        self._dues[number] = due, self._call_later(wait, lambda: self._is_due(number))

    def _is_due(self, number: int) -> None:
        del self._dues[number]
        if number in self._waiting and (state := self.deliveries.at(number)) is not None:
            self._serve(state)

    # -- giving out --------------------------------------------------------------------------------

    def _give(self, state: QueueDeliveries, waiting: _Waiting) -> bool:
        """Give ready messages to a request; return whether there were any."""
        session, command = waiting.session, waiting.command
        fresh = state.fresh_from
        runs = state.take(session.number, command.most, self._engine.now())
        if not runs:
            return False
        try:
            self._stepwise.answer(session, command, self._answer(session, command, state, runs, fresh))
        except LimitExceeded as error:
            for first, end in runs:
                state.give_back(session.number, range_of(first, end))
            self._answers.put(session, encode(refusal(command.correlation, error)))
        return True

    def _answer(
        self,
        session: Session,
        command: TakeMessages,
        state: QueueDeliveries,
        runs: list[tuple[int, int]],
        fresh: int,
    ) -> Steps:
        """Read the messages of these runs, as many as the answer has room for; give the others back, or all if reading
        fails.
        """
        try:
            return (yield from self._read_answer(session, command, state, runs, fresh))
        except (
            Exception
        ):  # not that nobody wants the answer any more: the session has ended, and forget returns all
            for first, end in runs:
                state.give_back(session.number, range_of(first, end))
            self._serve(state)
            raise

    def _read_answer(
        self,
        session: Session,
        command: TakeMessages,
        state: QueueDeliveries,
        runs: list[tuple[int, int]],
        fresh: int,
    ) -> Steps:
        holder, found, left = session.number, _Found(), min(command.max_bytes, self._max_bytes)
        has_back = False
        for number, (first, end) in enumerate(runs):
            while first < end and (left > 0 or not found.pieces):
                try:
                    data = yield from _read(state.store, first, end, max(left, 1))
                except CorruptSegment as error:
                    behind = min(end, max(first, error.last_offset) + 1)
                    self._damaged(state, holder, first, behind, error)
                    first = behind
                    continue
                except OffsetOutOfRange as error:  # a repair or a deletion has moved the start
                    first = min(end, max(first + 1, error.start))
                    continue
                first, size = found.add(data, first, end, left)
                left -= size
                if not size:
                    left = 0
            if number % RUNS_AT_ONCE == RUNS_AT_ONCE - 1:
                yield None
            if first < end:
                for behind, last in [(first, end), *runs[number + 1 :]]:
                    state.give_back(holder, range_of(behind, last))
                has_back = True
                break
        if has_back:
            self._serve(state)
        self.taken += found.count
        session.work += found.size
        if session.allowance is not None and found.size:
            self.gave(session.allowance, found.size)
        attempts = [each for first, count in found.runs for each in state.attempts_of(first, first + count)]
        again = [(first, count) for first, count in found.runs if first < fresh]
        told = Taken(command.correlation, command.partition, found.runs, attempts, again)
        return encode(told, b"".join(found.pieces))

    def _damaged(
        self, state: QueueDeliveries, holder: int, first: int, end: int, error: CorruptSegment
    ) -> None:
        """Pass damaged messages over; those that a repair found lost are finished."""
        state.pass_over(holder, first, end)
        if error.lost and not self._engine.busy:
            position = state.position
            gone = encode_offsets(range_of(first, end), position)
            lost = Settled(state.store.number, 0, position, gone)
            self._engine.accept(OffsetsCommitted(QUEUE_GROUP, [], self._engine.now(), b"", [lost]))
        self.log.error(
            "messages {first} to {last} of queue {queue!r} cannot be delivered: {error}",
            first=first, last=end - 1, queue=state.queue.name, error=str(error),
        )  # fmt: skip

    # -- what ends ---------------------------------------------------------------------------------

    def queue_deleted(self, queue: DeclaredQueue) -> None:
        """Refuse what waits at a queue that is gone."""
        self.deliveries.forget(queue.partition)
        for waiting in self._waiting.pop(queue.partition, ()):
            self._stop_waiting(waiting)
            error = UnknownQueue(f"queue {queue.name!r} was deleted while messages were waited for")
            self._answers.put(waiting.session, encode(refusal(waiting.command.correlation, error)))

    def stop_waiting(self, session: Session) -> None:
        """End what a session waits for."""
        if self._of_session.pop(session.number, 0):
            for number, line in list(self._waiting.items()):
                for waiting in [each for each in line if each.session is session]:
                    line.remove(waiting)
                    if waiting.timer is not None and waiting.timer.active():
                        waiting.timer.cancel()
                if not line:
                    del self._waiting[number]

    def forget(self, session: Session) -> None:
        """Make ready what a session has that has ended, with an attempt counted for each message."""
        if not self.is_stopping and self.deliveries.held_by(session.number):
            self._ended.append(session.number)
            if len(self._ended) == 1:
                self._return_some()

    def _released(self) -> None:
        """Have an attempt counted for what transactions had that were prepared, and are rolled back now."""
        if not self.is_stopping and ROLLED_BACK not in self._ended:
            self._ended.append(ROLLED_BACK)
            if len(self._ended) == 1:
                self._return_some()

    def _return_some(self) -> None:
        """Return some messages of ended sessions; go on in a later turn."""
        while self._ended and not self._engine.failed:
            holder = self._ended[0]
            states = self.deliveries.held_by(holder)
            if not states:
                self._ended.popleft()
                continue
            if not self._engine.busy:
                self._return(states[0], holder, states[0].lowest(holder, RETURNED_AT_ONCE))
            elif self._call_later is None:
                return
            if self._call_later is not None:
                self._call_later(0.001 if self._engine.busy else 0, self._return_some)
                return

    def _return(self, state: QueueDeliveries, holder: int, some: OffsetSet) -> None:
        if not some:
            return
        offsets = [offset for first, end in some.runs() for offset in range(first, end)]
        retried = [Retried(offset, state.attempts(offset), 0, LOST) for offset in offsets]
        number, position = state.store.number, state.position
        try:
            asked = [GroupPositions(QUEUE_GROUP, b"", [], [Settled(number, 0, position, retried=retried)])]
            recorded = self._consuming.recorded(asked)
            self._consuming.check_settled(recorded)
            self._engine.transactions.check_unheld(recorded)
        except TooManyParked:
            state.give_back(holder, some)  # so many were returned already that their attempts are not kept
        except RequestRefused as error:
            self.log.error(
                "what an ended session had of queue {queue!r} is ready again, and no attempt is counted: {error}",
                queue=state.queue.name, error=str(error),
            )  # fmt: skip
            state.give_back(holder, some)
        else:
            settled = recorded[0].settled
            self._engine.accept(OffsetsCommitted(QUEUE_GROUP, [], self._engine.now(), b"", settled))
            self.returned(holder, settled)
        self._serve(state)

    def returned(self, holder: int, settled: Sequence[Settled]) -> None:
        """Note that a session has acknowledged messages, or returned them, as the record says."""
        now = self._engine.now()
        for each in settled:
            state = self.deliveries.at(each.partition)
            if state is None:
                continue
            state.let_go(holder)
            if each.unfinished:
                state.settled(holder, [(one.offset, one.due) for one in each.unfinished], now)
                self._serve(state)


class _Found:
    """The messages of an answer."""

    def __init__(self) -> None:
        self.pieces: list[bytes | memoryview] = []
        self.runs: list[tuple[int, int]] = []
        self.size = self.count = 0

    def add(self, data: bytes, first: int, end: int, left: int) -> tuple[int, int]:
        """Add the frames from offset ``first`` to below ``end`` as far as there is room, at least one if there is none
        yet; return the offset behind them, and their size.
        """
        begin, stop, offset = None, 0, first
        for position, length, at, count in walk(data):
            if at >= end or (stop + length > left and (self.pieces or begin is not None)):
                break
            if at + count <= first:
                continue
            begin = position if begin is None else begin
            stop, offset = position + length, at + count
        if begin is None:
            return first, 0
        self.pieces.append(memoryview(data)[begin:stop])
        self.runs.append((first, offset - first))
        self.size += stop - begin
        self.count += offset - first
        return offset, stop - begin


def _read(store: MessageStore, first: int, end: int, most: int) -> Generator[Work | None, Any, bytes]:
    """Return frames from that offset on, none that begins at ``end`` or above."""
    with closing(store.plan_read(first, most, end)) as plan:
        found = plan.run_now()
    if found is None:
        found = yield store.plan_read(first, most, end).run
    data: bytes = found.data
    return data

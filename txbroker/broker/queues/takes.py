"""Messages taken from queues: requests that get some at once or wait for them."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from journal.errors import InvalidFrame
from journal.folds.queues import DeclaredQueue
from journal.formats.offset_set_bytes import decode_offsets
from journal.log.message_store import MessageStore
from txbroker.broker.fetches.fetch_attempt import CallLater
from txbroker.broker.fetches.stepwise_answers import MOST_AT_ONCE, Steps, Stepwise
from txbroker.broker.queues.consumers import Consumer, Consumers
from txbroker.broker.queues.giving import Giving
from txbroker.broker.queues.removals import Removals
from txbroker.broker.queues.returns import Returns
from txbroker.broker.queues.take_line import Shares, TakeLine, Waiting
from txbroker.broker.sessions.accounts import Accounts
from txbroker.broker.sessions.session import Session, SessionState, unheard
from txbroker.errors import InvalidSetting, LimitExceeded, UnknownQueue
from txbroker.queues.deliveries import Deliveries
from txbroker.queues.expiry import NEVER
from txbroker.queues.queue_deliveries import Handed, LevelDeliveries, QueueDeliveries
from txbroker.wire.codec import encode
from txbroker.wire.messages import MAX_TAKEN, GiveBack, Request, TakeMessages, Taken
from txbroker.wire.refusals import refusal

if TYPE_CHECKING:
    from journal.engine.engine import Engine

MAX_WAITING: Final = 1000
"""Most requests of one session that wait for messages, beside one for each of its consumers."""
PAUSE: Final = 0.001
"""Seconds until a request is looked at again whose session has as many answers being made as it may."""
QUEUES_AT_ONCE: Final = 32
"""Most queues that are served in one turn because one force has brought messages to all of them: 0.3 ms each."""
SERVED_AT_ONCE: Final = 16
"""Most requests that are answered in one turn: the messages of each are found by a walk of up to 5 ms."""


class Takes:
    """The meaning of TakeMessages and GiveBack."""

    def __init__(
        self,
        engine: Engine,
        deliveries: Deliveries,
        consumers: Consumers,
        giving: Giving,
        returns: Returns,
        removals: Removals,
        stepwise: Stepwise,
        answers: Accounts,
        max_wait: int,
        call_later: CallLater | None,
    ) -> None:
        self._engine, self.deliveries, self.consumers = engine, deliveries, consumers
        self.giving, self.returns, self.removals = giving, returns, removals
        self._stepwise, self._answers = stepwise, answers
        self._max_wait, self._call_later = max_wait, call_later
        self._lines: dict[int, TakeLine] = {}
        """Requests that wait, by the partition of the queue at which they do."""
        self._of_session: dict[int, int] = {}
        self._giving: dict[tuple[int, int], Waiting] = {}
        """Requests that are being answered, by session and correlation."""
        self._serving: dict[int, dict[LevelDeliveries, None]] = {}
        """The queues that are being served, with those priorities of them of which there may be more meanwhile."""
        self._last_looks: dict[int, dict[Waiting, None]] = {}
        """Requests in lines that wait no longer than until nothing is left, by the partition of their queue."""
        self._put_off: dict[int, Any] = {}
        """Queues that are served on in a later turn, with the timer of that."""
        self._backlog: dict[int, None] = {}
        """Queues to be served in later turns, because messages have come to many of them at once."""
        self._dues: dict[int, tuple[int, Any]] = {}
        """When the first message of a queue is due at which somebody waits, and the timer of that."""
        self.check_owner: Callable[[DeclaredQueue, Session], object] = unheard
        """Raises QueueInUse for a queue that is another session's."""
        self.handlers: dict[type[Request], Any] = {TakeMessages: self.take, GiveBack: self.give_back}
        deliveries.on_ready, deliveries.on_released = self.serve, returns.released
        giving.serve = returns.serve = self.serve
        removals.serve_waiting = self._serve_waiting
        consumers.on_stopped, consumers.on_active = self._consumer_stopped, self._consumer_active
        consumers.on_place = self._serve_line

    # -- requests ----------------------------------------------------------------------------------

    def take(self, session: Session, command: TakeMessages, data: memoryview) -> None:  # noqa: ARG002
        """Answer with messages, now or when there are some, or time is up."""
        state = self.deliveries.queue(command.partition)
        self.check_owner(state.queue, session)
        consumer = self.consumers.of(session, command.consumer, command.partition)
        if not 1 <= command.most <= MAX_TAKEN:
            raise InvalidSetting(f"{command.most} messages to be taken; it must be from 1 to {MAX_TAKEN}")
        state.used_at = self._engine.now()
        if session.allowance is not None and session.allowance.holds_fetches:
            raise LimitExceeded("the quota bytes_out is used up for now; nothing was taken. Ask again later")
        if session.state is SessionState.CLOSED:
            return  # it waited in line, and its session has ended
        self.consumers.gives_up_place(consumer)
        wait = min(command.max_wait, self._max_wait)
        waiting = Waiting(session, command, state.used_at + wait, consumer, wait > 0)
        if self._takes_now(state, waiting):
            return
        if wait > 0:
            self._check_room(session)
        gets = self.consumers.gets(consumer)
        self._lines.setdefault(command.partition, TakeLine()).append(waiting, rests=not gets)
        self._wait(state, waiting)
        if wait <= 0:
            self._look_when_forced(waiting)
        elif session.making >= MOST_AT_ONCE and gets:
            self._serve_on(command.partition, PAUSE)

    def _takes_now(self, state: QueueDeliveries, waiting: Waiting) -> bool:
        """Give a request what is ready, unless others come before it; return whether it got something."""
        line = self._lines.get(waiting.command.partition)
        is_first = line is None or not line.is_before(waiting.priority)
        if not (is_first and self.consumers.gets(waiting.consumer)) or self.consumers.comes_behind(
            waiting.consumer
        ):
            return False
        session = waiting.session
        is_busy = session.making >= MOST_AT_ONCE or (session.congested and waiting.waits)
        given = None if is_busy else self._give(state, waiting, waiting.command.most)
        if given is not None:
            self.removals.taken(given)
        return given is not None

    def _look_when_forced(self, waiting: Waiting) -> None:
        """Have a request answered at last when what was accepted is there: who has sent a message and asks for one must
        not hear that there is none.
        """
        if not waiting.looks:
            waiting.looks = True
            self._engine.when_forced(self._take_forced, waiting)

    def _take_forced(self, waiting: Waiting) -> None:
        """Answer a request that waits no longer than until everything that was accepted before it is there: in its turn
        of those that get something, or with nothing.
        """
        waiting.is_forced = True
        number = waiting.command.partition
        if not waiting.is_in_line:
            return
        if not self.consumers.gets(waiting.consumer):
            self._expire(waiting)
            return
        self._last_looks.setdefault(number, {})[waiting] = None
        if number not in self._put_off and number not in self._backlog:
            self.serve(self.deliveries.queue(number).levels[-1])

    def _check_room(self, session: Session) -> None:
        count, most = self._of_session.get(session.number, 0), self._most_waiting(session)
        if count >= most:
            raise LimitExceeded(
                f"{count} requests of this session wait for messages of queues, {most} are allowed; nothing was taken"
            )

    def _most_waiting(self, session: Session) -> int:
        return MAX_WAITING + self.consumers.count_of(session)

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
            self.returns.count(state, session.number, state.some_of(session.number, offsets))
            return
        state.give_back(session.number, offsets)
        self.serve(state)

    def cancel(self, session: Session, correlation: int) -> None:
        """Answer a request of that session now that waits, if there is one of that number; let one that is being
        answered not wait on.
        """
        if (given := self._giving.get((session.number, correlation))) is not None:
            given.is_ended = True
            return
        for line in self._lines.values():
            for each in line:
                if each.session is session and each.command.correlation == correlation:
                    self._expire(each)
                    return

    def waiting_at(self, partition: int) -> int:
        """Return how many requests wait for messages of that queue."""
        return len(self._lines.get(partition, ()))

    # -- waiting -----------------------------------------------------------------------------------

    def published(self, stores: Sequence[MessageStore]) -> None:
        """Serve those that wait at queues which have new messages, and end those that are too many then."""
        found: dict[int, list[LevelDeliveries]] = {}
        for store in stores:
            if (state := self.deliveries.at(store.number)) is not None:
                found.setdefault(state.queue.partition, []).append(state)
        at_once = QUEUES_AT_ONCE
        for number, levels in found.items():
            if number in self._lines and (at_once or self._call_later is None):
                self.serve(*levels)
                at_once -= 1
            elif number in self._lines:
                self._serve_behind(number)
            else:
                levels[0].whole.all_offered()
            self.removals.look(*levels, is_published=True)

    def serve(self, *changed: LevelDeliveries) -> None:
        """Give what is ready to those that wait at a queue, of which these priorities have changed, each its share:
        those of higher priority first, then in the order in which they came.
        """
        if (more := self._serving.get(changed[0].queue.partition)) is not None:
            # An answer has given some back: it goes to those who wait behind, before any of it is too much.
            more.update(dict.fromkeys(changed))
            return
        levels = dict.fromkeys(changed)
        gave = self._serve(changed[0].whole, levels)
        self.removals.look(*levels)
        for each in gave:
            if each not in levels:
                self.removals.taken(each)

    def _serve(
        self, state: QueueDeliveries, changed: dict[LevelDeliveries, None]
    ) -> Collection[LevelDeliveries]:
        """Do so; return what priorities have given something. Those that get some back meanwhile are ``changed``."""
        number, gave = state.queue.partition, dict[LevelDeliveries, None]()
        more = self._serving[number] = {}
        try:
            while True:
                self._serve_all(state, gave)
                if not more:
                    break
                changed.update(more)
                more.clear()
        finally:
            del self._serving[number]
        if number in self._lines:
            self._look_at_due(state)
        return gave

    def _serve_waiting(self, state: LevelDeliveries) -> None:
        """Serve who waits before a priority is looked at."""
        if state.queue.partition in self._lines:
            changed = {state: None}
            gave = self._serve(state.whole, changed)
            for each in changed:
                if each is not state:
                    self.removals.look(each)
            for each in gave:
                if each not in changed:
                    self.removals.taken(each)

    def _serve_all(self, state: QueueDeliveries, gave: dict[LevelDeliveries, None]) -> None:
        number = state.queue.partition
        state.release_due(self._engine.now())
        line = self._lines.get(number)
        if line is None:
            state.all_offered()
            return
        passed, left, shares, is_empty = list[Waiting](), SERVED_AT_ONCE, Shares(line), False
        while left or self._call_later is None:
            waiting = line.pop()
            if waiting is None:
                break
            if waiting.session.state is SessionState.CLOSED:
                self._stop_waiting(waiting)
            elif (waiting.session.congested and waiting.waits) or self.consumers.comes_behind(
                waiting.consumer
            ):
                passed.append(waiting)
            elif waiting.session.making >= MOST_AT_ONCE:
                passed.append(waiting)
                self._serve_on(number, PAUSE)
            elif (level := self._share(state, waiting, shares)) is not None:
                gave[level] = None
                left -= 1
            else:
                line.put_back(waiting)
                is_empty = True
                break
        if line and not left and self._call_later is not None:
            self._serve_on(number, 0)  # and the rest is offered then
        else:
            state.all_offered()
        for each in reversed(passed):
            line.put_back(each)
        if not line:
            self._lines.pop(number, None)
        for each in self._last_looks.pop(number, ()) if is_empty else ():
            self._expire(each)

    def _share(self, state: QueueDeliveries, waiting: Waiting, shares: Shares) -> LevelDeliveries | None:
        """Give the first request in line its share; return of which priority."""
        return self._give(state, waiting, shares.next(waiting, state.count_free()), waiting.waits)

    def _serve_behind(self, number: int) -> None:
        """Serve a queue in a later turn, behind those that are to be served then already."""
        if not self._backlog and self._call_later is not None:
            self._call_later(0, self._serve_backlog)
        self._backlog[number] = None

    def _serve_backlog(self) -> None:
        for number in list(self._backlog)[:QUEUES_AT_ONCE]:
            del self._backlog[number]
            self._serve_line(number)
        if self._backlog and self._call_later is not None:
            self._call_later(0, self._serve_backlog)

    def _serve_on(self, number: int, seconds: float) -> None:
        """Serve a queue on in a later turn, so many seconds from now."""

        def serve_on() -> None:
            del self._put_off[number]
            self._serve_line(number)

        if number not in self._put_off and self._call_later is not None:
            self._put_off[number] = self._call_later(seconds, serve_on)

    def _serve_line(self, number: int) -> None:
        """Serve those that wait at a queue, if it is there."""
        if number in self._lines and (state := self.deliveries.at(number)) is not None:
            self.serve(state)

    def drained(self, session: Session) -> None:
        """Serve a session again whose peer has taken its answers."""
        if self._of_session.get(session.number):
            for number in list(self._lines):
                if any(each.session is session for each in self._lines.get(number, ())):
                    self.serve(self.deliveries.queue(number).levels[-1])

    def _wait(self, state: QueueDeliveries, waiting: Waiting) -> None:
        """Note that a request has come into the line."""
        number = waiting.session.number
        waiting.is_in_line = True
        self._of_session[number] = self._of_session.get(number, 0) + 1
        if self._call_later is not None and waiting.waits:
            left = max(0, waiting.until - self._engine.now())
            waiting.timer = self._call_later(left / 1e6, lambda: self._expire(waiting))
        self._look_at_due(state)

    def _wait_on(self, state: QueueDeliveries, waiting: Waiting) -> bool:
        """Have a request wait, before the others, for which nothing was left of what it was to get; return whether it
        may wait.
        """
        number, count = state.queue.partition, self._of_session.get(waiting.session.number, 0)
        engine = self._engine
        if waiting.waits:
            is_over = waiting.until <= engine.now()
        else:
            is_over = waiting.is_forced or engine.is_all_shown
        if waiting.is_ended or is_over or self.deliveries.at(number) is None:
            return False
        if count >= self._most_waiting(waiting.session):
            return False
        self.consumers.gives_up_place(waiting.consumer)
        self._lines.setdefault(number, TakeLine()).put_back(waiting)
        self._wait(state, waiting)
        if not waiting.waits:
            self._look_when_forced(waiting)
        return True

    def _stop_waiting(self, waiting: Waiting) -> None:
        if not waiting.is_in_line:
            return
        waiting.is_in_line = False
        if (last := self._last_looks.get(waiting.command.partition)) is not None:
            last.pop(waiting, None)
            if not last:
                del self._last_looks[waiting.command.partition]
        if (state := self.deliveries.at(waiting.command.partition)) is not None:
            state.whole.used_at = self._engine.now()
        if waiting.timer is not None and waiting.timer.active():
            waiting.timer.cancel()
        number = waiting.session.number
        left = self._of_session.get(number, 1) - 1
        if left:
            self._of_session[number] = left
        else:
            self._of_session.pop(number, None)

    def _expire(self, waiting: Waiting) -> None:
        """Answer a request that waits, without messages."""
        command = waiting.command
        line = self._lines.get(command.partition)
        if line is None or not line.remove(waiting):
            return
        if not line:
            del self._lines[command.partition]
        self._stop_waiting(waiting)
        self._answers.put(waiting.session, encode(Taken(command.correlation, command.partition)))

    def _look_at_due(self, state: QueueDeliveries) -> None:
        """Come back when the first message of a queue is due at which somebody waits."""
        due, number = state.next_due(), state.queue.partition
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
        self._serve_line(number)

    # -- giving out --------------------------------------------------------------------------------

    def _give(
        self, state: QueueDeliveries, waiting: Waiting, most: int, has_waited: bool = False
    ) -> LevelDeliveries | None:
        """Give up to ``most`` ready messages of the highest priority that has any to a request; return of which. One
        that ``has_waited`` for them gets also what has come with hardly a time to live.
        """
        session, command = waiting.session, waiting.command
        handed = state.take(session.number, min(most, command.most), self._engine.now())
        if handed is None:
            return None
        self._stop_waiting(waiting)
        self.consumers.takes_place(waiting.consumer)
        new_from = max(handed.fresh, handed.level.offered) if has_waited else NEVER
        self._stepwise.answer(session, command, self._answer(waiting, handed, new_from))
        return handed.level

    def _answer(self, waiting: Waiting, handed: Handed, new_from: int) -> Steps:
        answered = waiting.session.number, waiting.command.correlation
        self._giving[answered] = waiting
        try:
            waits_on = partial(self._wait_on, handed.level.whole, waiting)
            return (yield from self.giving.answer(waiting, handed, waits_on, new_from))
        finally:
            self._giving.pop(answered, None)

    # -- what ends ---------------------------------------------------------------------------------

    def _consumer_stopped(self, consumer: Consumer) -> None:
        """Answer what waits for a consumer that has ended; let what is being answered for it not wait on."""
        for given in self._giving.values():
            if given.consumer is consumer:
                given.is_ended = True
        line = self._lines.get(consumer.partition)
        for waiting in () if line is None else line.of(consumer):
            self._expire(waiting)

    def _consumer_active(self, consumer: Consumer) -> None:
        """Serve a consumer that has become the active one of its queue."""
        line, state = self._lines.get(consumer.partition), self.deliveries.at(consumer.partition)
        if line is not None and state is not None:
            line.wake(consumer)
            self.serve(state)

    def queue_deleted(self, queue: DeclaredQueue) -> None:
        """Refuse what waits at a queue that is gone."""
        self.deliveries.forget(queue)
        for number in queue.partitions:
            self.removals.forget(number)
        self.queue_over(queue)

    def queue_over(self, queue: DeclaredQueue) -> None:
        """Refuse what waits at a queue that nobody may use any more, and end its consumers."""
        self.consumers.forget(queue.partition)
        self._last_looks.pop(queue.partition, None)
        for waiting in self._lines.pop(queue.partition, ()):
            self._stop_waiting(waiting)
            error = UnknownQueue(f"queue {queue.name!r} was deleted while messages were waited for")
            self._answers.put(waiting.session, encode(refusal(waiting.command.correlation, error)))

    def stop_waiting(self, session: Session) -> None:
        """End what a session waits for."""
        if self._of_session.get(session.number):
            for number, line in list(self._lines.items()):
                for waiting in [each for each in line if each.session is session]:
                    line.remove(waiting)
                    self._stop_waiting(waiting)
                if not line:
                    del self._lines[number]

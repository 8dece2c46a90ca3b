"""The meaning of requests about queues, exchanges and bindings, but for messages that are taken."""

from __future__ import annotations

from collections.abc import Callable, Generator, Sequence
from typing import TYPE_CHECKING, Any, Final

from twisted.logger import Logger

from journal.folds.queues import DeclaredQueue, QueuesFold
from journal.formats import frame
from journal.log.message_store import MessageStore
from journal.parties import Actor
from journal.records.group_entries import Ending, PartitionOffset, RetryRules, Settled
from journal.records.queue_entries import Binding, DeadLetterStrategy, address_of
from journal.records.record import LogStartMoved
from journal.transactions.unsent import UnsentRun, targets_of
from journal.words import count_text
from txbroker.broker.fetches.stepwise_answers import Steps, Stepwise, Until, Work
from txbroker.broker.queues.consumer_timeouts import ConsumerTimeouts
from txbroker.broker.queues.leases import Leases
from txbroker.broker.queues.queue_listing import QueueListing
from txbroker.broker.queues.settler import Settler
from txbroker.broker.queues.takes import Takes
from txbroker.broker.sends.sends import disk_full
from txbroker.broker.sessions.session import Session
from txbroker.errors import DeliveryLost, InvalidSetting, QueueFull, QueueInUse, UnknownExchange, UnknownQueue
from txbroker.groups.dead_letters import Origin
from txbroker.queues.deaths import deaths_of, goes_in_a_circle
from txbroker.queues.declarations import Declarations
from txbroker.queues.level import range_of
from txbroker.queues.publishing import Publishing, Ways
from txbroker.queues.queue_deliveries import LevelDeliveries, QueueDeliveries
from txbroker.queues.settlements import offsets_of
from txbroker.wire.codec import encode
from txbroker.wire.messages import (
    Bind,
    Counted,
    DeclareExchange,
    DeclareQueue,
    DeleteExchange,
    DeleteQueue,
    Done,
    ExchangeDeclared,
    PurgeQueue,
    QueueDeclared,
    Request,
    Unbind,
)

if TYPE_CHECKING:
    from journal.engine.engine import Engine

DELETED_AT_ONCE: Final = 50
"""Most queues that are deleted in one turn because they have ended."""
TOLD_AGAIN: Final = 60_000_000
"""µs after which further dead letters that were dropped for lack of room are logged, all together."""
LEFT: Final = "its last consumer has ended"
"""Why queues are deleted."""
_WITHOUT_END: Final = 1 << 62
_PURGED_AT_ONCE: Final = 1 << 16
"""Most offsets of one record of a purge, and so of one turn: 1 ms."""


class Queueing:
    """The meaning of those requests, and what others need to know of queues."""

    log = Logger()

    def __init__(
        self,
        engine: Engine,
        fold: QueuesFold,
        declarations: Declarations,
        publishing: Publishing,
        takes: Takes,
        settler: Settler,
        leases: Leases,
        timeouts: ConsumerTimeouts,
        stepwise: Stepwise,
    ) -> None:
        self._engine, self._fold = engine, fold
        self.declarations, self.publishing = declarations, publishing
        self.takes, self._deliveries, self._consumers = takes, takes.deliveries, takes.consumers
        self._settler, self._stepwise = settler, stepwise
        self.timeouts = timeouts
        self.leases, self.listing = leases, QueueListing(engine, fold, declarations, takes, stepwise)
        self._owners: dict[int, int] = {}
        """The sessions of exclusive queues, by partition."""
        self.is_open: Callable[[int], bool] = bool
        """Whether a session of that number has not ended."""
        self._hidden: dict[int, tuple[str, int]] = {}
        """Queues that are over and that an undecided transaction needs, by partition: why they are over, and how many
        messages they had ever got by then.
        """
        self.circles = 0
        """Dead letters that were dropped because they went in a circle."""
        self.refused_dead_letters = 0
        """Dead letters that were dropped because a queue had no room for them."""
        self._refused_told = self._refused_told_again = 0
        """How many of these the log has told of, and when it may tell of others; journal time."""
        self.handlers: dict[type[Request], Any] = {
            DeclareQueue: self.declare_queue,
            DeleteQueue: self.delete_queue,
            PurgeQueue: self.purge,
            DeclareExchange: self.declare_exchange,
            DeleteExchange: self.delete_exchange,
            Bind: self.bind,
            Unbind: self.unbind,
            **self.listing.handlers,
            **takes.handlers,
            **takes.consumers.handlers,
            **leases.handlers,
        }
        """The commands, each with its meaning."""
        self._consumers.check_owner = takes.check_owner = self.check_owner
        self._consumers.on_left = self._consumers_left

    # -- what others ask ---------------------------------------------------------------------------

    def judge_settled(
        self, session: int, offsets: Sequence[PartitionOffset], settled: Sequence[Settled], is_final: bool
    ) -> None:
        """Raise :class:`DeliveryLost` unless the session of that number has all messages that this acknowledges or
        returns; InvalidSetting for what nobody may do to a queue. ``is_final`` outside of transactions.
        """
        if offsets:
            raise InvalidSetting(
                "the position of a queue moves with what is acknowledged, and not otherwise; nothing has changed. "
                "Acknowledge its messages, or purge it"
            )
        for each in settled:
            state = self._deliveries.at(each.partition)
            if state is None:
                raise InvalidSetting(
                    f"partition number {each.partition} is no queue's; nothing has changed. It may have been deleted"
                )
            if each.retried and not is_final:
                raise InvalidSetting(
                    f"a transaction acknowledges messages of queue {state.queue.name!r}, and returns none; nothing has "
                    "changed. Return them outside of it"
                )
            wanted = offsets_of(each)
            if is_final:
                state.forgive(wanted, each.retried)  # a repetition, whose first answer was lost
            missing = state.has(session, wanted)
            if missing is not None:
                at = f"{missing} of priority {each.partition - state.queue.partition}"
                raise DeliveryLost(
                    f"message {at if state.queue.settings.max_priority else missing} of queue "
                    f"{state.queue.name!r} is not delivered to this session: it was given "
                    "back, or its connection was lost since; nothing has changed. What was done for it must not count"
                )

    def rules_of(self, store: MessageStore) -> RetryRules:
        """Return the rules by which messages of a queue are delivered again."""
        settings = self._fold.by_partition[store.number].settings
        limit = settings.delivery_limit
        ending = Ending.DROP if settings.dead_letter_exchange is None else Ending.DEAD_LETTER
        return RetryRules(_WITHOUT_END if limit is None else limit + 1, 0, 0, ending)

    def dead_letter_runs(self, partition: int, framed: bytes) -> list[UnsentRun]:
        """Return where a dead letter of a queue goes; nowhere if its exchange is not there. Queues that refuse it are
        left out, unless it is to be kept: then this raises :class:`QueueFull`, and it waits where it is.
        """
        settings = self._fold.by_partition[partition].settings
        name = settings.dead_letter_exchange
        exchange = None if name is None else self._fold.exchanges.get(name)
        if exchange is None:
            return [(0, 1, framed, ())]
        address = address_of(exchange.number, mandatory=False)
        [(first, count, _, also)] = self.publishing.routed(address, framed, is_ours=True)
        [message] = frame.decode_run(framed)
        deaths = deaths_of(message.headers)
        ways = targets_of(first, also) if first else ()
        straight = [each for each in ways if not goes_in_a_circle(deaths, self._fold.by_partition[each].name)]
        circles = len(ways) - len(straight)
        if settings.dead_letter_strategy is DeadLetterStrategy.AT_MOST_ONCE:
            straight = [each for each in straight if self._takes_dead_letter(each, framed, partition)]
        runs: list[UnsentRun] = [(straight[0] if straight else 0, count, framed, tuple(straight[1:]))]
        self.publishing.check_lengths(runs, Ways())
        if circles:
            self.circles += circles
            self.log.warn(
                "a dead letter of queue {queue!r} goes in a circle, in which no consumer has rejected it, and is "
                "dropped from {count} queues; it has died in {deaths}",
                queue=self._fold.by_partition[partition].name, count=circles,
                deaths=count_text(len({each.queue for each in deaths}), "queue"),
            )  # fmt: skip
        return runs

    def _takes_dead_letter(self, target: int, framed: bytes, partition: int) -> bool:
        """Return whether a queue has room for a dead letter of another one; if not, it is counted, and logged once a
        minute.
        """
        try:
            self.publishing.check_lengths([(target, 1, framed, ())], Ways())
        except QueueFull as error:
            self.refused_dead_letters += 1
            if (now := self._engine.now()) >= self._refused_told_again:
                self.log.warn(
                    "{count} dropped because a queue refused them, since this was logged last; the last one is of "
                    "queue {queue!r}: {why}",
                    count=count_text(self.refused_dead_letters - self._refused_told, "dead letter"),
                    queue=self._fold.by_partition[partition].name, why=str(error),
                )  # fmt: skip
                self._refused_told, self._refused_told_again = self.refused_dead_letters, now + TOLD_AGAIN
            return False
        return True

    def dead_letter_origin(self, partition: int) -> Origin:
        """Return what a queue is to its dead letters."""
        queue = self._fold.by_partition[partition]
        key = queue.settings.dead_letter_key
        exchange = queue.settings.dead_letter_exchange or ""
        return Origin(queue.name, None if key is None else key.encode(), exchange)

    def drains(self, others: Callable[[Session], object]) -> Callable[[Session], None]:
        """Return what is called when a session's peer has taken its answers: for fetches, and for takes."""

        def drained(session: Session) -> None:
            others(session)
            self.takes.drained(session)

        return drained

    def retain(self) -> int:
        """Let the logs of queues begin at what is not finished, if whole segments lie below; return how many moved."""
        moved = 0
        if self._engine.busy:
            return 0
        for state in self._deliveries.finished_since():
            sealed, position = state.store.sealed_segments, state.position
            if sealed and sealed[0].end_offset <= position:
                self._engine.accept(LogStartMoved(state.store.number, position, self._engine.now()))
                moved += 1
        return moved

    # -- declarations ------------------------------------------------------------------------------

    def declare_queue(self, session: Session, command: DeclareQueue, data: memoryview) -> QueueDeclared:  # noqa: ARG002
        """Have a queue, or ask whether it is there."""
        known = self.declarations.known_queue(command.name) is not None
        if command.passive:
            queue = self._queue_of(command.name, session)
        else:
            if known:
                self._queue_of(command.name, session)
            elif self._engine.full:
                raise disk_full()
            queue = self.declarations.declare_queue(command.name, command.settings, session.as_actor())
            if not known and queue.settings.exclusive:
                self._owners[queue.partition] = session.number
        state, now = self._deliveries.of(queue), self._engine.now()
        if not command.passive:
            state.used_at = now
        count = self._consumers.count(queue.partition)
        return QueueDeclared(command.correlation, queue.partition, state.count_accepted(now), count)

    def _queue_of(self, name: str, session: Session) -> DeclaredQueue:
        """Return a queue that the session may use; raises UnknownQueue, QueueInUse."""
        queue = self.declarations.queue(name)
        self.check_owner(queue, session)
        return queue

    def check_owner(self, queue: DeclaredQueue, session: Session) -> None:
        """Raise QueueInUse for a queue that is exclusive to another session, and UnknownQueue for one that is over, or
        of what is to wait at an exchange: somebody has guessed its number.
        """
        if queue.partition in self._hidden:
            raise UnknownQueue(
                f"there is no queue {queue.name!r} any more; nothing has changed. Declare it first"
            )
        if queue.has_waiting:
            raise UnknownQueue(
                f"partition number {queue.partition} is no queue's; nothing has changed. Ask for the queue by its name"
            )
        if queue.settings.exclusive and self._owners.get(queue.partition) != session.number:
            raise QueueInUse(
                f"queue {queue.name!r} is exclusive to another session, and is deleted with that; nothing has changed. "
                "Use another name, or wait for that"
            )

    def delete_queue(self, session: Session, command: DeleteQueue, data: memoryview) -> Counted:  # noqa: ARG002
        """Delete a queue."""
        queue = self._queue_of(command.name, session)
        if queue.partition != command.partition:
            raise UnknownQueue(
                f"the queue {command.name!r} that was meant has been deleted, and another one of that name was made; "
                "nothing has changed. Look what it has before you delete it"
            )
        state = self._deliveries.of(queue)
        if command.if_empty and state.accepted:
            count = count_text(state.accepted, "message")
            raise QueueInUse(f"queue {command.name!r} has {count}; nothing has changed")
        if command.if_unused and self._is_used(state):
            consumers = count_text(self._consumers.count(queue.partition), "consumer")
            raise QueueInUse(
                f"queue {command.name!r} is used: {consumers}, {self.takes.waiting_at(queue.partition)} waiting for "
                f"messages, {state.unacknowledged} delivered to sessions; nothing has changed"
            )
        return Counted(command.correlation, self._delete(queue, session.as_actor()))

    def _delete(self, queue: DeclaredQueue, by: Actor | None) -> int:
        count = self.declarations.delete_queue(queue, by)
        self._owners.pop(queue.partition, None)
        self.takes.queue_deleted(queue)
        return count

    def expire(self, now: int) -> None:
        """Delete queues that are over: as :meth:`_why_over` says. Every second or so, unless the engine is busy."""
        self.declarations.end_unbound()
        self._end_ownerless()
        left = DELETED_AT_ONCE
        for queue in list(self._fold.queues.values()):
            why = self._why_over(queue, now)
            if why and self._end(queue, why):
                left -= 1
                if not left:
                    break

    def _why_over(self, queue: DeclaredQueue, now: int) -> str:
        """Return why a queue is to be deleted; nothing if it is not."""
        partition, settings = queue.partition, queue.settings
        if partition in self._hidden:
            return self._hidden[partition][0]
        if settings.exclusive and not self.is_open(self._owners.get(partition, 0)):
            return "its session has ended"
        if self._consumers.has_left(partition):
            return LEFT
        if settings.expires is not None and self._is_unused(queue, settings.expires, now):
            return "it was not used"
        return ""

    def started(self) -> None:
        """Delete what was not to outlive the broker's last process, before anybody is let in: exchanges that are not
        durable, and what was to wait at these. Of transient queues nothing is left.
        """
        self.declarations.end_exchanges()
        self._end_ownerless()

    def _end_ownerless(self) -> None:
        """Delete queues of what was to wait at exchanges that are gone, unless an undecided transaction needs them."""
        for name in list(self._fold.ownerless):
            self._end(self._fold.queues[name], "its exchange is not there any more")

    def _consumers_left(self, queue: DeclaredQueue) -> None:
        """Delete a queue whose last consumer has ended; not because the broker stops."""
        if not self.takes.returns.is_stopping:
            self._end(queue, LEFT)

    def session_ended(self, session: Session) -> None:
        """End the consumers of a session that has ended, and delete its exclusive queues."""
        self._consumers.session_ended(session)
        self.leases.session_ended(session)
        for partition in [each for each, owner in self._owners.items() if owner == session.number]:
            self._end(self._fold.by_partition[partition], "its session has ended")

    def _is_unused(self, queue: DeclaredQueue, expires: int, now: int) -> bool:
        state = self._deliveries.of(queue)
        if self._is_used(state):
            state.used_at = now
        return now - state.used_at >= expires

    def _is_used(self, state: QueueDeliveries) -> bool:
        number = state.queue.partition
        return bool(state.is_delivered or self.takes.waiting_at(number) or self._consumers.count(number))

    def _end(self, queue: DeclaredQueue, why: str) -> bool:
        """Delete a queue; return whether it has gone. One that an undecided transaction needs is hidden, and goes after
        that: what its commit brings is dropped.
        """
        state = self._deliveries.of(queue)
        got = sum(each.store.end_offset for each in state.levels)
        try:
            self._delete(queue, None)
        except QueueInUse as error:
            if not queue.has_waiting and queue.partition not in self._hidden:
                self._hide(queue, why, got, str(error))
            return False
        _, before = self._hidden.pop(queue.partition, (why, got))
        self.log.info("queue {queue!r} is deleted: {why}", queue=queue.name, why=why)
        if dropped := got - before:
            self.publishing.unrouted += dropped
            self.log.info(
                "{count} for queue {queue!r} dropped: the queue was over when their transaction was committed",
                queue=queue.name, count=count_text(dropped, "message"),
            )  # fmt: skip
        return True

    def _hide(self, queue: DeclaredQueue, why: str, got: int, needed: str) -> None:
        """Let nobody use a queue any more that cannot go yet."""
        self._hidden[queue.partition] = why, got
        self._fold.hidden.add(queue.name)
        self.takes.queue_over(queue)
        self.log.info(
            "queue {queue!r} is over: {why}; it is hidden, and goes later: {needed}",
            queue=queue.name, why=why, needed=needed,
        )  # fmt: skip

    def purge(self, session: Session, command: PurgeQueue, data: memoryview) -> None:  # noqa: ARG002
        """Finish what could be got now."""
        state = self._deliveries.of(self._queue_of(command.name, session))
        self._stepwise.answer(session, command, self._purge(command, state))

    def _purge(self, command: PurgeQueue, whole: QueueDeliveries) -> Steps:
        # Who sends a message and purges must not find it afterwards; who purges and sends one must.
        ends = [(state, state.store.end_offset) for state in whole.levels]
        yield Until.FORCED
        count = 0
        for state, until in ends:
            count += yield from self._purge_level(state, until)
        return encode(Counted(command.correlation, count))

    def _purge_level(self, state: LevelDeliveries, until: int) -> Generator[Work | Until | None, Any, int]:
        count = 0
        while True:
            while self._engine.busy:
                yield Until.IDLE
            run = state.ready_run(self._engine.now())
            is_gone = state.store.number not in self._fold.by_partition
            if is_gone or run is None or run[0] >= until:
                if count and not is_gone:
                    self.takes.removals.taken(state)  # what is first now may expire earlier
                return count
            end = min(run[1], until, run[0] + _PURGED_AT_ONCE)
            self._settler.finish(state, range_of(run[0], end))
            count += end - run[0]
            yield None

    def declare_exchange(
        self,
        session: Session,
        command: DeclareExchange,
        data: memoryview,  # noqa: ARG002
    ) -> ExchangeDeclared:
        """Have an exchange, or ask whether it is there."""
        if command.passive:
            found = self.declarations.exchange(command.name)
        else:
            if command.name not in self._fold.exchanges and self._engine.full:
                raise disk_full()
            found = self.declarations.declare_exchange(command.name, command.settings, session.as_actor())
        return ExchangeDeclared(command.correlation, found.number)

    def delete_exchange(self, session: Session, command: DeleteExchange, data: memoryview) -> Done:  # noqa: ARG002
        """Delete an exchange."""
        exchange = self.declarations.exchange(command.name)
        if exchange.number != command.number:
            raise UnknownExchange(
                f"the exchange {command.name!r} that was meant has been deleted, and another one of that name was made;"
                " nothing has changed. Look what it is bound to before you delete it"
            )
        if command.if_unused and exchange.bindings:
            count = count_text(len(exchange.bindings), "binding")
            raise QueueInUse(f"exchange {command.name!r} has {count}; nothing has changed")
        self.declarations.delete_exchange(command.name, session.as_actor())
        self._end_ownerless()
        return Done(command.correlation)

    def bind(self, session: Session, command: Bind, data: memoryview) -> Done:  # noqa: ARG002
        """Have a binding."""
        if self._engine.full:
            raise disk_full()
        self._check_bound(command.binding, session)
        self.declarations.bind(command.binding, session.as_actor())
        return Done(command.correlation)

    def unbind(self, session: Session, command: Unbind, data: memoryview) -> Done:  # noqa: ARG002
        """Have no such binding."""
        self._check_bound(command.binding, session)
        self.declarations.unbind(command.binding, session.as_actor())
        return Done(command.correlation)

    def _check_bound(self, binding: Binding, session: Session) -> None:
        queue = None if binding.to_exchange else self.declarations.known_queue(binding.destination)
        if queue is not None:
            self.check_owner(queue, session)

    # -- figures --------------------------------------------------------------------------------------

    def gauges(self) -> dict[str, int | float | str]:
        """Return the figures of all queues together."""
        states = [each for each in self._deliveries.all() if not each.queue.has_waiting]
        return {
            "queues": len(self.listing.names()),
            "exchanges": len(self._fold.exchanges),
            "queue_messages": sum(each.left for each in states),
            "queue_unacknowledged": sum(each.unacknowledged for each in states),
            "queue_consumers": self._consumers.count_all(),
            "queue_unrouted": self.publishing.unrouted,
            "queue_expired": self.takes.removals.expired,
            "queue_dropped": self.takes.removals.dropped,
            "queue_circles": self.circles,
            "queue_dead_letters_refused": self.refused_dead_letters,
            "queue_timed_out": self.timeouts.timed_out,
        }

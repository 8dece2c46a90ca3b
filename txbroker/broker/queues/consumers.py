"""Consumers of queues: which session consumes what, who of them gets messages, and which queues end with them.

All of it is in memory alone: a start knows no consumer (decision 0057).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Final

from journal.folds.queues import DeclaredQueue
from txbroker.broker.sessions.session import Session, unheard
from txbroker.errors import InvalidSetting, LimitExceeded, QueueInUse
from txbroker.queues.deliveries import Deliveries
from txbroker.queues.queue_deliveries import QueueDeliveries
from txbroker.wire.messages import Consume, Done, Request, StopConsuming

if TYPE_CHECKING:
    from journal.engine.engine import Engine

MAX_CONSUMERS: Final = 10_000
"""Most consumers of one session."""


class Consumer:
    """A consumer of a queue: the number of its session, its own number there, and how it consumes."""

    __slots__ = ("exclusive", "has_place", "keeps_place", "number", "partition", "priority", "session")

    def __init__(self, session: int, number: int, partition: int, exclusive: bool, priority: int) -> None:
        self.session, self.number, self.partition = session, number, partition
        self.exclusive, self.priority = exclusive, priority
        self.keeps_place = False
        """Whether it says each time that it was given messages if it takes more: by asking, or that it has enough."""
        self.has_place = False
        """Whether it has not said so yet: those of lower priority get nothing meanwhile."""


class Consumers:
    """The meaning of Consume and StopConsuming, and all consumers."""

    def __init__(self, engine: Engine, deliveries: Deliveries) -> None:
        self._engine, self._deliveries = engine, deliveries
        self._of_session: dict[int, dict[int, Consumer]] = {}
        self._at: dict[int, dict[Consumer, None]] = {}
        """The consumers of each queue, by partition, in the order in which they came."""
        self._active: dict[int, Consumer] = {}
        """Who gets the messages of queues that have one active consumer, by partition."""
        self._left: dict[int, None] = {}
        """Partitions of queues that end with their last consumer, which has ended."""
        self._places: dict[int, Counter[int]] = {}
        """How many consumers of each priority have a place at a queue, by partition."""
        self.check_owner: Callable[[DeclaredQueue, Session], object] = unheard
        """Raises QueueInUse for a queue that is another session's."""
        self.on_stopped: Callable[[Consumer], object] = unheard
        """Called with a consumer that has ended while its session goes on."""
        self.on_active: Callable[[Consumer], object] = unheard
        """Called with a consumer that gets messages from now on, and did not."""
        self.on_left: Callable[[DeclaredQueue], object] = unheard
        """Called with a queue that is to end, because its last consumer has."""
        self.on_place: Callable[[int], object] = unheard
        """Called with the partition of a queue at which a consumer has given up its place."""
        self.handlers: dict[type[Request], Callable[..., Done]] = {
            Consume: self.consume,
            StopConsuming: self.stop_consuming,
        }

    # -- requests ----------------------------------------------------------------------------------

    def consume(self, session: Session, command: Consume, data: memoryview) -> Done:  # noqa: ARG002
        """Make a consumer known."""
        state = self._deliveries.queue(command.partition)
        self.check_owner(state.queue, session)
        self._check_new(session, command)
        self._check_exclusive(state.queue, command.exclusive)
        self._add(
            Consumer(
                session.number, command.consumer, command.partition, command.exclusive, command.priority
            ),
            state,
        )
        return Done(command.correlation)

    def _check_new(self, session: Session, command: Consume) -> None:
        known, number = self._of_session.get(session.number, {}), command.consumer
        if number < 1:
            raise InvalidSetting(f"a consumer of number {number}; it must be 1 or more; nothing has changed")
        if number in known:
            raise InvalidSetting(
                f"this session has a consumer of number {number} already; nothing has changed. Use another number, or "
                "end that one first"
            )
        if len(known) >= MAX_CONSUMERS:
            raise LimitExceeded(
                f"this session has {len(known)} consumers, {MAX_CONSUMERS} are allowed; nothing has changed. End one"
            )

    def _check_exclusive(self, queue: DeclaredQueue, exclusive: bool) -> None:
        others = self._at.get(queue.partition, {})
        first = next(iter(others), None)
        if first is not None and first.exclusive:
            raise QueueInUse(
                f"queue {queue.name!r} has an exclusive consumer; nothing has changed. Wait until that has ended"
            )
        if exclusive and others:
            raise QueueInUse(
                f"queue {queue.name!r} has consumers ({len(others)}), so none can be exclusive; nothing has changed. "
                "Wait until they have ended"
            )

    def _add(self, consumer: Consumer, state: QueueDeliveries) -> None:
        self._of_session.setdefault(consumer.session, {})[consumer.number] = consumer
        self._at.setdefault(consumer.partition, {})[consumer] = None
        self._left.pop(consumer.partition, None)
        if state.queue.settings.single_active:
            self._active.setdefault(consumer.partition, consumer)

    def stop_consuming(self, session: Session, command: StopConsuming, data: memoryview) -> Done:  # noqa: ARG002
        """End a consumer, if it is there."""
        consumer = self._find(session, command.consumer)
        if consumer is not None:
            self.on_stopped(consumer)
            self._end([consumer])
        return Done(command.correlation)

    # -- what ends ---------------------------------------------------------------------------------

    def session_ended(self, session: Session) -> None:
        """End all consumers of a session."""
        self._end(list(self._of_session.get(session.number, {}).values()))

    def _end(self, consumers: Iterable[Consumer]) -> None:
        places = dict.fromkeys(each.partition for each in consumers if each.has_place)
        for each in consumers:
            self._forget(each)
            at = self._at[each.partition]
            del at[each]
            if not at:
                del self._at[each.partition]
        for partition in dict.fromkeys(each.partition for each in consumers):
            self._look(partition)
        for partition in places:
            self.on_place(partition)

    def _find(self, session: Session, number: int) -> Consumer | None:
        return self._of_session.get(session.number, {}).get(number)

    def _forget(self, consumer: Consumer) -> None:
        self.gives_up_place(consumer)
        of_session = self._of_session[consumer.session]
        del of_session[consumer.number]
        if not of_session:
            del self._of_session[consumer.session]

    def _look(self, partition: int) -> None:
        """Look who gets the messages of a queue, of whose consumers some have ended, and whether it ends."""
        state, others = self._deliveries.at(partition), self._at.get(partition, {})
        if state is None:
            return
        state.whole.used_at = self._engine.now()
        if partition in self._active and self._active[partition] not in others:
            del self._active[partition]
            if others:
                following = max(others, key=lambda each: each.priority)  # of those the first that came
                self._active[partition] = following
                self.on_active(following)
        if not others and state.queue.settings.auto_delete:
            self._left[partition] = None
            self.on_left(state.queue)

    def forget(self, partition: int) -> None:
        """Forget the consumers of a queue that was deleted."""
        for each in self._at.pop(partition, {}):
            self._forget(each)
        self._active.pop(partition, None)
        self._left.pop(partition, None)

    # -- priorities --------------------------------------------------------------------------------

    def keep_place(self, session: Session, number: int) -> None:
        """Let a consumer keep its place: it says after each answer whether it takes more."""
        if (consumer := self._find(session, number)) is not None:
            consumer.keeps_place = True

    def has_enough(self, session: Session, number: int) -> None:
        """Note that a consumer takes no more for now."""
        consumer = self._find(session, number)
        if consumer is not None and consumer.has_place:
            self.gives_up_place(consumer)
            self.on_place(consumer.partition)

    def takes_place(self, consumer: Consumer | None) -> None:
        """Note that a consumer is given messages."""
        if consumer is not None and consumer.keeps_place and not consumer.has_place:
            consumer.has_place = True
            self._places.setdefault(consumer.partition, Counter())[consumer.priority] += 1

    def gives_up_place(self, consumer: Consumer | None) -> None:
        """Note that a consumer asks for messages, or takes no more."""
        if consumer is not None and consumer.has_place:
            consumer.has_place = False
            places = self._places[consumer.partition]
            places[consumer.priority] -= 1
            if not places[consumer.priority]:
                del places[consumer.priority]
            if not places:
                del self._places[consumer.partition]

    def comes_behind(self, consumer: Consumer | None) -> bool:
        """Return whether one of higher priority has a place at its queue. Who takes for no consumer is behind none."""
        if consumer is None or (places := self._places.get(consumer.partition)) is None:
            return False
        return consumer.priority < max(places)

    # -- what others ask ---------------------------------------------------------------------------

    def of(self, session: Session, number: int, partition: int) -> Consumer | None:
        """Return the consumer of a session for which it takes messages of a queue, None for number 0; raises
        InvalidSetting unless the session has it, and it is of that queue.
        """
        if not number:
            return None
        found = self._find(session, number)
        if found is None or found.partition != partition:
            where = "no such consumer" if found is None else f"it consumes partition number {found.partition}"
            raise InvalidSetting(
                f"messages of partition number {partition} for consumer {number}: {where}; nothing was taken. Make it "
                "known first, by Consume"
            )
        return found

    def gets(self, consumer: Consumer | None) -> bool:
        """Return whether messages are given for a consumer now: not if another one of its queue is the active one."""
        return consumer is None or self._active.get(consumer.partition, consumer) is consumer

    def count(self, partition: int) -> int:
        """Return how many consumers a queue has."""
        return len(self._at.get(partition, ()))

    def count_all(self) -> int:
        """Return how many consumers all queues have."""
        return sum(map(len, self._at.values()))

    def count_of(self, session: Session) -> int:
        """Return how many consumers a session has."""
        return len(self._of_session.get(session.number, ()))

    def has_left(self, partition: int) -> bool:
        """Return whether a queue is to end, because its last consumer has ended."""
        return partition in self._left

"""The deliveries of all queues."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from journal.folds.group import unread_of
from journal.folds.groups import GroupsFold
from journal.folds.queues import DeclaredQueue, QueuesFold
from journal.log.compaction import Unread
from journal.log.message_store import MessageStore
from journal.records.queue_entries import QUEUE_GROUP
from txbroker.errors import UnknownQueue
from txbroker.queues.level import ROLLED_BACK
from txbroker.queues.queue_deliveries import LevelDeliveries, QueueDeliveries

if TYPE_CHECKING:
    from journal.engine.engine import Engine


class Deliveries:
    """The deliveries of all queues. ``on_ready`` is called with those priorities of a queue of which a message may be
    ready that was not.
    """

    def __init__(self, engine: Engine, fold: QueuesFold, groups: GroupsFold) -> None:
        self._engine, self._fold, self._groups = engine, fold, groups
        self._queues: dict[int, LevelDeliveries] = {}
        self._changed: dict[int, None] = {}
        self._settled: set[int] = set()
        """Partitions of queues in which something may have been finished since :meth:`finished_since` was called."""
        self.on_ready: Callable[..., object] = _nothing
        self.on_timed: Callable[[LevelDeliveries], object] = _nothing
        """Called with a priority of a queue of which deliveries are late at a later time than those before."""
        self.on_released: Callable[[], object] = _nothing
        groups.on_queues = self.changed
        for queue in fold.queues.values():
            self._enter(queue, is_new=False)

    def of(self, queue: DeclaredQueue) -> QueueDeliveries:
        """Return the deliveries of a queue."""
        found = self._queues.get(queue.partition)
        return self._enter(queue) if found is None else found.whole

    def _enter(self, queue: DeclaredQueue, *, is_new: bool = True) -> QueueDeliveries:
        levels, now, prepared_for = [], self._engine.now(), self._engine.transactions.holds_partition
        for number in queue.partitions:
            store = self._engine.catalog.stores[number]
            found = LevelDeliveries(queue, store, self._groups, 0 if is_new else store.end_offset, now)
            found.on_timed = self._timed
            # What undecided transactions will bring was looked at before this start.
            found.has_expiring = not is_new and prepared_for(number) is not None
            levels.append(found)
        self._queues.update({each.store.number: each for each in levels})
        self._settled.update(queue.partitions)
        return QueueDeliveries(queue, levels[::-1], now)

    def _timed(self, state: LevelDeliveries) -> None:
        self.on_timed(state)

    def at(self, partition: int) -> LevelDeliveries | None:
        """Return the deliveries in that partition; None if it is no queue's."""
        found = self._queues.get(partition)
        if found is not None:
            return found
        queue = self._fold.by_partition.get(partition)
        if queue is None:
            return None
        self._enter(queue)
        return self._queues[partition]

    def queue(self, partition: int) -> QueueDeliveries:
        """Return the deliveries of the queue that a request names by its first partition; raises UnknownQueue."""
        found = self.at(partition)
        if found is None:
            raise UnknownQueue(
                f"partition number {partition} is no queue's; nothing has changed. The queue may have been deleted: "
                "ask for it again by its name"
            )
        if found.queue.partition != partition:
            raise UnknownQueue(
                f"partition number {partition} is a priority of queue {found.queue.name!r}, whose number is "
                f"{found.queue.partition}; nothing has changed. Name that"
            )
        return found.whole

    def changed(self, partitions: Iterable[int], session: int) -> None:
        """Note that a record has changed what is finished or held in these partitions of queues: one of a transaction
        of that session, or (0) another one, of which :meth:`LevelDeliveries.let_go` is told by who has made it.

        It is still being applied: what it releases is ready once it is forced.
        """
        for number in partitions:
            self._settled.add(number)
            if (found := self._queues.get(number)) is not None:
                found.let_go(session)
                if not self._changed:
                    self._engine.when_forced(self._look_again, None)
                self._changed[number] = None

    def _look_again(self, _: object) -> None:
        changed, self._changed = self._changed, {}
        queues: dict[int, list[LevelDeliveries]] = {}
        released = False
        for number in changed:
            if (found := self._queues.get(number)) is not None:
                found.look_again()
                if found.store.is_transient:
                    before = found.store.unflushed_bytes
                    found.store.move_start(found.position)
                    released = released or found.store.unflushed_bytes < before
                queues.setdefault(found.queue.partition, []).append(found)
        for levels in queues.values():
            self.on_ready(*levels)
            if any(ROLLED_BACK in each.delivered for each in levels):
                self.on_released()
        if released:
            self._engine.on_idle()  # memory is there without a flush

    def finished_since(self) -> list[LevelDeliveries]:
        """Return the queues in which something may have been finished since this was called last."""
        settled, self._settled = self._settled, set()
        return [found for number in settled if (found := self._queues.get(number)) is not None]

    def unread(self, store: MessageStore) -> Unread | None:
        """Return what of a queue's log nobody will read any more: what is finished. None for other logs."""
        if store.is_transient or store.number not in self._fold.by_partition:
            return None
        return unread_of(self._groups.find(QUEUE_GROUP), store.number)

    def forget(self, queue: DeclaredQueue) -> None:
        """Forget a queue that was deleted."""
        for number in queue.partitions:
            self._queues.pop(number, None)

    def held_by(self, holder: int) -> list[LevelDeliveries]:
        """Return the queues of which a holder has messages."""
        return [each for each in self._queues.values() if holder in each.delivered]

    def all(self) -> Iterable[LevelDeliveries]:
        """Return those of all queues that were asked for since the start."""
        return self._queues.values()


def _nothing(*_: object) -> None:
    """Tell nobody."""

"""The fold of queues: their names and settings, the exchanges, and the bindings between them (decision 0055).

What is in a queue is in its log, what its consumers have acknowledged in the fold of groups.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from typing import Any, Final

import msgspec
from zope.interface import implementer

from journal.errors import InvalidFrame
from journal.folds.bindings import BindingTable, Destination, Identity, identity_of
from journal.formats.checkpoint_rows import Count, Fact, RowReader
from journal.interfaces import IFold
from journal.records.queue_entries import (
    DEFAULT_EXCHANGE,
    PREDECLARED,
    QUEUE_TOPIC_PREFIX,
    WAITING_QUEUE_PREFIX,
    Binding,
    ExchangeKind,
    ExchangeSettings,
    Name,
    Overflow,
    QueueSettings,
    exchange_of,
    is_waiting_queue,
    waiting_queue_of,
)
from journal.records.record import (
    Bound,
    ExchangeDeclared,
    ExchangeDeleted,
    Published,
    TopicCreated,
    TopicDeleted,
    Unbound,
)
from journal.records.transient import is_transient, is_volatile

NODE: Final = 4
"""What a further exchange on the way of a message costs: as much as so many bindings that are looked at."""


class Exchange:
    """An exchange. ``taken`` is how many messages went through it."""

    __slots__ = ("bindings", "name", "number", "settings", "taken")

    def __init__(self, name: str, number: int, settings: ExchangeSettings, taken: int = 0) -> None:
        self.name, self.number, self.settings, self.taken = name, number, settings, taken
        self.bindings = BindingTable(settings.kind)

    @property
    def has_no_bindings(self) -> bool:
        """Whether it sends each message to the queue that its name and the message's key name together."""
        return self.number == DEFAULT_EXCHANGE or self.settings.kind is ExchangeKind.DEFAULT


class DeclaredQueue(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """A queue: its name, its topic with the number of its first partition, and how it was declared. It is also its row
    in a checkpoint.

    Each priority has a partition, from priority 0 on.
    """

    name: Name
    topic: str
    partition: Count
    settings: QueueSettings

    @property
    def partitions(self) -> range:
        """The numbers of its partitions, in the order of their priorities."""
        return range(self.partition, self.partition + self.settings.max_priority + 1)

    @property
    def has_waiting(self) -> bool:
        """Whether it has what is to wait at an exchange, and is nobody's to see."""
        return is_waiting_queue(self.name)

    def level(self, priority: int) -> int:
        """Return the partition that messages of a priority are in; a higher one than the queue has is its highest."""
        return self.partition + min(priority, self.settings.max_priority)


class HeadRow(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """The first row of a checkpoint: the number of the next exchange, how many exchanges there are, how many queues."""

    next_exchange: Count
    exchanges: Count
    queues: Count


class ExchangeRow(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """An :class:`Exchange` in a checkpoint; bindings come behind the queues, those of each in their order."""

    name: Name
    number: Count
    settings: ExchangeSettings
    taken: Count


@implementer(IFold)
class QueuesFold:
    """All queues, exchanges and bindings."""

    name = "queues"
    handles: tuple[type, ...] = (
        TopicCreated,
        TopicDeleted,
        ExchangeDeclared,
        ExchangeDeleted,
        Bound,
        Unbound,
        Published,
    )

    def __init__(self) -> None:
        self.exchanges: dict[str, Exchange] = {}
        self.exchanges_by_number: dict[int, Exchange] = {}
        self.queues: dict[str, DeclaredQueue] = {}
        self.by_partition: dict[int, DeclaredQueue] = {}
        self.next_exchange = len(PREDECLARED) + 1
        self._topics: dict[str, str] = {}
        """The queue of each topic that is a queue's."""
        self._leading_to: dict[Destination, dict[tuple[str, Identity], Binding]] = {}
        self.steps = 0
        """How many bindings and nodes of patterns were looked at by :meth:`route`, about."""
        self.bindings = 0
        """How many bindings there are."""
        self.refusing = 0
        """How many queues refuse what would be too much for them."""
        self.delayed: dict[int, Exchange] = {}
        """The exchanges that let messages wait, by number."""
        self.ownerless: dict[str, None] = {}
        """The queues of what is to wait whose exchange is not there (yet, or any more), by name."""
        self.hidden: set[str] = set()
        """Queues that are over, and go once no undecided transaction needs them: nothing is routed to them any more.
        Known to the broker's process alone; in no checkpoint.
        """
        for number, (name, kind) in enumerate(PREDECLARED.items(), 1):
            self._enter(Exchange(name, number, ExchangeSettings(kind)))

    # -- routing -----------------------------------------------------------------------------------

    def route(
        self, exchange: Exchange, key: str, headers: Mapping[str, object], waits: bool = False
    ) -> list[int]:
        """Return the first partitions of the queues that a message with that routing key and these headers goes to,
        each once, in an order that depends on the bindings alone. One that ``waits`` goes no further than to the queue
        of those that wait, at each delayed exchange that it comes to.
        """
        found: dict[int, None] = {}
        seen, waiting = {exchange.number}, [exchange]
        for each in waiting:
            if waits and each.settings.delayed:
                found[self.queues[waiting_queue_of(each.number)].partition] = None
                continue
            before = each.bindings.looked_at
            for to_exchange, name in self._ways(each, key, headers):
                if not to_exchange:
                    found[self.queues[name].partition] = None
                elif (following := self.exchanges[name]).number not in seen:
                    seen.add(following.number)
                    waiting.append(following)
            self.steps += (1 if each is exchange else NODE) + each.bindings.looked_at - before
        return list(found)

    def _ways(self, exchange: Exchange, key: str, headers: Mapping[str, object]) -> Collection[Destination]:
        """Return where an exchange sends such a message; if nowhere, its alternate exchange, if there is one."""
        if exchange.has_no_bindings:
            name = exchange.name + key
            is_there = name in self.queues and not (is_waiting_queue(name) or name in self.hidden)
            return [(False, name)] if is_there else []
        found = exchange.bindings.destinations(key, headers)
        if self.hidden:
            found = [each for each in found if each[0] or each[1] not in self.hidden]
        alternate = exchange.settings.alternate
        return [(True, alternate)] if not found and alternate in self.exchanges else found

    def waiting_queue(self, exchange: Exchange) -> DeclaredQueue | None:
        """Return the queue of what is to wait at a delayed exchange; None for others."""
        return self.queues[waiting_queue_of(exchange.number)] if exchange.settings.delayed else None

    def waited_at(self, queue: DeclaredQueue) -> Exchange | None:
        """Return the exchange whose messages wait in a queue; None if there is none."""
        if not is_waiting_queue(queue.name):
            return None
        return self.exchanges_by_number.get(int(queue.name.removeprefix(WAITING_QUEUE_PREFIX)))

    def leading_to(self, destination: Destination) -> list[Binding]:
        """Return the bindings to a queue (False and its name) or to an exchange (True and its name)."""
        return list(self._leading_to.get(destination, {}).values())

    # -- the fold ----------------------------------------------------------------------------------

    def apply(self, lsn: int, record: Any, data: bytes | memoryview) -> None:  # noqa: ARG002
        """Apply one record to the state; asserts that the record continues it. What is in no journal is not counted."""
        kind = type(record)
        if kind is Published:
            exchange = self.exchanges_by_number[exchange_of(record.address)]
            assert record.base == exchange.taken, (
                f"it publishes message {record.base} of exchange {exchange.name!r}, {exchange.taken} is the next"
            )
            exchange.taken += 0 if record.ids or is_volatile(record, len(data)) else record.count
            return
        if kind is TopicCreated:
            if record.queue is None:
                assert not record.topic.startswith(QUEUE_TOPIC_PREFIX), (
                    f"topic {record.topic!r} is a queue's by its name, and there is no queue for it"
                )
                return
            name, settings = record.queue.name, record.queue.settings
            assert record.partitions == settings.max_priority + 1, (
                f"queue {name!r} has {record.partitions} partitions, and priorities up to {settings.max_priority}"
            )
            self._declare(DeclaredQueue(name, record.topic, record.first_partition, settings))
        elif kind is TopicDeleted:
            if record.topic not in self._topics:
                return
            self._delete(self._topics.pop(record.topic))
        elif kind is ExchangeDeclared:
            self._declare_exchange(record)
        elif kind is ExchangeDeleted:
            self._delete_exchange(record)
        elif kind is Bound:
            self._bind(record.binding)
        else:
            self._unbind(record.binding)

    def _declare(self, queue: DeclaredQueue) -> None:
        assert queue.name not in self.queues, f"queue {queue.name!r} was declared twice"
        assert queue.topic == f"{QUEUE_TOPIC_PREFIX}{queue.partition}", (
            f"queue {queue.name!r} has topic {queue.topic!r}, and partition number {queue.partition}"
        )
        assert queue.topic not in self._topics, f"topic {queue.topic!r} is of two queues"
        shared = self.by_partition.keys() & queue.partitions
        assert not shared, f"partition number {min(shared)} is of queue {queue.name!r}, and of another one"
        self.queues[queue.name] = queue
        self.by_partition.update(dict.fromkeys(queue.partitions, queue))
        self.refusing += queue.settings.overflow is Overflow.REJECT_PUBLISH
        self._topics[queue.topic] = queue.name
        if queue.has_waiting and self.waited_at(queue) is None:
            self.ownerless[queue.name] = None

    def _delete(self, name: str) -> None:
        queue = self.queues.pop(name)
        exchange = self.waited_at(queue)
        assert exchange is None, (
            f"queue {name!r} has what waits at exchange {exchange.name!r}, which is there"
        )
        self.refusing -= queue.settings.overflow is Overflow.REJECT_PUBLISH
        for number in queue.partitions:
            del self.by_partition[number]
        self.ownerless.pop(name, None)
        self.hidden.discard(name)
        self._forget_destination((False, name))

    def _declare_exchange(self, record: ExchangeDeclared) -> None:
        assert record.exchange not in self.exchanges, f"exchange {record.exchange!r} was declared twice"
        assert record.number >= self.next_exchange, f"exchange number {record.number} was given a second time"
        assert not record.settings.delayed or waiting_queue_of(record.number) in self.queues, (
            f"exchange {record.exchange!r} lets messages wait, and has no queue for them"
        )
        self._enter(Exchange(record.exchange, record.number, record.settings))
        self.ownerless.pop(waiting_queue_of(record.number), None)
        self.next_exchange = record.number + 1

    def _enter(self, exchange: Exchange) -> None:
        self.exchanges[exchange.name] = self.exchanges_by_number[exchange.number] = exchange
        if exchange.settings.delayed:
            self.delayed[exchange.number] = exchange

    def _delete_exchange(self, record: ExchangeDeleted) -> None:
        assert record.exchange not in PREDECLARED, f"exchange {record.exchange!r} is always there"
        exchange = self.exchanges.pop(record.exchange)
        assert exchange.number == record.number, (
            f"exchange {record.exchange!r} has number {exchange.number}, it deletes {record.number}"
        )
        del self.exchanges_by_number[exchange.number]
        if exchange.settings.delayed:
            del self.delayed[exchange.number]
            self.ownerless[waiting_queue_of(exchange.number)] = None
        for binding in exchange.bindings:
            self._forget_way(binding)
            self.bindings -= 1
        self._forget_destination((True, record.exchange))

    def _forget_destination(self, destination: Destination) -> None:
        for binding in self._leading_to.pop(destination, {}).values():
            if (source := self.exchanges.get(binding.exchange)) is not None:
                source.bindings.remove(binding)
                self.bindings -= 1

    def _bind(self, binding: Binding) -> None:
        known: Mapping[str, object] = self.exchanges if binding.to_exchange else self.queues
        assert binding.destination in known, f"it binds {binding.destination!r}, which is not there"
        source = self.exchanges[binding.exchange]
        source.bindings.add(binding)
        self.bindings += 1
        ways = self._leading_to.setdefault((binding.to_exchange, binding.destination), {})
        ways[binding.exchange, identity_of(binding)] = binding

    def _unbind(self, binding: Binding) -> None:
        source = self.exchanges[binding.exchange]
        source.bindings.remove(binding)
        self.bindings -= 1
        self._forget_way(binding)

    def _forget_way(self, binding: Binding) -> None:
        destination = binding.to_exchange, binding.destination
        ways = self._leading_to[destination]
        del ways[binding.exchange, identity_of(binding)]
        if not ways:
            del self._leading_to[destination]

    @property
    def _is_pristine(self) -> bool:
        """Whether nothing of it has ever been used."""
        used = any(each.taken or any(self._durable_bindings(each)) for each in self.exchanges.values())
        return self.next_exchange == len(PREDECLARED) + 1 and not self._durable_queues() and not used

    def _durable_queues(self) -> list[DeclaredQueue]:
        return [each for each in self.queues.values() if not is_transient(each.partition)]

    def _durable_bindings(self, exchange: Exchange) -> Iterator[Binding]:
        for each in exchange.bindings:
            if each.to_exchange or not is_transient(self.queues[each.destination].partition):
                yield each

    # -- checkpoints -------------------------------------------------------------------------------

    def snapshot(self) -> Iterator[Any]:
        """Return the counts, then exchanges, queues and bindings, at once; nothing if all is as in an empty
        directory. Transient queues are not there.
        """
        exchanges, queues = self.exchanges.values(), self._durable_queues()
        if self._is_pristine:
            return iter(())
        rows: list[Any] = [HeadRow(self.next_exchange, len(self.exchanges), len(queues))]
        rows += [ExchangeRow(each.name, each.number, each.settings, each.taken) for each in exchanges]
        rows += queues
        for each in exchanges:
            rows += self._durable_bindings(each)
        return iter(rows)

    @staticmethod
    def read(rows: RowReader) -> None:
        """Read the rows of a checkpoint; each must be possible after those before it."""
        if rows.left:
            fold = QueuesFold()
            head = rows.take(HeadRow, _possible(fold._restore_head))
            for _ in range(head.exchanges):
                rows.take(ExchangeRow, _possible(fold._restore_exchange))
            for _ in range(head.queues):
                rows.take(DeclaredQueue, _possible(fold._declare))
            while rows.left:
                rows.take(Binding, _possible(fold._bind))

    def restore(self, rows: Iterable[Any]) -> None:
        """Replace the state by the rows of a :meth:`snapshot`."""
        found = list(rows)
        self.__init__()  # type: ignore[misc]
        if not found:
            return
        head, *found = found
        self._restore_head(head)
        for row in found[: head.exchanges]:
            self._restore_exchange(row)
        bindings = head.exchanges + head.queues
        for row in found[head.exchanges : bindings]:
            self._declare(row)
        for row in found[bindings:]:
            self._bind(row)

    def _restore_head(self, row: HeadRow) -> None:
        assert row.next_exchange > len(PREDECLARED) <= row.exchanges, (
            f"there are {len(PREDECLARED)} exchanges from the start on, it has {row.exchanges}"
        )
        self.next_exchange, self.exchanges, self.exchanges_by_number = row.next_exchange, {}, {}
        self.delayed = {}

    def _restore_exchange(self, row: ExchangeRow) -> None:
        number = len(self.exchanges)
        if number < len(PREDECLARED):
            wanted = list(PREDECLARED)[number]
            assert (row.name, row.number) == (wanted, number + 1), (
                f"exchange number {number + 1} is always {wanted!r}, it has {row.name!r} with number {row.number}"
            )
        assert row.name not in self.exchanges, f"exchange {row.name!r} is there twice"
        assert row.number not in self.exchanges_by_number, f"exchange number {row.number} is there twice"
        assert row.number < self.next_exchange, (
            f"exchange {row.name!r} has number {row.number}, the next one gets {self.next_exchange}"
        )
        self._enter(Exchange(row.name, row.number, row.settings, row.taken))

    def facts(self) -> Iterator[tuple[Fact, object]]:
        """Yield each exchange, queue and binding."""
        yield Fact("the number of the next exchange"), self.next_exchange
        for each in self.exchanges.values():
            told = (each.number, each.settings, each.taken)
            yield Fact(f"exchange {each.name!r} (number, settings, messages taken)"), told
            for place, binding in enumerate(each.bindings):
                yield Fact(f"binding {place} of exchange {each.name!r}"), binding
        for queue in self.queues.values():
            told_queue = (queue.topic, queue.partition, queue.settings)
            yield Fact(f"queue {queue.name!r} (topic, partition, settings)", queue.partition), told_queue


def _possible(apply: Callable[[Any], None]) -> Callable[[Any], None]:
    """Return a check that raises :class:`InvalidFrame` for a row that cannot come next."""

    def check(row: Any) -> None:
        try:
            apply(row)
        except (AssertionError, LookupError) as error:
            raise InvalidFrame(
                f"there is no {error}" if isinstance(error, LookupError) else str(error)
            ) from error

    return check

"""Declarations of queues, exchanges and bindings, and their ends."""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

import msgspec

from journal.constants import MIB
from journal.folds.bindings import ANY_WORDS, MATCH_ARGUMENT
from journal.folds.groups import GroupsFold
from journal.folds.queues import DeclaredQueue, Exchange, QueuesFold
from journal.parties import Actor
from journal.random_id import ID_BYTES
from journal.records.queue_entries import (
    MAX_NAME_BYTES,
    PREDECLARED,
    QUEUE_GROUP,
    QUEUE_TOPIC_PREFIX,
    Binding,
    Choice,
    DeadLetterStrategy,
    ExchangeKind,
    ExchangeSettings,
    Overflow,
    Queue,
    QueueSettings,
    waiting_queue_of,
)
from journal.records.record import (
    Bound,
    ExchangeDeclared,
    ExchangeDeleted,
    TopicCreated,
    TopicDeleted,
    Unbound,
)
from journal.records.transient import NUMBERS_OF_START, first_number
from journal.settings import MAX_INTERVAL, RANGES, TopicSettings
from txbroker.errors import (
    DeclaredOtherwise,
    InvalidName,
    InvalidSetting,
    LimitExceeded,
    QueueInUse,
    UnknownExchange,
    UnknownQueue,
)
from txbroker.queues import kept_arguments

if TYPE_CHECKING:
    from journal.engine.engine import Engine

RESERVED_PREFIX: Final = "amq."
"""No client makes a queue or an exchange whose name begins so."""
ENDED_AT_ONCE: Final = 50
"""Most exchanges that are deleted in one turn because their last binding is gone."""
GENERATED: Final = re.compile(r"amq\.gen-[\w-]{22}", re.ASCII)
"""But for queues that get a name of 16 random bytes, because nobody has to know it beforehand."""
MAX_BINDINGS: Final = 100_000
"""Most bindings in all."""
MAX_ANY_WORDS: Final = 8
"""Most ``#`` of a pattern: each makes a message look at more of it for each of its words."""
MATCHES: Final = (b"all", b"any", b"all-with-x", b"any-with-x")
"""What ``x-match`` may be."""
_LOG: Final = TopicSettings(segment_bytes=16 * MIB)
"""Of a queue's log. What goes of it, by whole segments, is decided by what was acknowledged."""
_TRANSIENT_LOG: Final = TopicSettings(RANGES["force_messages"][1], MAX_INTERVAL, 16 * MIB)
"""Of a transient queue's log, which is in memory until that is short."""


class Declarations:
    """Makes and ends queues, exchanges and bindings. ``max_queues`` bounds the first two, each for itself."""

    def __init__(
        self,
        engine: Engine,
        fold: QueuesFold,
        groups: GroupsFold,
        max_queues: int,
        random: Callable[[int], bytes],
    ) -> None:
        self._engine, self._groups = engine, groups
        self.fold = self._fold = fold
        self._max_queues = max_queues
        self._random = random
        self._gone: deque[Binding] = deque()
        """Bindings that are gone, whose exchange may have to go, too."""

    # -- what there is -----------------------------------------------------------------------------

    def queue(self, name: str) -> DeclaredQueue:
        """Return a queue; raises :class:`UnknownQueue`."""
        found = self.known_queue(name)
        if found is None:
            raise UnknownQueue(f"there is no queue {name!r}; nothing has changed. Declare it first")
        return found

    def exchange(self, name: str) -> Exchange:
        """Return an exchange; raises :class:`UnknownExchange`."""
        found = self._fold.exchanges.get(name)
        if found is None:
            raise UnknownExchange(f"there is no exchange {name!r}; nothing has changed. Declare it first")
        return found

    def known_queue(self, name: str) -> DeclaredQueue | None:
        """Return a queue, if it is there, not over, and no exchange's."""
        found = self._fold.queues.get(name)
        return None if found is None or found.has_waiting or name in self._fold.hidden else found

    def known_exchange(self, name: str) -> Exchange | None:
        """Return an exchange, if it is there."""
        return self._fold.exchanges.get(name)

    @property
    def may_refuse(self) -> bool:
        """Whether there is a queue that refuses what would be too much for it."""
        return self._fold.refusing > 0

    # -- queues ------------------------------------------------------------------------------------

    def declare_queue(self, name: str, settings: QueueSettings, by: Actor | None) -> DeclaredQueue:
        """Return a queue of that name, made if there is none.

        Raises InvalidName, LimitExceeded, :class:`DeclaredOtherwise` if there is one with other settings, and
        :class:`QueueInUse` if there was one that an undecided transaction still needs.
        """
        known = self.known_queue(name)
        if known is not None:
            _check_same(f"queue {name!r}", known.settings, settings)
            return known
        if name in self._fold.hidden:
            self._check_over(self._fold.queues[name])
        _check_new_name("queue", name)
        _check_settings(name, settings)
        self._check_room(settings)
        self._make_queue(name, settings, by)
        return self._fold.queues[name]

    def _check_room(self, settings: QueueSettings) -> None:
        there, levels = len(self._fold.by_partition), settings.max_priority + 1
        if there + levels > self._max_queues:
            raise LimitExceeded(
                f"there are {len(self._fold.queues)} queues, which count as {there}, each priority as one, and this "
                f"one as {levels}; the limit is {self._max_queues} (max_queues); nothing has changed. Delete one"
            )

    def _make_queue(self, name: str, settings: QueueSettings, by: Actor | None) -> None:
        catalog, levels, log = self._engine.catalog, settings.max_priority + 1, _LOG
        number = catalog.next_partition
        if settings.is_transient:
            number, log = self._next_transient(levels), _TRANSIENT_LOG
            catalog.transient.add(name)
        topic = f"{QUEUE_TOPIC_PREFIX}{number}"
        made = Queue(name, settings)
        self._engine.accept(
            TopicCreated(topic, number, levels, log, self._engine.now(), self._random(ID_BYTES), by, made)
        )

    def _next_transient(self, levels: int) -> int:
        engine = self._engine
        number = engine.catalog.next_transient
        if number + levels > first_number(engine.start_number + 1):
            raise LimitExceeded(
                f"{NUMBERS_OF_START} transient queues were declared since the broker's start, as many as there may be; "
                "nothing has changed. Start the broker again"
            )
        return number

    def delete_queue(self, queue: DeclaredQueue, by: Actor | None) -> int:
        """Delete a queue with its messages; return how many could be got or were not acknowledged.

        Raises :class:`QueueInUse` while an undecided transaction needs it.
        """
        group, left = self._groups.find(QUEUE_GROUP), 0
        for number in queue.partitions:
            self._check_free(f"queue {queue.name!r}", number)
            position, kept = group.position(number) or 0, group.settlements.get(number)
            left += self._engine.catalog.stores[number].end_offset - position
            left -= len(kept.finished) if kept is not None else 0
        self._gone += self._fold.leading_to((False, queue.name))
        self._engine.accept(TopicDeleted(queue.topic, self._engine.now(), by))
        self._engine.catalog.transient.discard(queue.name)
        self.end_unbound(by)
        return left

    def _check_free(self, which: str, number: int) -> None:
        if needs := self._needs(number):
            raise QueueInUse(
                f"{needs}: {which} cannot be deleted; nothing has changed. Commit it or roll it back first"
            )

    def _check_over(self, queue: DeclaredQueue) -> None:
        """Raise QueueInUse for a queue that is over: its name is not free before it has gone."""
        needs = next((needs for each in queue.partitions if (needs := self._needs(each))), "")
        wait = f"{needs}. Commit it or roll it back" if needs else "it goes within a second. Wait for that"
        raise QueueInUse(
            f"there was a queue {queue.name!r}, which is over and has not gone yet; nothing has changed: {wait}, or "
            "use another name"
        )

    def _needs(self, number: int) -> str:
        """Return which undecided transaction needs a partition of a queue, and for what; nothing if none does."""
        transactions = self._engine.transactions
        holder = transactions.holds_partition(number)
        what = "has messages for it"
        if holder is None:
            holder = self._groups.holder(QUEUE_GROUP, number)
            what = "has acknowledged messages of it"
        if holder is None:
            return ""
        xid = transactions.live[holder].xid
        named = f"{holder} (xid {xid})" if xid is not None else str(holder)
        return f"the undecided transaction {named} {what}"

    # -- exchanges ---------------------------------------------------------------------------------

    def declare_exchange(self, name: str, settings: ExchangeSettings, by: Actor | None) -> Exchange:
        """Return an exchange of that name, made if there is none; raises as :meth:`declare_queue`.

        Of a delayed one the queue of what is to wait is made before it. If the broker dies in between, the next start
        deletes that.
        """
        known = self._fold.exchanges.get(name)
        if known is not None:
            _check_same(f"exchange {name!r}", known.settings, settings)
            return known
        _check_new_name("exchange", name)
        if len(self._fold.exchanges) - len(PREDECLARED) >= self._max_queues:
            raise LimitExceeded(
                f"there are {len(self._fold.exchanges)} exchanges, the limit is {self._max_queues} (max_queues); "
                "nothing has changed. Delete one"
            )
        number = self._fold.next_exchange
        if settings.delayed:
            self._check_room(QueueSettings())
            self._make_queue(waiting_queue_of(number), QueueSettings(), None)
        self._engine.accept(ExchangeDeclared(name, number, settings, self._engine.now(), by))
        return self._fold.exchanges[name]

    def delete_exchange(self, name: str, by: Actor | None) -> None:
        """Delete an exchange and its bindings. Raises :class:`UnknownExchange`, InvalidSetting for one that is always
        there, and :class:`QueueInUse` if messages of an undecided transaction are to wait at it.

        The queue of what is to wait stays, and is to be deleted then: it is among the ``ownerless`` ones of the fold.
        """
        exchange = self.exchange(name)
        if name in PREDECLARED or exchange.has_no_bindings:
            raise InvalidSetting(f"exchange {name!r} is always there; nothing has changed")
        if exchange.settings.delayed:
            waiting = self._fold.queues[waiting_queue_of(exchange.number)]
            self._check_free(f"exchange {name!r}", waiting.partition)
        self._end_exchange(exchange, by)
        self.end_unbound(by)

    def _end_exchange(self, exchange: Exchange, by: Actor | None) -> None:
        self._gone += self._fold.leading_to((True, exchange.name))
        self._engine.accept(ExchangeDeleted(exchange.name, exchange.number, self._engine.now(), by))

    def end_unbound(self, by: Actor | None = None) -> None:
        """Delete exchanges whose last binding is gone, if they are to go then; the rest of many at the next call."""
        left = ENDED_AT_ONCE
        while self._gone and left:
            source = self._fold.exchanges.get(self._gone.popleft().exchange)
            if source is not None and source.settings.auto_delete and not source.bindings:
                self._end_exchange(source, by)
                left -= 1

    def end_exchanges(self) -> None:
        """Delete all exchanges that are not durable, because the broker has started.

        A durable one that goes with its last binding stays if that was to a transient queue, as RabbitMQ's does:
        nothing tells it from one that was never bound.
        """
        for exchange in list(self._fold.exchanges.values()):
            if not exchange.settings.durable and exchange.name in self._fold.exchanges:
                self._end_exchange(exchange, None)
        self.end_unbound()

    # -- bindings ----------------------------------------------------------------------------------

    def bind(self, binding: Binding, by: Actor | None) -> None:
        """Make a binding, if it is not there. Raises UnknownQueue, UnknownExchange, InvalidName, LimitExceeded."""
        exchange = self._ends(binding)
        if binding in exchange.bindings:
            return
        _check_bytes("routing key", binding.key)
        _check_rule(exchange, binding)
        if self._fold.bindings >= MAX_BINDINGS:
            raise LimitExceeded(
                f"there are {self._fold.bindings} bindings, as many as there may be; nothing has changed"
            )
        self._engine.accept(Bound(binding, self._engine.now(), by))

    def unbind(self, binding: Binding, by: Actor | None) -> None:
        """End a binding, if it is there. Raises UnknownQueue, UnknownExchange."""
        if binding in self._ends(binding).bindings:
            self._engine.accept(Unbound(binding, self._engine.now(), by))
            self._gone.append(binding)
            self.end_unbound(by)

    def _ends(self, binding: Binding) -> Exchange:
        """Return the exchange of a binding; raises unless both ends are there and can be bound."""
        exchange = self.exchange(binding.exchange)
        ends = [exchange]
        if binding.to_exchange:
            ends.append(self.exchange(binding.destination))
        else:
            self.queue(binding.destination)
        if any(each.has_no_bindings for each in ends):
            raise InvalidSetting(
                "the default exchange sends each message to the queue that its routing key names, and has no "
                "bindings; nothing has changed. Use another exchange"
            )
        return exchange


def _check_rule(exchange: Exchange, binding: Binding) -> None:
    """Raise InvalidSetting for a rule that no message could be judged by in a bounded time, or at all."""
    if exchange.settings.kind is ExchangeKind.TOPIC and binding.key.count(ANY_WORDS) > MAX_ANY_WORDS:
        raise InvalidSetting(
            f"the pattern {binding.key!r} has {binding.key.count(ANY_WORDS)} times {ANY_WORDS!r}, {MAX_ANY_WORDS} are "
            "allowed; nothing has changed"
        )
    match = dict(binding.arguments).get(MATCH_ARGUMENT, b"all")
    if exchange.settings.kind is ExchangeKind.HEADERS and match not in MATCHES:
        raise InvalidSetting(
            f"argument {MATCH_ARGUMENT} is {match!r}; it must be one of "
            f"{', '.join(each.decode() for each in MATCHES)}; nothing has changed"
        )
    if [name for name, _ in binding.arguments] != sorted({name for name, _ in binding.arguments}):
        raise InvalidSetting(
            "the arguments of a binding are not sorted, or one comes twice; nothing has changed"
        )


def _check_settings(name: str, settings: QueueSettings) -> None:
    """Raise InvalidSetting for what no queue can be declared with."""
    if settings.expires == 0:
        raise InvalidSetting(
            f"queue {name!r} would be deleted at once (expires is 0); nothing has changed. Give it a time"
        )
    if settings.consumer_timeout == 0:
        raise InvalidSetting(
            f"nobody could acknowledge a message of queue {name!r} in time (consumer_timeout is 0); nothing has "
            "changed. Give it a time"
        )
    is_kept = settings.dead_letter_strategy is DeadLetterStrategy.AT_LEAST_ONCE
    if is_kept and settings.overflow is not Overflow.REJECT_PUBLISH:
        raise InvalidSetting(
            f"queue {name!r} would keep dead letters until there is room for them (dead_letter_strategy is "
            f"{settings.dead_letter_strategy.word!r}), and drop what is too much for itself (overflow is "
            f"{settings.overflow.word!r}), so nothing would bound it; nothing has changed. Declare it with overflow "
            f"{Overflow.REJECT_PUBLISH.word!r}, or with dead_letter_strategy "
            f"{DeadLetterStrategy.AT_MOST_ONCE.word!r}"
        )
    kept_arguments.check(name, settings)
    if settings.dead_letter_key is not None and settings.dead_letter_exchange is None:
        raise InvalidSetting(
            f"queue {name!r} has a key for dead letters ({settings.dead_letter_key!r}) and no exchange for them; "
            "nothing has changed. Name the exchange, too"
        )


def _check_same(what: str, known: msgspec.Struct, given: msgspec.Struct) -> None:
    differs = [
        f"{name} {_said(has)}, not {_said(wants)}"
        for name in known.__struct_fields__
        if name != "arguments" and (has := getattr(known, name)) != (wants := getattr(given, name))
    ]
    if differs:
        raise DeclaredOtherwise(
            f"{what} is there, declared with {', '.join(differs)}; nothing has changed. Declare it as it is, or delete "
            "it first"
        )


def _said(value: object) -> str:
    """Return the value of a setting, as callers say it."""
    return repr(value.word if isinstance(value, Choice) else value)


def _check_new_name(kind: str, name: str) -> None:
    if not name:
        raise InvalidName(f"a {kind} without a name; nothing has changed. Give it one")
    _check_bytes(f"name of the {kind}", name)
    if name.startswith(RESERVED_PREFIX) and not (kind == "queue" and GENERATED.fullmatch(name)):
        raise InvalidName(
            f"the name of {kind} {name!r} begins with {RESERVED_PREFIX!r}, which is kept for the broker's own; nothing "
            "has changed. Use another name"
        )


def _check_bytes(what: str, text: str) -> None:
    try:
        size = len(text.encode())
    except UnicodeEncodeError:
        raise InvalidName(
            f"the {what} {text!r} is no text that UTF-8 can hold; nothing has changed"
        ) from None
    if size > MAX_NAME_BYTES:
        raise InvalidName(f"the {what} takes {size} bytes, {MAX_NAME_BYTES} are allowed; nothing has changed")

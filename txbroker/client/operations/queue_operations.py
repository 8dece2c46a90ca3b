"""The methods of every client's connection about queues, exchanges and bindings, written once for all clients."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Mapping
from typing import Any, Final, TypeVar

from journal.arguments import NOTHING_CHANGED, text, truth, whole, wrong_type
from journal.due_time import After, time_span
from journal.records.queue_entries import (
    MAX_PRIORITY,
    Binding,
    DeadLetterStrategy,
    ExchangeKind,
    ExchangeSettings,
    Overflow,
    QueueSettings,
    Scalar,
)
from txbroker import errors
from txbroker.client.core.client_method import client_method
from txbroker.client.core.core import Core
from txbroker.client.core.promise import Promise
from txbroker.client.core.results import Listed, Message, listed, topic_of_queue
from txbroker.wire import messages as commands
from txbroker.wire.messages import (
    Counted,
    Done,
    ExchangeDeclared,
    ExchangeInfo,
    Exchanges,
    QueueDeclared,
    QueueInfo,
    Queues,
    TakenOver,
)

T = TypeVar("T")
KINDS: Final = {each.word: each for each in ExchangeKind if each is not ExchangeKind.DEFAULT}
OVERFLOWS: Final = {each.word: each for each in Overflow}
STRATEGIES: Final = {each.word: each for each in DeadLetterStrategy}


class QueueOperations:
    """The methods of every client's connection that declare, bind, delete and list."""

    core: Core

    @client_method
    async def declare_queue(
        self,
        name: str,
        *,
        delivery_limit: int | None = None,
        dead_letter_exchange: str | None = None,
        dead_letter_key: str | None = None,
        message_ttl: After | None = None,
        max_length: int | None = None,
        overflow: str = "drop-head",
        expires: After | None = None,
        exclusive: bool = False,
        auto_delete: bool = False,
        durable: bool = True,
        single_active: bool = False,
        max_priority: int = 0,
        max_length_bytes: int | None = None,
        consumer_timeout: After | None = None,
        dead_letter_strategy: str = "at-most-once",
    ) -> None:
        """Have a queue of that name; it is made if there is none. Times are seconds, or a ``timedelta``.

        A message that was returned more than ``delivery_limit`` times, or was there for ``message_ttl``, goes through
        ``dead_letter_exchange`` (None: it is dropped), with ``dead_letter_key`` if that is given. So do the oldest of
        those that are more than ``max_length`` and could be got, or whose bodies have more than ``max_length_bytes``;
        with the ``overflow`` "reject-publish" further ones are refused instead, with QueueFull. After ``expires``
        without any use the queue is deleted. None is without end. An ``exclusive`` queue is for this session alone, and
        is deleted after its end, so also when the connection is lost. One with ``auto_delete`` is deleted with its last
        consumer, one that is not ``durable`` at the broker's next start. With ``single_active`` one consumer gets all
        messages until it ends, then the next one. Messages have priorities up to ``max_priority`` (0 to 255; each takes
        a log). What a consumer has for ``consumer_timeout`` without acknowledging it is taken from it and returned,
        with an attempt counted. A dead letter that a full queue refuses is dropped, or (``dead_letter_strategy``
        "at-least-once", with the ``overflow`` "reject-publish") kept until there is room. Raises DeclaredOtherwise for
        other settings, InvalidName, InvalidSetting, LimitExceeded.
        """
        settings = QueueSettings(
            _maybe(_count, "delivery_limit", delivery_limit),
            _maybe(text, "dead_letter_exchange", dead_letter_exchange),
            _maybe(text, "dead_letter_key", dead_letter_key), _maybe(time_span, "message_ttl", message_ttl),
            _maybe(_count, "max_length", max_length), _one_of("overflow", overflow, OVERFLOWS),
            _maybe(time_span, "expires", expires), truth("exclusive", exclusive, NOTHING_CHANGED),
            truth("auto_delete", auto_delete, NOTHING_CHANGED), truth("durable", durable, NOTHING_CHANGED),
            truth("single_active", single_active, NOTHING_CHANGED),
            whole("max_priority", max_priority, NOTHING_CHANGED, least=0, most=MAX_PRIORITY),
            _maybe(_count, "max_length_bytes", max_length_bytes),
            _maybe(time_span, "consumer_timeout", consumer_timeout),
            _one_of("dead_letter_strategy", dead_letter_strategy, STRATEGIES),
        )  # fmt: skip
        name = text("name", name, NOTHING_CHANGED)
        await self.core.request(commands.DeclareQueue(self.core.correlation(), name, settings), QueueDeclared)

    @client_method
    async def delete_queue(
        self, name: str, partition: int | None = None, *, if_empty: bool = False, if_unused: bool = False
    ) -> int:
        """Delete a queue with its messages; return how many there were.

        ``partition`` is that of the queue to delete, as ``queues()`` returns it; None: the queue that has the name now.
        Raises UnknownQueue, and QueueInUse while an undecided transaction needs it, or if one of the conditions does
        not hold.
        """
        name, core = text("name", name, NOTHING_CHANGED), self.core
        meant = None if partition is None else whole("partition", partition, NOTHING_CHANGED)
        truth("if_empty", if_empty, NOTHING_CHANGED)
        truth("if_unused", if_unused, NOTHING_CHANGED)
        looked = commands.DeclareQueue(core.correlation(), name, passive=True)
        found = await core.request(looked, QueueDeclared)
        if meant is None:
            meant = found.partition
        request = commands.DeleteQueue(core.correlation(), name, meant, if_empty, if_unused)
        call = core.request(request, Counted)
        try:
            return (await call).messages
        except errors.UnknownQueue:
            if call.attempts == 1:
                raise
            return found.ready  # it was deleted, and the answer was lost: what is known of it

    @client_method
    async def purge_queue(self, name: str) -> int:
        """Drop the messages of a queue that could be got now; return how many."""
        request = commands.PurgeQueue(self.core.correlation(), text("name", name, NOTHING_CHANGED))
        return (await self.core.request(request, Counted)).messages

    @client_method
    async def take_over(self, lease: str) -> Message:
        """Take a delivery over from the session that has it, by the lease that came with it; return what acknowledges
        it.

        The message has no value, key or headers: who has the lease has those. It is this session's then: acknowledge
        it, in a transaction or alone; with the end of the connection it is returned to its queue. Raises DeliveryLost
        if it has been acknowledged or returned since, or taken over by others; AccessDenied if the sessions have
        different principals.
        """
        core = self.core
        try:
            shown = bytes.fromhex(text("lease", lease, NOTHING_CHANGED))
        except ValueError:
            raise errors.WrongValue(
                f"lease is {lease[:40]!r}, which is none: it is hexadecimal digits; {NOTHING_CHANGED}"
            ) from None
        found = await core.request(commands.TakeOver(core.correlation(), shown), TakenOver)
        return Message(
            topic_of_queue(found.queue), found.partition, found.offset, 0, None, None,
            attempts=found.attempts, generation=core.session, redelivered=found.attempts > 0,
        )  # fmt: skip

    @client_method
    async def declare_exchange(
        self,
        name: str,
        kind: str = "direct",
        *,
        internal: bool = False,
        auto_delete: bool = False,
        alternate: str | None = None,
        durable: bool = True,
        delayed: bool = False,
    ) -> None:
        """Have an exchange of that name, of a kind: "direct", "fanout", "topic" or "headers".

        An ``internal`` one takes messages from other exchanges alone; one with ``auto_delete`` is deleted with the last
        of its bindings, one that is not ``durable`` at the broker's next start. What it finds no way for goes to the
        exchange ``alternate``. A ``delayed`` one lets a message wait for so many ms as its header ``x-delay`` says, and
        sends it on then, wherever its bindings lead at that time. Raises as :meth:`declare_queue`.
        """
        settings = ExchangeSettings(
            _one_of("kind", kind, KINDS),
            truth("internal", internal, NOTHING_CHANGED),
            truth("auto_delete", auto_delete, NOTHING_CHANGED),
            _maybe(text, "alternate", alternate),
            truth("durable", durable, NOTHING_CHANGED),
            truth("delayed", delayed, NOTHING_CHANGED),
        )
        name = text("name", name, NOTHING_CHANGED)
        request = commands.DeclareExchange(self.core.correlation(), name, settings)
        await self.core.request(request, ExchangeDeclared)

    @client_method
    async def delete_exchange(self, name: str, number: int | None = None, *, if_unused: bool = False) -> None:
        """Delete an exchange with its bindings; what waits at it is dropped. Raises UnknownExchange, QueueInUse if it
        has bindings and is not to, or if messages of an undecided transaction are to wait at it.

        ``number`` is that of the exchange to delete, as ``exchanges()`` returns it; None: the one that has the name
        now.
        """
        name, core = text("name", name, NOTHING_CHANGED), self.core
        meant = None if number is None else whole("number", number, NOTHING_CHANGED)
        truth("if_unused", if_unused, NOTHING_CHANGED)
        if meant is None:
            found = await core.request(commands.ListExchanges(core.correlation(), [name]), Exchanges)
            meant = found.exchanges[0].number
        call = core.request(commands.DeleteExchange(core.correlation(), name, meant, if_unused), Done)
        try:
            await call
        except errors.UnknownExchange:
            if call.attempts == 1:
                raise
        for told in core.on_changed:
            told(f"exchange:{name}", False)
            told(f"exchange?:{name}", False)

    @client_method
    def bind(
        self,
        exchange: str,
        queue: str | None = None,
        key: str = "",
        *,
        to_exchange: str | None = None,
        arguments: Mapping[str, object] | None = None,
    ) -> Coroutine[Promise[Any], None, None]:
        """Have an exchange send messages to a queue, or ``to_exchange``, if their key matches ``key``; or, of a headers
        exchange, if their headers match ``arguments``.

        Raises UnknownQueue, UnknownExchange, InvalidSetting.
        """
        return self._binding(commands.Bind, exchange, queue, key, to_exchange, arguments)

    @client_method
    def unbind(
        self,
        exchange: str,
        queue: str | None = None,
        key: str = "",
        *,
        to_exchange: str | None = None,
        arguments: Mapping[str, object] | None = None,
    ) -> Coroutine[Promise[Any], None, None]:
        """End a binding; none is no error."""
        return self._binding(commands.Unbind, exchange, queue, key, to_exchange, arguments)

    async def _binding(
        self,
        command: Callable[[int, Binding], commands.Bind | commands.Unbind],
        exchange: str,
        queue: str | None,
        key: str,
        to_exchange: str | None,
        arguments: Mapping[str, object] | None,
    ) -> None:
        if (queue is None) == (to_exchange is None):
            raise errors.Misuse(
                f"a binding leads to a queue or to an exchange, to one of them; {NOTHING_CHANGED}. Give queue or "
                "to_exchange"
            )
        destination = text(
            "queue" if to_exchange is None else "to_exchange",
            queue if to_exchange is None else to_exchange,
            NOTHING_CHANGED,
        )
        binding = Binding(
            text("exchange", exchange, NOTHING_CHANGED), text("key", key, NOTHING_CHANGED), destination,
            to_exchange is not None, _arguments(arguments),
        )  # fmt: skip
        await self.core.request(command(self.core.correlation(), binding), Done)

    @client_method
    async def queues(self, name: str | None = None) -> Listed[QueueInfo]:
        """Return the queues with their counts, or the one of that name; raises UnknownQueue for that.

        ``is_filtered`` of the list says whether there may be others, which the client's principal may not describe.
        """
        core, found, after, is_filtered = self.core, list[QueueInfo](), "", False
        names = None if name is None else [text("name", name, NOTHING_CHANGED)]
        while True:
            told = await core.request(commands.ListQueues(core.correlation(), names, after), Queues)
            found += told.queues
            is_filtered = is_filtered or told.is_filtered
            if told.next is None:
                return listed(found, is_filtered)
            after = told.next

    @client_method
    async def exchanges(self, name: str | None = None) -> Listed[ExchangeInfo]:
        """Return the exchanges with their bindings, or the one of that name; raises UnknownExchange for that."""
        core, found, is_filtered = self.core, list[ExchangeInfo](), False
        names = None if name is None else [text("name", name, NOTHING_CHANGED)]
        after: str | None = None
        while True:
            request = commands.ListExchanges(core.correlation(), names, after, bindings=True)
            told = await core.request(request, Exchanges)
            found += told.exchanges
            is_filtered = is_filtered or told.is_filtered
            if told.next is None:
                return listed(found, is_filtered)
            after = told.next


def _one_of(parameter: str, given: str, known: Mapping[str, T]) -> T:
    found = known.get(text(parameter, given, NOTHING_CHANGED))
    if found is None:
        raise errors.WrongValue(
            f"{parameter} is {given!r}; it must be one of {', '.join(known)}; {NOTHING_CHANGED}"
        )
    return found


def _count(parameter: str, given: Any, state: str) -> int:
    return whole(parameter, given, state, least=0)


def _maybe(checked: Callable[[str, Any, str], T], parameter: str, given: Any) -> T | None:
    return None if given is None else checked(parameter, given, NOTHING_CHANGED)


def _arguments(given: Mapping[str, object] | None) -> tuple[tuple[str, Scalar], ...]:
    found: list[tuple[str, Scalar]] = []
    for name, value in sorted((given or {}).items()):
        if isinstance(value, str):
            value = value.encode()
        if value is not None and not isinstance(value, (bytes, int, float, bool)):
            raise wrong_type(f"arguments[{name!r}]", value, "a str, bytes, an int, a float, a bool or None")
        found.append((name, value))
    return tuple(found)

"""Messages received in a transaction: given back if it is rolled back, done for good if it commits.

A receiver outlives its transactions: the messages that it has prefetched stay. It serves one transaction at a time.
"""

from __future__ import annotations

from contextlib import suppress
from typing import Any, Protocol
from weakref import ReferenceType, ref

from journal.offset_set import OffsetSet
from journal.records.group_entries import PartitionOffset, Settled
from txbroker import errors
from txbroker.client.consumer.consumer import ConsumerCore
from txbroker.client.consumer.delivery import Delivery
from txbroker.client.consumer.options import consumer_options
from txbroker.client.consumer.retries import Retry, Said, with_retries
from txbroker.client.consumer.shared_fetch import SharedFetch
from txbroker.client.core.positions import Position, TakesPart
from txbroker.client.core.positions import settled as settled_of
from txbroker.client.core.results import Message
from txbroker.client.core.waits import Line, Turn


class Owner(Protocol):
    """A transaction that receives."""

    @property
    def is_over(self) -> bool:
        """Whether it has ended, with commit or rollback."""


class Receiver:
    """The reading of some topics for a group, for transactions."""

    def __init__(self, consumer: ConsumerCore) -> None:
        self.group = consumer.options.group or ""
        self._owner: ReferenceType[Owner] | None = None
        self.discarded = False
        self._consumer = consumer
        self._deliveries: list[Delivery] = []
        self._retries: dict[tuple[int, int], Retry] = {}
        """Those of its messages that the transaction tries again, by partition and offset."""
        self._fenced = False
        consumer.tell_in_hand(self._has_in_hand)

    @property
    def owner(self) -> Owner | None:
        """The transaction that receives at present. It is not kept alive for that."""
        return None if self._owner is None else self._owner()

    @owner.setter
    def owner(self, owner: Owner | None) -> None:
        self._owner = None if owner is None else ref(owner)

    @property
    def is_left(self) -> bool:
        """Whether the transaction that received was left without an end, and nothing refers to it any more."""
        return self._owner is not None and self._owner() is None

    @property
    def line(self) -> Line:
        """The callers that wait to receive."""
        return self._consumer.line

    def join(self, deadline: float) -> Turn:
        """Get in line for :meth:`look`, until ``deadline`` by the core's clock."""
        return self._consumer.join(deadline)

    def look(self) -> Delivery | None:
        """Return the delivery that has the next message, for the caller that has the turn.

        Returns None if the topics end here and are not followed. Messages that are taken from it belong to the
        transaction that receives.
        """
        try:
            delivery = self._consumer.look()
        except errors.GenerationFenced:
            self._fenced = True  # what it has received stays with the transaction, which is refused for it
            raise
        if delivery is not None and (not self._deliveries or self._deliveries[-1] is not delivery):
            self._deliveries.append(delivery)
        if delivery is not None and not delivery.is_empty:
            self._tell_begun(delivery)
        return delivery

    def _tell_begun(self, delivery: Delivery) -> None:
        """Tell the broker what the transaction handles: what it has received, and the message that comes next."""
        membership = self._consumer.membership
        if membership is None or not self._consumer.options.tells_begun:
            return
        received: dict[Position, list[Message]] = {}
        for each in self._deliveries:
            received.setdefault(each.position, []).extend(each.handed_messages())
        with suppress(IndexError):  # withheld meanwhile
            received[delivery.position].append(delivery.left[0])
        together = sum(map(len, received.values())) > 1
        for position, messages in received.items():
            membership.begun.add(position, position.number, messages, together)
        membership.begun.tell()

    def _tell_ended(self, tell: bool) -> None:
        """Note that the transaction handles nothing more; ``tell`` if its messages are neither finished nor failed."""
        membership = self._consumer.membership
        if membership is not None and self._consumer.options.tells_begun:
            for each in self._deliveries:
                membership.begun.remove(each.position)
            if tell:
                membership.begun.tell()

    def settlement(self) -> tuple[list[PartitionOffset], list[Settled]]:
        """Return what finishes the messages that the transaction has received: positions, and offsets where others
        were left out.
        """
        after: dict[int, PartitionOffset] = {}
        single: dict[int, tuple[Position, OffsetSet]] = {}
        for delivery in self._deliveries:
            position, handed = delivery.position, delivery.handed
            if handed >= 0 and position.has_gaps:
                for offset in delivery.handed_offsets():
                    if (position.number, offset) not in self._retries:
                        single.setdefault(position.number, (position, OffsetSet()))[1].add(offset)
            elif handed >= 0:
                after[position.number] = PartitionOffset(position.number, handed, position.generation)
        settled = [
            settled_of(PartitionOffset(number, 0, position.generation), position.begin, offsets)
            for number, (position, offsets) in single.items()
        ]
        return list(after.values()), with_retries(settled, self._retries.values())

    def retry(self, message: Message, said: Said) -> bool:
        """Have a message tried again that the transaction has received; return whether it has."""
        for delivery in self._deliveries:
            position = delivery.position
            at = position.topic, position.index
            if at == (message.topic, message.partition) and message.offset in delivery.handed_offsets():
                position.finish_singly()
                self._retries[position.number, message.offset] = Retry(position, message, said.of(message))
                return True
        return False

    def settle(self, committed: bool) -> None:
        """End the transaction: its messages are done, or come again in the same order."""
        self.discarded = True  # after an interrupt in here, all is read anew
        waits = committed and bool(self._retries)
        self._tell_ended(not committed)
        if committed:
            for delivery in self._deliveries:
                delivery.settle()
            self._consumer.park(self._retries.values())
        else:
            self._consumer.give_back(self._deliveries)
        self._deliveries.clear()
        self._retries.clear()
        self.owner = None
        self.discarded = self._fenced
        if self._fenced:
            self._consumer.close()
        elif waits:
            self._consumer.look_again()  # a fetch that is under way does not ask for what waits
        self._consumer.see_to_handover()

    def _has_in_hand(self, position: Position) -> bool:
        """Whether the transaction has received messages of that partition."""
        return not self.is_left and any(
            each.position is position and each.handed >= 0 for each in self._deliveries
        )

    def fenced(self) -> None:
        """Read anew from the group's positions: another consumer has a partition, or a transaction holds it.

        A member stays one: its other partitions are its own. A consumer that named its partitions claims them anew.
        """
        if self._consumer.membership is None:
            self.discard()
            return
        self.discarded = True  # after an interrupt in here, it leaves the group and joins it anew
        self._tell_ended(True)
        self._deliveries.clear()
        self._retries.clear()
        self.owner = None
        self._consumer.start_over()
        self.discarded = False

    def discard(self) -> None:
        """Read anew from the group's position, with new claims: another client knows how the transaction ended.

        A commit of it that comes late is refused then, or was there before the position was looked up.
        """
        self.discarded = True
        self.owner = None
        self._deliveries.clear()
        self._retries.clear()
        self._consumer.close()


class Received:
    """The receivers of one transaction, and what else takes part in its end."""

    def __init__(self) -> None:
        self._receivers: list[TakesPart] = []

    def add(self, receiver: TakesPart) -> None:
        """Add a receiver to the transaction."""
        if receiver not in self._receivers:
            self._receivers.append(receiver)

    def settlement(self) -> list[tuple[str, list[PartitionOffset], list[Settled]]]:
        """Return for each group the positions that move with the transaction, and the offsets that are finished."""
        if not self._receivers:
            return []
        found = [(receiver.group, *receiver.settlement()) for receiver in self._receivers]
        return [(group, offsets, settled) for group, offsets, settled in found if offsets or settled]

    def retry(self, message: Message, said: Said) -> bool:
        """Have a message tried again that the transaction has received; return whether it has."""
        return any(each.retry(message, said) for each in self._receivers if isinstance(each, Receiver))

    def settle(self, committed: bool) -> None:
        """Settle all receivers: the transaction is decided, whether or not the broker knows."""
        for receiver in self._receivers:
            receiver.settle(committed)
        self._receivers.clear()

    def fenced(self) -> None:
        """Read anew: others have partitions, or hold offsets of them."""
        for receiver in self._receivers:
            receiver.fenced()
        self._receivers.clear()

    def discard(self) -> None:
        """Read anew: another party finds out how the transaction ends."""
        for receiver in self._receivers:
            receiver.discard()
        self._receivers.clear()


class Receivers:
    """The receivers of one connection, by topics and group."""

    def __init__(self, shared_fetch: SharedFetch) -> None:
        self._shared_fetch = shared_fetch
        self._found: dict[tuple[tuple[str, ...], str, str], Receiver] = {}

    def of(self, owner: Owner, topics: Any, group: str, choices: dict[str, Any]) -> Receiver:
        """Return the receiver for a transaction; ``choices`` (fields of ConsumerOptions) are used when it is made."""
        options = consumer_options(topics, group, **choices)
        if not group:
            raise errors.Misuse(
                "receiving in a transaction moves a group's position: say group=; nothing was done"
            )
        if options.on_revoked or options.on_lost:
            raise errors.Misuse(
                "on_revoked= and on_lost= are for consumers: a transaction gives a partition back when it ends, and is "
                "refused if that is lost before; nothing was done"
            )
        key = (options.topics, options.pattern, group)
        receiver = self._found.get(key)
        if receiver is not None and (receiver.discarded or receiver.is_left):
            receiver.discard()
        if receiver is None or receiver.discarded:
            consumer = ConsumerCore(self._shared_fetch, options, self._shared_fetch.core.options.client)
            receiver = self._found[key] = Receiver(consumer)
        if receiver.owner is not None and receiver.owner.is_over:
            receiver.settle(False)  # it ended, interrupted, before it noted that it received from here
        if receiver.owner not in (None, owner):
            raise errors.Misuse(
                f"another transaction of this connection is receiving from {options.named} for group "
                f"{group!r} and has not ended: use a connection per worker, or end that one first; nothing was done"
            )
        receiver.owner = owner
        return receiver

    def close(self) -> None:
        """Stop reading; this commits nothing."""
        for receiver in self._found.values():
            receiver.discard()

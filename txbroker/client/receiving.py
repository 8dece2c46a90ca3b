"""Messages received inside a transaction: given back if it is rolled back, passed for good if it commits.

A receiver outlives its transactions: what it has prefetched stays. It serves one transaction at a time.
"""

from __future__ import annotations

from collections import deque
from typing import Any

from journal import frame
from journal.record import PartitionOffset
from txbroker import errors
from txbroker.client.consuming import Chunk, ConsumerCore, consumer_options, widen
from txbroker.client.core import Core
from txbroker.client.positions import Position
from txbroker.client.promise import Promise
from txbroker.client.results import Message

Held = tuple[Position, frame.Message]


class Receiver:
    """One group's reading of some topics, for transactions."""

    def __init__(self, core: Core, consumer: ConsumerCore) -> None:
        self.group = consumer.options.group or ""
        self.owner: object | None = None
        """The transaction that receives at present."""
        self.discarded = False
        self._core = core
        self._consumer = consumer
        self._ready: deque[Held] = deque()
        self._taken: list[Held] = []

    async def receive(self, timeout: float | None) -> Message | None:
        """The next message; None if ``timeout`` seconds pass without one, or the topics end and are not followed."""
        consumer, core = self._consumer, self._core
        deadline = None if timeout is None else core.clock() + timeout
        while not self._ready:
            chunk = consumer.take()
            if chunk is not None:
                self._ready.extend((chunk.position, message) for message in chunk.messages)
            elif consumer.finished or (deadline is not None and core.clock() >= deadline):
                return None
            elif deadline is None:
                await consumer.changed()
            else:
                waiting: Promise[None] = Promise()
                consumer.changed().then(lambda waiting=waiting: waiting.resolve(None))  # type: ignore[misc]
                core.sleep(deadline - core.clock()).then(lambda waiting=waiting: waiting.resolve(None))  # type: ignore[misc]
                await waiting
        held = self._ready.popleft()
        self._taken.append(held)
        position, message = held
        return widen(Chunk(position, [message]))[0]

    def offsets(self) -> list[PartitionOffset]:
        """The positions after what the transaction has received."""
        after: dict[int, PartitionOffset] = {}
        for position, message in self._taken:
            after[position.number] = PartitionOffset(position.number, message.offset + 1, position.generation)
        return list(after.values())

    def settle(self, committed: bool) -> None:
        """The transaction has ended: what it received is done with, or comes again, in the same order."""
        if not committed:
            self._ready.extendleft(reversed(self._taken))
        self._taken.clear()
        self.owner = None

    def discard(self) -> None:
        """Somebody else has the partitions, or knows how it ended: read anew from where the group is then."""
        self.discarded = True
        self.owner = None
        self._taken.clear()
        self._ready.clear()
        self._consumer.close()


class Received:
    """What one transaction has received, from any of its receivers."""

    def __init__(self) -> None:
        self._receivers: list[Receiver] = []

    async def take(self, receiver: Receiver, timeout: float | None) -> Message | None:
        """Receive the next message."""
        if receiver not in self._receivers:
            self._receivers.append(receiver)
        return await receiver.receive(timeout)

    def offsets(self) -> list[tuple[str, list[PartitionOffset]]]:
        """Per group the positions that move with the transaction."""
        found = [(receiver.group, receiver.offsets()) for receiver in self._receivers]
        return [(group, offsets) for group, offsets in found if offsets]

    def settle(self, committed: bool) -> None:
        """It is decided, whether or not the broker has been told."""
        for receiver in self._receivers:
            receiver.settle(committed)
        self._receivers.clear()

    def discard(self) -> None:
        """How it ends is found out elsewhere, or others have the partitions: what comes next is read anew."""
        for receiver in self._receivers:
            receiver.discard()
        self._receivers.clear()


class Receivers:
    """The receivers of one connection, by topics and group."""

    def __init__(self, core: Core) -> None:
        self._core = core
        self._found: dict[tuple[tuple[str, ...], str], Receiver] = {}

    def of(self, owner: object, topics: Any, group: str, choices: dict[str, Any]) -> Receiver:
        """The receiver for a transaction; ``choices`` (fields of ConsumerOptions) count when it is made."""
        options = consumer_options(topics, group, **choices)
        if not group:
            raise errors.Misuse(
                "receiving in a transaction moves a group's position: say group=; nothing was done"
            )
        key = (options.topics, group)
        receiver = self._found.get(key)
        if receiver is None or receiver.discarded:
            consumer = ConsumerCore(self._core, options, self._core.options.client)
            receiver = self._found[key] = Receiver(self._core, consumer)
        if receiver.owner not in (None, owner):
            raise errors.Misuse(
                f"another transaction of this connection is receiving from {', '.join(options.topics)} for group "
                f"{group!r} and has not ended: use a connection per worker, or end that one first; nothing was done"
            )
        receiver.owner = owner
        return receiver

    def close(self) -> None:
        """Stop reading; commits nothing."""
        for receiver in self._found.values():
            receiver.discard()

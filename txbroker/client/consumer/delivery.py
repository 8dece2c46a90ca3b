"""Deliveries of a consumer: messages of one partition, each handed to the caller in one step.

No state changes beside that step: the messages that are no longer here have been handed out. So an exception at any
moment (a signal's handler, a cancellation) finds a message either here, for the next call, or with the caller.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Mapping
from contextlib import suppress
from itertools import islice
from typing import NamedTuple, Protocol

from journal.arguments import whole
from journal.formats import frame
from txbroker.client.core.positions import Position
from txbroker.client.core.results import Message
from txbroker.client.core.waits import Line, Turn

NO_ATTEMPTS: Mapping[int, int] = {}


class Chunk(NamedTuple):
    """Decoded messages of one partition, in order. ``before`` counts the bytes that were decoded before.

    ``is_again``: they were left out before, so later ones may have been handed out already. ``attempts`` are those of
    offsets that have failed before.
    """

    position: Position
    messages: list[frame.Message]
    before: int = 0
    is_again: bool = False
    attempts: Mapping[int, int] = NO_ATTEMPTS


class Delivery:
    """A chunk that is being handed out. ``left`` has the messages that remain.

    A message moves out of ``left`` in one step: to the caller (:meth:`one`, :meth:`some`), or to what is withheld
    (:meth:`withhold`), also if the steps are of different threads. So what was handed out is known exactly at any
    moment.
    """

    __slots__ = ("_withheld", "chunk", "left", "messages", "position")

    def __init__(self, chunk: Chunk, messages: list[Message] | None = None) -> None:
        self.chunk = chunk
        self.position = chunk.position
        self.messages = widen(chunk) if messages is None else messages
        self.left = deque(self.messages)
        self._withheld: deque[Message] = deque()

    @property
    def is_empty(self) -> bool:
        """Whether no message remains to be handed out."""
        return not self.left

    @property
    def handed_count(self) -> int:
        """How many messages were handed out since it was last settled."""
        return len(self.messages) - len(self.left) - len(self._withheld)

    @property
    def handed(self) -> int:
        """The offset after the messages that were handed out since it was last settled; -1 if there are none."""
        count = self.handed_count
        if not count:
            return -1
        return self.messages[count].offset if count < len(self.messages) else self.messages[-1].offset + 1

    def handed_messages(self) -> list[Message]:
        """Return the messages that were handed out since it was last settled."""
        return self.messages[: self.handed_count]

    def handed_offsets(self) -> list[int]:
        """Return their offsets."""
        return [message.offset for message in self.handed_messages()]

    def one(self) -> Message | None:
        """Hand out the next message; None if they are withheld since it was looked at."""
        try:
            return self.left.popleft()
        except IndexError:
            return None

    def some(self, most: int | None = None) -> list[Message]:
        """Hand out the next messages at once, at most so many (None: all that remain); none if they are withheld since
        it was looked at.
        """
        left = self.left
        count = len(left) if most is None else min(most, len(left))
        try:
            # In one step for all threads and for interrupts, because all of these are C functions.
            return list(islice(iter(left.popleft, None), count))
        except IndexError:
            return []

    def next_together(self, most: int | None) -> list[Message]:
        """Return the next messages that may be handed out at once, at most so many (None: all that remain), without
        handing them out: one that is to be handled alone comes alone.
        """
        found = list(islice(self.left, most))
        alone = [place for place, message in enumerate(found) if self.is_alone(message)]
        return found[: max(alone[0], 1)] if alone else found

    def is_alone(self, message: Message) -> bool:
        """Return whether one of its messages is to be handled alone: the group has failed with it, or has lost a
        consumer with a batch of which it was a part.
        """
        return message.attempts > 0 or message.offset in self.position.alone

    def withhold(self) -> None:
        """Hand out no more of it, from now on. It may be called again."""
        with suppress(IndexError):
            # In one step for all threads and for interrupts, because all of these are C functions.
            self._withheld.extendleft(iter(self.left.pop, None))

    def remaining(self) -> Delivery:
        """Return a delivery of what :meth:`withhold` has kept back."""
        return Delivery(self.chunk, list(self._withheld))

    def without(self, gone: Collection[int]) -> Delivery:
        """Return a delivery of what has not been handed out, without these offsets."""
        left = [] if self.is_empty else self.left
        return Delivery(self.chunk, [each for each in left if each.offset not in gone])

    def end(self) -> None:
        """Keep only what was handed out: the rest is in :meth:`remaining`, also for who holds ``left``."""
        self.withhold()
        self.messages, self._withheld = self.messages[: self.handed_count], deque()

    def give_back(self) -> None:
        """Make all of its messages available again."""
        self.left, self._withheld = deque(self.messages), deque()

    def count(self) -> None:
        """Note in its position that the messages that are not here were handed out. It may be called again."""
        position = self.position
        if not self.messages:
            return
        if not position.has_gaps and position.left.order == "partition":
            position.handed = self.handed if self.handed >= 0 else position.handed
            return
        for offset in self.handed_offsets():
            position.given.add(offset)
        position.handed = max(position.handed, self.handed)

    def settle(self) -> None:
        """Count the messages that were handed out as done for good."""
        self.messages = self.messages[self.handed_count :]


def checked_most(value: int | None) -> int | None:
    """Return a ``max_messages``: None or an int from 1; raises WrongType, WrongValue."""
    if value is None:
        return None
    return whole("max_messages", value, "nothing was taken", least=1, wanted="an int or None")


def widen(chunk: Chunk) -> list[Message]:
    """Return a chunk's messages with topic and partition."""
    position, attempts = chunk.position, chunk.attempts
    topic, index, generation = position.topic, position.index, position.generation
    if not attempts:
        return [
            Message(
                topic, index, one.offset, one.timestamp, one.key, one.value, one.headers, 0, generation, one.appended
            )
            for one in chunk.messages
        ]  # fmt: skip
    return [
        Message(
            topic, index, each.offset, each.timestamp, each.key, each.value, each.headers,
            attempts.get(each.offset, 0), generation, each.appended,
        )
        for each in chunk.messages
    ]  # fmt: skip


class Source(Protocol):
    """A consumer, or a receiver of a transaction."""

    @property
    def line(self) -> Line:
        """The callers that wait for messages."""

    def join(self, deadline: float) -> Turn:
        """Get in that line."""

    def look(self) -> Delivery | None:
        """Return the delivery to hand out next; for the caller that has the turn."""


def look_in_turn(source: Source) -> tuple[Delivery | None, bool]:
    """Return what is there for the caller that has the turn, and whether that is an answer.

    If not, what it was given the turn for is not here any more: meanwhile another thread has put it off, or the group
    has asked its partition back. Then the caller gets in line again. None as an answer says that the reading ends here,
    or that the caller has something to tell first.
    """
    found = source.look()
    return found, source.line.may_go_on if found is None else not found.is_empty

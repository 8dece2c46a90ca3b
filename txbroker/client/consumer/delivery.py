"""Deliveries of a consumer: messages of one partition, each handed to the caller in one step.

No state changes beside that step: the messages that are no longer here have been handed out. So an exception at any
moment (a signal's handler, a cancellation) finds a message either here, for the next call, or with the caller.
"""

from __future__ import annotations

from collections import deque
from typing import NamedTuple, Protocol

from journal.formats import frame
from txbroker.client.core.positions import Position
from txbroker.client.core.results import Message
from txbroker.client.core.waits import Line, Turn


class Chunk(NamedTuple):
    """Decoded messages of one partition, in order. ``before`` counts the bytes that were decoded before.

    ``is_again``: they were left out before, so later ones may have been handed out already.
    """

    position: Position
    messages: list[frame.Message]
    before: int = 0
    is_again: bool = False


class Delivery:
    """A chunk that is being handed out. ``left`` has the remaining messages, unless ``whole`` is empty: then none
    remain.
    """

    __slots__ = ("chunk", "left", "messages", "position", "whole")

    def __init__(self, chunk: Chunk) -> None:
        self.chunk = chunk
        self.position = chunk.position
        self.messages = widen(chunk)
        self.left = deque(self.messages)
        self.whole: list[list[Message]] = [[]]

    @property
    def is_empty(self) -> bool:
        """Whether all messages have been handed out."""
        return not (self.left and self.whole)

    @property
    def handed(self) -> int:
        """The offset after the messages that were handed out since it was last settled; -1 if there are none."""
        if not self.messages:
            return -1
        if self.is_empty:
            return self.messages[-1].offset + 1
        return self.left[0].offset if len(self.left) < len(self.messages) else -1

    def handed_offsets(self) -> list[int]:
        """Return the offsets of the messages that were handed out since it was last settled."""
        count = len(self.messages) - (0 if self.is_empty else len(self.left))
        return [message.offset for message in self.messages[:count]]

    def one(self) -> Message:
        """Hand out the next message."""
        return self.left.popleft()

    def rest(self) -> list[Message]:
        """Hand out all remaining messages at once."""
        self.whole[:] = [list(self.left)]
        return self.whole.pop()  # nothing may come between this and the caller

    def give_back(self) -> None:
        """Make all of its messages available again."""
        self.left = deque(self.messages)
        self.whole = [[]]

    def count(self) -> None:
        """Note in its position that the messages that are not here were handed out. It may be called again."""
        position = self.position
        if not self.messages:
            return
        if position.left.order == "partition":
            position.handed = self.handed if self.handed >= 0 else position.handed
            return
        for offset in self.handed_offsets():
            position.given.add(offset)
        position.handed = max(position.handed, self.handed)

    def settle(self) -> None:
        """Count the messages that were handed out as done for good."""
        self.messages = list(self.left)


def widen(chunk: Chunk) -> list[Message]:
    """Return a chunk's messages with topic and partition."""
    topic, index = chunk.position.topic, chunk.position.index
    return [
        Message(topic, index, message.offset, message.timestamp, message.key, message.value, message.headers)
        for message in chunk.messages
    ]


class Source(Protocol):
    """A consumer, or a receiver of a transaction."""

    @property
    def line(self) -> Line:
        """The callers that wait for messages."""

    def join(self, deadline: float) -> Turn:
        """Get in that line."""

    def look(self) -> Delivery | None:
        """Return the delivery to hand out next; for the caller that has the turn."""

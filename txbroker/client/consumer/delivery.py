"""What a consumer hands out: messages of one partition, each given to the caller in one step.

Nothing is noted beside that step: what has been handed out is what is not there any more. So an exception that comes
out of nowhere (a signal's handler, a cancellation) finds a message either here, for the next call, or with the caller.
"""

from __future__ import annotations

from collections import deque
from typing import NamedTuple, Protocol

from journal.formats import frame
from txbroker.client.core.positions import Position
from txbroker.client.core.results import Message
from txbroker.client.core.waits import Line, Turn


class Chunk(NamedTuple):
    """Messages of one partition as they were decoded, in order. ``before`` counts what was decoded before, bytes."""

    position: Position
    messages: list[frame.Message]
    before: int = 0


class Delivery:
    """A chunk as it is handed out: ``left`` is what is still here, unless ``whole`` is empty: then nothing is."""

    __slots__ = ("chunk", "left", "messages", "position", "whole")

    def __init__(self, chunk: Chunk) -> None:
        self.chunk = chunk
        self.position = chunk.position
        self.messages = widen(chunk)
        self.left = deque(self.messages)
        self.whole: list[list[Message]] = [[]]

    @property
    def is_empty(self) -> bool:
        """Whether all has been handed out."""
        return not (self.left and self.whole)

    @property
    def handed(self) -> int:
        """The offset after what was handed out of it since it was last settled; -1 if nothing was."""
        if not self.messages:
            return -1
        if self.is_empty:
            return self.messages[-1].offset + 1
        return self.left[0].offset if len(self.left) < len(self.messages) else -1

    def one(self) -> Message:
        """Hand out the next message."""
        return self.left.popleft()

    def rest(self) -> list[Message]:
        """Hand out all that is left, at once."""
        self.whole[:] = [list(self.left)]
        return self.whole.pop()  # nothing may come between this and the caller

    def give_back(self) -> None:
        """All of it is to be handed out again."""
        self.left = deque(self.messages)
        self.whole = [[]]

    def settle(self) -> None:
        """What has been handed out is done with for good."""
        self.messages = list(self.left)


def widen(chunk: Chunk) -> list[Message]:
    """A chunk's messages with topic and partition."""
    topic, index = chunk.position.topic, chunk.position.index
    return [
        Message(topic, index, message.offset, message.timestamp, message.key, message.value, message.headers)
        for message in chunk.messages
    ]


class Source(Protocol):
    """A consumer, or what a transaction receives from."""

    @property
    def line(self) -> Line:
        """Those who wait for messages."""

    def join(self, deadline: float) -> Turn:
        """Get in that line."""

    def look(self) -> Delivery | None:
        """What is to be handed out next, for who has the turn."""

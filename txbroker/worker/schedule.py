"""Which message may be handled next: the order of messages, and how many are in hand. Pure; the caller has the lock."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from typing import Any, Final

from txbroker.client.core.results import Message

Place = tuple[str, int]
"""A topic, and the index of a partition in it."""

MOST_AHEAD: Final = 10_000
MOST_BYTES: Final = 16 << 20
"""How many messages, and bytes of their values and keys, are in hand at most while calls wait for work."""

Lane = tuple[Any, ...]
"""What keeps messages in order: those of one lane are handled one after another."""


class Work:
    """Messages of one partition that one call of the handler gets, in the order of their offsets."""

    __slots__ = ("generation", "lanes", "messages", "place")

    def __init__(self, place: Place, messages: list[Message], lanes: list[Lane]) -> None:
        self.place = place
        self.messages = sorted(messages, key=lambda message: message.offset)
        self.generation = messages[0].generation
        """Of the claim under which all of them were handed out."""
        self.lanes = lanes


class Schedule:
    """The messages that were read and are not finished.

    ``order`` is "key" (messages of a key one after another, those without a key free), "partition" (one work at a time
    for each partition) or None. A work has at most ``batch`` messages; it has those that are here, and waits for no
    more. ``concurrency`` of them are under way at most.

    In hand are at most twice as many messages as can be under way. If all of them wait for others of their lane, and
    more could be under way, the schedule has room for more, up to :data:`MOST_AHEAD`: those of other lanes may be
    behind them.
    """

    def __init__(self, order: str | None, batch: int, concurrency: int) -> None:
        self.in_hand = 0
        """Messages that were added, and neither finished nor dropped."""
        self._bytes = 0
        self._concurrency = concurrency
        self._order = order
        self._batch = batch
        self._limit = 2 * concurrency * batch
        self._ready: dict[Place, deque[Message]] = {}
        self._behind: dict[Lane, deque[Message]] = {}
        self._under_way: set[Work] = set()
        self._alone: set[tuple[Place, int]] = set()
        """Messages that are handled alone."""

    @property
    def has_room(self) -> bool:
        """Whether another message may be added."""
        if self.in_hand < self._limit:
            return True
        is_idle = not self._ready and len(self._under_way) < self._concurrency
        return is_idle and self.in_hand < MOST_AHEAD and self._bytes < MOST_BYTES

    @property
    def all_handled(self) -> bool:
        """Whether all that is in hand is handled, and only waits to be finished."""
        return not self._ready and not self._under_way

    @property
    def has_ready(self) -> bool:
        """Whether :meth:`take` would return a work."""
        return bool(self._ready)

    @property
    def under_way(self) -> list[Work]:
        """The works that were taken and have not ended."""
        return list(self._under_way)

    def add(self, message: Message, alone: bool = False) -> None:
        """Add a message, behind all earlier ones of its lane. ``alone``: in no batch with others."""
        self.in_hand += 1
        if alone:
            self._alone.add(((message.topic, message.partition), message.offset))
        self._bytes += _size(message)
        lane = self.lane(message)
        if lane in self._behind:
            self._behind[lane].append(message)
            return
        if lane:
            self._behind[lane] = deque()
        ready = self._ready.setdefault((message.topic, message.partition), deque())
        if message.attempts:
            ready.appendleft(message)  # others may wait for it, at the broker
        else:
            ready.append(message)

    def take(self) -> Work | None:
        """Return the next work; None if no message may be handled now. Partitions take turns."""
        if not self._ready:
            return None
        place, ready = next(iter(self._ready.items()))
        del self._ready[place]
        messages: list[Message] = []
        lanes: list[Lane] = []
        while ready and self._may_join(messages, ready[0]):
            message = ready.popleft()
            messages.append(message)
            lane = self.lane(message)
            if lane:
                lanes.append(lane)
                self._follow(self._behind[lane], messages)
        if ready:
            self._ready[place] = ready
        work = Work(place, messages, lanes)
        self._under_way.add(work)
        return work

    def _may_join(self, messages: list[Message], message: Message) -> bool:
        """Return whether a message may be handled together with these."""
        if not messages:
            return True
        is_room = len(messages) < self._batch and message.generation == messages[0].generation
        return is_room and not (self._is_alone(message) or self._is_alone(messages[0]))

    def _is_alone(self, message: Message) -> bool:
        if message.attempts:
            return True
        return bool(self._alone) and ((message.topic, message.partition), message.offset) in self._alone

    def _follow(self, behind: deque[Message], messages: list[Message]) -> None:
        """Take the next messages of a lane into the same batch, in which they keep their order."""
        while behind and self._may_join(messages, behind[0]):
            messages.append(behind.popleft())

    def ended(self, work: Work) -> None:
        """Note that a work is not under way any more; its messages stay in hand until :meth:`finished`."""
        self._under_way.discard(work)
        for lane in work.lanes:
            behind = self._behind[lane]
            if behind:
                self._ready.setdefault(work.place, deque()).append(behind.popleft())
            else:
                del self._behind[lane]

    def finished(self, messages: Iterable[Message]) -> None:
        """Note that messages are not in hand any more."""
        for message in messages:
            self.in_hand -= 1
            self._bytes -= _size(message)
            self._alone.discard(((message.topic, message.partition), message.offset))

    def drop(self, place: Place, generation: int) -> int:
        """Drop the messages of a partition that were handed out with a generation and are not under way; return how
        many.
        """
        kept: deque[Message] = deque()
        dropped: list[Message] = []
        for message in self._ready.pop(place, ()):
            if message.generation != generation:
                kept.append(message)
                continue
            dropped.append(message)
            lane = self.lane(message)
            if lane:
                self._drop_behind(lane, generation, dropped)
                if self._behind[lane]:
                    kept.append(self._behind[lane].popleft())
                else:
                    del self._behind[lane]
        for work in self._under_way:
            for lane in work.lanes if work.place == place else ():
                self._drop_behind(lane, generation, dropped)
        if kept:
            self._ready[place] = kept
        self.finished(dropped)
        return len(dropped)

    def _drop_behind(self, lane: Lane, generation: int, dropped: list[Message]) -> None:
        behind = self._behind[lane]
        dropped += (each for each in behind if each.generation == generation)
        self._behind[lane] = deque(each for each in behind if each.generation != generation)

    def withdraw(self, lane: Lane, generation: int) -> list[Message]:
        """Drop the messages that wait for the work under way in a lane, and return them."""
        withdrawn: list[Message] = []
        self._drop_behind(lane, generation, withdrawn)
        self.finished(withdrawn)
        return withdrawn

    def lane(self, message: Message) -> Lane:
        """Return the lane of a message; the empty one if it waits for no other."""
        if self._order == "partition":
            return message.topic, message.partition
        if self._order == "key" and message.key is not None:
            return message.topic, message.partition, message.key
        return ()


def _size(message: Message) -> int:
    return len(message.value or b"") + len(message.key or b"")

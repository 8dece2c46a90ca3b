"""A stream of this process: the numbers of its blocks, and what is to be delivered from memory (decision 0048).

Pure state: no thread, no database, no broker. Whoever calls holds the lock of its :class:`Streams`.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterator, Mapping
from typing import NamedTuple

from txbroker.client.core.promise import Promise

JOINED_BYTES = 32 << 10
"""Blocks that are delivered together have at most so many bytes of frames, so at most as many messages as a request."""


class Committed(NamedTuple):
    """A block that has committed: its number, the runs (partition's number, bytes) of its frames, when it ended, by a
    clock that only grows, and whether it may be delivered together with others.
    """

    number: int
    runs: list[tuple[int, int]]
    data: bytes
    at: float
    joins: bool = True


def joined(blocks: list[Committed]) -> tuple[list[tuple[int, int]], bytes]:
    """Return the runs and the frames of blocks that are delivered together: one run for each partition."""
    if len(blocks) == 1:
        return blocks[0].runs, blocks[0].data
    parts: dict[int, list[bytes]] = {}
    for block in blocks:
        start = 0
        for partition, size in block.runs:
            parts.setdefault(partition, []).append(block.data[start : start + size])
            start += size
    frames = {partition: b"".join(some) for partition, some in parts.items()}
    return [(partition, len(some)) for partition, some in frames.items()], b"".join(frames.values())


class Memory:
    """The bytes of messages that the streams of one process hold."""

    def __init__(self, streams: Mapping[bytes, Stream]) -> None:
        self._streams = streams
        self.held = 0

    def recount(self) -> None:
        """Count anew, after an interrupt."""
        self.held = sum([len(block.data) for stream in self._streams.values() for block in stream._queue])


class Stream:
    """A stream, which at most one open transaction writes with.

    Delivered from memory is what was committed after its claim was answered, once all before it is delivered. Numbers
    up to ``unread`` may have rows that are not in memory: they are read from the database first (rule a).
    """

    def __init__(self, name: bytes, memory: Memory) -> None:
        self.name = name
        self._memory = memory
        self.text = name.hex()
        """Its name in the table."""
        self.number = 0
        """The highest number that a block was given."""
        self.open = 0
        """The number of the block whose end is not known yet; 0 for none."""
        self.epoch = b""
        """The epoch of the claim that it goes by; empty without one."""
        self.life = 0
        """Which connection of the keeper's the claim belongs to (rule e)."""
        self.last = 0
        """The highest number that is known to be delivered."""
        self.unread = 0
        self._unread_blocks = 0
        self._queue: deque[Committed] = deque()
        self._sent = 0
        self._unread_since = math.inf
        self._rows: list[int] = []
        self._newest = 0
        self._rolled_back: deque[int] = deque(maxlen=1000)
        self._waiting: list[tuple[int, Promise[None]]] = []

    @property
    def is_current(self) -> bool:
        """Whether all that is committed and not delivered is in memory."""
        return bool(self.epoch) and self.unread <= self.last

    @property
    def is_settled(self) -> bool:
        """Whether all is delivered, and no block is open."""
        return self.is_current and not self._queue and not self.open

    # -- blocks ------------------------------------------------------------------------------------

    def begin(self) -> tuple[int, bytes]:
        """Return the next number, for a block that is about to commit, and the epoch that is known before."""
        if self.open:
            self.rolled_back(self.open)  # an interrupt came before its row was inserted
        self.number += 1
        self.open = self.number
        return self.number, self.epoch

    def committed(self, block: Committed, epoch: bytes, has_room: bool) -> bool:
        """Note that a block has committed, which began with ``epoch``; return whether it can be delivered from memory.

        A repetition changes nothing. After an interrupt at any line it completes what was begun: it is open until then.
        """
        if self.open == block.number:
            if self._queue and self._queue[-1].number == block.number:
                self._memory.recount()
            elif epoch and epoch == self.epoch and has_room:
                self._queue.append(block)
                self._memory.held += len(block.data)
            else:
                self.unread = block.number
                self._unread_blocks += 1
                self._unread_since = min(self._unread_since, block.at)
            self._newest = block.number
            self.open = 0
        return self.is_current

    def rolled_back(self, number: int) -> None:
        """Note that a block has not committed and never will."""
        if self.open == number:
            self.open = 0
            self._rolled_back.append(number)

    def outcome(self, number: int) -> bool | None:
        """Return whether a block of this process has committed; None while that is not decided, or not remembered."""
        if number == self.open or number > self.number:
            return None
        rolled_back = self._rolled_back
        if len(rolled_back) == rolled_back.maxlen and number < rolled_back[0]:
            return None
        return number not in rolled_back

    def wait(self, number: int) -> Promise[None]:
        """Return a promise for when that number is delivered; it fails if it never will be."""
        found: Promise[None] = Promise()
        if number <= self.last:
            found.resolve(None)
        else:
            self._waiting.append((number, found))
        return found

    @property
    def newest(self) -> int:
        """The number of the block that was committed last."""
        return max(self._newest, self.last)

    # -- claims ------------------------------------------------------------------------------------

    def claimed(self, epoch: bytes, last: int, life: int) -> list[Promise[None]]:
        """Take the answer to a claim: rows of blocks that have begun before may be unknown to memory.

        Returns the promises to resolve.
        """
        self._rows += [block.number for block in self._queue if block.number <= last]
        done = self._note(last)
        self._forget_queue()
        self.epoch, self.life = epoch, life
        self.unread = self.number
        self._sent = self.last
        return done

    def fenced(self, epoch: bytes) -> None:
        """Note that what was asked under ``epoch`` was refused: the database says what there is now (rule c)."""
        if epoch == self.epoch:
            self.epoch = b""
            self._forget_queue()

    def forget(self) -> None:
        """Drop what is in memory: nobody goes on with the stream here."""
        self.epoch = b""
        self._forget_queue()

    def to_read(self) -> int | None:
        """Return up to which number a snapshot must be read now; None while a block is open that it would not show."""
        return None if 0 < self.open <= self.unread else self.unread

    def was_read(self, covered: int) -> None:
        """Note that all is delivered of a snapshot that had each row up to ``covered``."""
        if self.unread <= covered:
            self.unread = 0
            self._all_read()

    def _all_read(self) -> None:
        self._unread_blocks, self._unread_since = 0, math.inf

    def _forget_queue(self) -> None:
        if self._queue:
            self._unread_since = min(self._unread_since, self._queue[0].at)
        self._unread_blocks += len(self._queue)
        self._memory.held -= sum([len(block.data) for block in self._queue])
        self._queue.clear()

    # -- deliveries --------------------------------------------------------------------------------

    def unsent(self) -> Iterator[tuple[list[Committed], int]]:
        """Yield what is to be sent now: blocks that go together, and the number that they come after. They count as
        sent.
        """
        if self.is_current and self._queue and self._queue[-1].number > self._sent:
            together, size = list[Committed](), 0
            for block in [block for block in self._queue if block.number > self._sent]:
                if together and not (
                    block.joins and together[-1].joins and size + len(block.data) <= JOINED_BYTES
                ):
                    yield together, self._sends(together)
                    together, size = [], 0
                together.append(block)
                size += len(block.data)
            yield together, self._sends(together)

    def _sends(self, blocks: list[Committed]) -> int:
        after, self._sent = max(self._sent, self.last), blocks[-1].number
        return after

    def unsend(self) -> None:
        """Note that the connection is lost, or a sending was interrupted: what is unanswered is to be sent again."""
        self._sent = self.last

    def delivered(self, number: int) -> list[Promise[None]]:
        """Note that the broker has that number, and so all before it; return the promises to resolve."""
        self._rows += [block.number for block in self._queue if block.number <= number]
        return self._note(number)

    def _note(self, number: int) -> list[Promise[None]]:
        self.last = max(self.last, number)
        if self.unread <= self.last:
            self._all_read()
        while self._queue and self._queue[0].number <= self.last:
            self._memory.held -= len(self._queue.popleft().data)
        done = [promise for each, promise in self._waiting if each <= self.last]
        if done:
            self._waiting = [each for each in self._waiting if each[0] > self.last]
        return done

    def refused(self, number: int) -> list[Promise[None]]:
        """Note that this number will never be delivered; return the promises to fail."""
        gone = [promise for each, promise in self._waiting if each == number]
        self._waiting = [each for each in self._waiting if each[0] != number]
        return gone

    # -- rows that may go --------------------------------------------------------------------------

    @property
    def removable(self) -> int:
        """How many rows are delivered and known to be in the table."""
        return len(self._rows)

    def take_rows(self, most: int) -> list[int]:
        """Return numbers of rows to delete, which counts as done; :meth:`give_rows` takes it back."""
        taken, self._rows = self._rows[:most], self._rows[most:]
        return taken

    def give_rows(self, numbers: list[int]) -> None:
        """Note that rows are still there."""
        self._rows = numbers + self._rows

    @property
    def is_holding(self) -> bool:
        """Whether blocks in memory are not known to be delivered."""
        return bool(self._queue)

    @property
    def undelivered(self) -> int:
        """How many blocks are committed and not known to be delivered."""
        return len(self._queue) + self._unread_blocks

    @property
    def since(self) -> float:
        """When the oldest block ended that is not known to be delivered; infinity if there is none."""
        return min(self._unread_since, self._queue[0].at if self._queue else math.inf)

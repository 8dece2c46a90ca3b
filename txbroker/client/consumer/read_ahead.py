"""Messages that a consumer has fetched and not handed out yet, decoded in chunks of one partition each."""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Iterator, Mapping

from journal.formats import frame
from journal.offset_set import OffsetSet
from txbroker.client.consumer.delivery import Chunk, Delivery
from txbroker.client.core.left_out import LeftOut
from txbroker.client.core.positions import Position

Pieces = Iterator[tuple[list[frame.Message], int]]
"""How many messages are decoded at once, with their bytes."""
Read = tuple[Position, Pieces, Mapping[int, int]]
"""What was read of a position, and the attempts by offset."""


class Again:
    """Messages that were left out, read again: those of a run that do not wait any more."""

    def __init__(
        self,
        left: LeftOut,
        pieces: Pieces,
        run: tuple[int, int],
        finished: OffsetSet,
        waiting: OffsetSet,
    ) -> None:
        self._left = left
        self._pieces = pieces
        self._run = run
        self._without = finished, waiting

    def __iter__(self) -> Again:
        return self

    def __next__(self) -> tuple[list[frame.Message], int]:
        while True:
            messages, size = next(self._pieces)
            kept = self._kept(messages)
            if kept:
                return kept, size

    def _kept(self, messages: list[frame.Message]) -> list[frame.Message]:
        (first, end), (finished, waiting), left = self._run, self._without, self._left
        in_order = left.in_order()
        return [
            each
            for each in messages
            if first <= each.offset < end
            and left.has(each.offset)
            and each.offset not in finished
            and each.offset not in waiting
            and each.offset not in left.waiting
            and in_order.admits(each.offset, each.key)
        ]


def decoded(data: memoryview, offset: int, max_run: int | None) -> Pieces:
    """Decode the frames of a partition from an offset on, at most ``max_run`` messages at once (None: as they come)."""
    pieces = frame.decode_pieces(data, offset)
    return pieces if max_run is None else _in_runs(pieces, max_run)


def _in_runs(pieces: Pieces, most: int) -> Pieces:
    for messages, size in pieces:
        for first in range(0, len(messages), most):
            some = messages[first : first + most]
            yield some, size * len(some) // len(messages)


class ReadAhead:
    """Chunks that wait, oldest first, and frames still to be decoded. An interrupt may come in each step.

    What was left out and is read again does not wait behind them: it goes to ``returned``, which is handed out before.
    If the partitions take ``turns``, a part of one is decoded after a part of the other.
    """

    def __init__(self, returned: deque[Delivery], turns: bool = False) -> None:
        self._returned = returned
        self._turns = turns
        self.chunks: deque[Chunk] = deque()
        self.undecoded: deque[Read] = deque()
        self._decoded = 0
        self._taking: tuple[Chunk, int] | None = None

    @property
    def size(self) -> int:
        """Decoded bytes that wait here."""
        return self._decoded - self.chunks[0].before if self.chunks else 0

    @property
    def has_again(self) -> bool:
        """Whether messages that were left out, and are read again, wait to be handed out."""
        return any(each.chunk.is_again for each in self._returned)

    @property
    def comes_again(self) -> bool:
        """Whether the next to be decoded had been left out, and is handed out before all else."""
        return isinstance(self.undecoded[0][1], Again)

    def decode(self) -> bool:
        """Decode a part; compressed frames may become larger than all that may wait. Return whether there was
        anything.
        """
        position, pieces, attempts = self.undecoded[0]
        try:
            messages, size = next(pieces, ([], 0))
            if messages:
                chunk = Chunk(position, messages, self._decoded, isinstance(pieces, Again), attempts)
                self._taking = chunk, size
                if chunk.is_again:
                    self._returned.append(Delivery(chunk))
                else:
                    self.chunks.append(chunk)
                self._took(chunk, size)
                if self._turns and not chunk.is_again:
                    self.undecoded.rotate(-1)
        except BaseException:
            self.undecoded.popleft()  # it is fetched again, from the message after the last decoded one
            position.upto = 0
            raise
        if not messages:
            self.undecoded.popleft()
        return bool(messages)

    def _took(self, chunk: Chunk, size: int) -> None:
        if chunk.is_again:
            chunk.position.left.taken([each.offset for each in chunk.messages])
        else:
            position, following = chunk.position, chunk.messages[-1].offset + 1
            position.next = max(following, position.upto)  # behind what was left out with them
            position.upto = 0
            self._decoded = chunk.before + size
        self._taking = None

    def mend(self, current: Chunk | None) -> None:
        """Repair after an interrupt: a taken chunk is here, or it is ``current``, or else it is fetched again."""
        if self._taking is not None:
            chunk, size = self._taking
            here = [*self.chunks, *(each.chunk for each in self._returned), current]
            if any(each is chunk for each in here):
                self._took(chunk, size)
            chunk.position.upto = 0
            self._taking = None

    def drop(self, numbers: Collection[int]) -> None:
        """Drop what is here of some partitions."""
        for place in reversed(range(len(self.chunks))):
            if self.chunks[place].position.number in numbers:
                del self.chunks[place]
        for place in reversed(range(len(self.undecoded))):
            if self.undecoded[place][0].number in numbers:
                del self.undecoded[place]

    def clear(self) -> None:
        """Drop everything."""
        self.chunks.clear()
        self.undecoded.clear()
        self._taking = None

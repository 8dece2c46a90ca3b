"""Batches: messages that wait together for one partition, as one request; a batch is sealed when it is sent."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol, cast

from journal.constants import MAX_OPENED_HEADS, MAX_REQUEST_MESSAGES, OPENED_FRAME
from journal.formats import frame
from journal.formats.compression import Compressor
from journal.formats.frame import HEADER_BYTES, INNER_HEADER, INNER_HEADER_BYTES
from journal.message_headers import GivenHeaders
from txbroker import errors
from txbroker.client.core.call import Call
from txbroker.wire.messages import Answer, Request, Send, Sent

_PLACEHOLDER = Send(0, 0)
_HEADS = MAX_OPENED_HEADS - OPENED_FRAME


class Frames(Protocol):
    """Messages for one partition, in order, as frames that :func:`journal.formats.frame.encode_inner` would make."""

    def __len__(self) -> int: ...

    def fitting(self, first: int, room: int) -> int:
        """Return how many frames, from the ``first`` on, take ``room`` bytes at most."""

    def packed(self, first: int, last: int, position: int) -> memoryview:
        """Return the frames from ``first`` to before ``last``, as a wrapper has them from ``position`` on."""


class Batch(Call[Sent]):
    """Messages of one partition, in order; sealed to one frame, a wrapper from two messages on, or compressed.

    A batch is settled as a whole: its message ``i`` gets ``base_offset + i``. A batch whose caller ran out of time
    stays in its place until the broker has answered, because its sequence is needed there. ``on_settled`` is called
    when the broker has answered, with ``refusal`` not None if it refused. ``watched``: only a flush waits for it.
    ``untold``: a caller that waited for it has given up, so a failure is reported elsewhere.
    """

    __slots__ = (
        "_pieces",
        "acknowledged",
        "count",
        "frames",
        "on_settled",
        "refusal",
        "size",
        "untold",
        "watched",
    )

    def __init__(self, deadline: float, on_settled: Callable[[Batch], None] | None = None) -> None:
        super().__init__(_PLACEHOLDER, Sent, b"", deadline)
        self.count = 0
        self.size = 0
        self.frames = b""
        self.refusal: errors.TxBrokerError | None = None
        self.watched = False
        self.untold = False
        self.acknowledged = False
        self.on_settled = on_settled
        self._pieces: list[bytes | memoryview] = []

    def add(
        self,
        value: bytes | None,
        timestamp: int,
        key: bytes | None,
        headers: GivenHeaders | None,
        room: int,
    ) -> int:
        """Add a message and return its position; -1 if the batch would exceed ``room`` bytes, or is full.

        A first message is always added. Raises as :func:`journal.formats.frame.encode_inner`, and then has added
        nothing.
        """
        count = self.count
        piece = frame.encode_inner(count, value, timestamp, key, headers)
        size = self.size + len(piece)
        if count and (size > room or count >= MAX_REQUEST_MESSAGES):
            return -1
        self._pieces.append(piece)
        self.size = size
        self.count = count + 1
        return count

    @property
    def alone_size(self) -> int:
        """How many bytes its first message has as a frame by itself."""
        return self.size + HEADER_BYTES - INNER_HEADER_BYTES

    def fitting(self, frames: Frames, first: int, room: int) -> int:
        """Return how many frames, from the ``first`` on, it can take within ``room`` bytes and its bound of
        messages.
        """
        return min(frames.fitting(first, room - self.size), MAX_REQUEST_MESSAGES - self.count)

    def add_frames(self, frames: Frames, first: int, last: int) -> None:
        """Add messages that are frames already. Not in a queue, which adds one at a time and may repair that."""
        piece = frames.packed(first, last, self.count)
        self._pieces.append(piece)
        self.size += len(piece)
        self.count += last - first

    def mend(self) -> None:
        """Repair after an interrupt in :meth:`add`: the message is in the batch or it is not."""
        del self._pieces[self.count :]
        self.size = sum(map(len, self._pieces))

    def seal(self, compressor: Compressor | None = None) -> bytes:
        """Return the frames. They are made once, so every sending has the same bytes.

        With a ``compressor`` they are one wrapper, compressed if that saves enough and the broker may open it.
        """
        if not self.frames:
            pieces = self._pieces
            timestamp = INNER_HEADER.unpack_from(pieces[0])[3]
            if compressor is not None and not self._may_be_opened():
                compressor = None
            packed = compressor.pack(b"".join(pieces)) if compressor is not None else None
            if compressor is not None and packed is not None:
                self.frames = frame.encode_wrapper(packed, self.count, timestamp, compressor.number)
            elif self.count == 1:
                self.frames = frame.encode_alone(pieces[0])
            else:
                self.frames = frame.encode_wrapper(b"".join(pieces), self.count, timestamp)
            pieces.clear()
            self.data = self.frames
        return self.frames

    def _may_be_opened(self) -> bool:
        """Return whether a broker opens it: its bytes beside values are bounded, and by default far below the bound."""
        if self.size <= _HEADS:
            return True
        return sum(map(frame.bytes_beside_values, self._pieces)) <= _HEADS

    def number(self, request: Request) -> None:
        """Note the request that carries it."""
        self.request = request
        self.data = self.frames

    @property
    def is_over(self) -> bool:
        """Whether it is stored, and that has been noted."""
        return self.acknowledged and not self.data

    @property
    def base_offset(self) -> int:
        """The offset of its first message; only once it is settled. Raises its error if it failed."""
        return self.result().base_offset

    def answered(self, head: Answer, data: memoryview) -> None:  # noqa: ARG002
        """Note that it is stored."""
        self.refusal = None
        self.acknowledged = True
        self.resolve(cast(Sent, head))
        self._settle()

    def refused(self, error: errors.TxBrokerError) -> None:
        """Note that it is not stored, or that this is unknown: its queue decides."""
        self.refusal = error
        self._settle()

    def abandoned(self, error: errors.TxBrokerError) -> None:
        """Fail: the client is closed."""
        self.refusal = None
        self.fail(error)
        self._settle()

    def _settle(self) -> None:
        if self.on_settled is not None:
            self.on_settled(self)

    def expired(self, error: errors.TxBrokerError) -> bool:
        """Fail its callers; the batch itself stays, because its sequence is needed."""
        self.fail(error)
        self.deadline = float("inf")
        return False

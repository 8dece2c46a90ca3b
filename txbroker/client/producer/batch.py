"""Messages that wait together for one partition, as one request: an open batch, sealed when it goes out."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Protocol, cast

from journal.constants import MAX_OPENED_HEADS, MAX_REQUEST_MESSAGES, OPENED_FRAME
from journal.formats import frame
from journal.formats.compression import Compressor
from journal.formats.frame import HEADER, HEADER_BYTES
from txbroker import errors
from txbroker.client.core.call import Call
from txbroker.wire.messages import Answer, Request, Send, Sent

_PLACEHOLDER = Send(0, 0)
_HEADS = MAX_OPENED_HEADS - OPENED_FRAME


class Frames(Protocol):
    """Messages for one partition, in order, as frames that :func:`journal.formats.frame.encode_inner` would give."""

    def __len__(self) -> int: ...

    def fitting(self, first: int, room: int) -> int:
        """How many from the ``first`` on take ``room`` bytes at most."""

    def packed(self, first: int, last: int, position: int) -> memoryview:
        """Those from ``first`` to before ``last``, as they stand in a wrapper from ``position`` on."""


class Batch(Call[Sent]):
    """Messages of one partition, in order; sealed to one frame, a wrapper from two messages on, or compressed.

    Settled as a whole: message ``i`` of it gets ``base_offset + i``. A batch whose caller ran out of time
    stays in its place until the broker has answered, for its sequence is needed there. ``on_settled`` is
    told when the broker has answered, with ``refusal`` not None if it refused. ``watched``: nobody waits
    for it but a flush. ``untold``: somebody who waited for it has given up, and is to hear of a failure elsewhere.
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
        headers: Mapping[str, bytes] | None,
        room: int,
    ) -> int:
        """Take a message, return its position; -1 if the batch would then be over ``room`` bytes, or has enough.

        A first message is always taken. Raises as :func:`journal.formats.frame.encode_inner`, and then has taken
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

    def fitting(self, frames: Frames, first: int, room: int) -> int:
        """How many of the frames from the ``first`` on it can take without being over ``room`` bytes, or too many."""
        return min(frames.fitting(first, room - self.size), MAX_REQUEST_MESSAGES - self.count)

    def add_frames(self, frames: Frames, first: int, last: int) -> None:
        """Take messages that are frames already. Not in a queue, which takes one at a time and may mend that."""
        piece = frames.packed(first, last, self.count)
        self._pieces.append(piece)
        self.size += len(piece)
        self.count += last - first

    def mend(self) -> None:
        """Taking a message was interrupted: it is in or it is not."""
        del self._pieces[self.count :]
        self.size = sum(map(len, self._pieces))

    def seal(self, compressor: Compressor | None = None) -> bytes:
        """Return the frames, made once, and so with the same bytes however often they are sent.

        With a ``compressor`` they are one wrapper, compressed if that is worth it, and if the broker may open it.
        """
        if not self.frames:
            pieces = self._pieces
            timestamp = HEADER.unpack_from(pieces[0])[3]
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
        """Whether a broker opens it: what it holds beside values is bounded, and by default far from that bound."""
        if self.size <= _HEADS:
            return True
        heads: int = sum(
            HEADER_BYTES + HEADER.unpack_from(piece, position)[6]
            for piece in self._pieces
            for position, *_ in frame.walk(piece)
        )
        return heads <= _HEADS

    def number(self, request: Request) -> None:
        """Give it the request it goes out as."""
        self.request = request
        self.data = self.frames

    @property
    def is_over(self) -> bool:
        """Whether it is stored, and that has been taken in."""
        return self.acknowledged and not self.data

    @property
    def base_offset(self) -> int:
        """The offset of its first message; only once it is done. Raises what it failed with."""
        return self.result().base_offset

    def answered(self, head: Answer, data: memoryview) -> None:  # noqa: ARG002
        """It is stored."""
        self.refusal = None
        self.acknowledged = True
        self.resolve(cast(Sent, head))
        self._settle()

    def refused(self, error: errors.TxBrokerError) -> None:
        """It is not stored, or that is not known: its queue decides."""
        self.refusal = error
        self._settle()

    def abandoned(self, error: errors.TxBrokerError) -> None:
        """The client is closed."""
        self.refusal = None
        self.fail(error)
        self._settle()

    def _settle(self) -> None:
        if self.on_settled is not None:
            self.on_settled(self)

    def expired(self, error: errors.TxBrokerError) -> bool:
        """Tell its callers; the batch itself stays for the sake of the sequence."""
        self.fail(error)
        self.deadline = float("inf")
        return False

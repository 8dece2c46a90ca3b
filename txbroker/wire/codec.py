"""The wire's framing, sans I/O: bytes become typed messages, and back.

``total u32 | head length u32 | head | data length u32 | data``; ``total`` counts what follows it. Heads are
those of :mod:`txbroker.wire.messages`. ``docs/wire_protocol.md`` has worked bytes.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from math import inf
from typing import Any, Generic, TypeVar

import msgspec

from txbroker.errors import PeerViolation
from txbroker.wire.framing import cut
from txbroker.wire.framing import encode as encode
from txbroker.wire.framing import encode_parts as encode_parts
from txbroker.wire.messages import LENGTH_BYTES, MAX_ANSWER_HEAD, MAX_HEAD, AnyAnswer, AnyRequest, Request
from txbroker.wire.newer_request import unread_request, violation

MessageType = TypeVar("MessageType")

_encode_head = msgspec.msgpack.Encoder().encode
_decode_request: Callable[[bytes], Request] = msgspec.msgpack.Decoder(AnyRequest).decode
_NOTHING = memoryview(b"")


def check_request(head: Request) -> None:
    """Raise ``TypeError``, ``ValueError`` or ``OverflowError`` for a head that the broker could not read.

    The encoder also packs bytes in place of text; the broker would close the connection for such a head.
    """
    try:
        _decode_request(_encode_head(head))
    except msgspec.ValidationError as error:
        raise ValueError(str(error)) from error  # before msgspec 0.21 it was none


class ArrayPieces:
    """An array of a head, encoded some elements at a time: thousands at once would hold the reactor."""

    def __init__(self) -> None:
        self._pieces: list[bytes] = []
        self._count = 0

    def add(self, some: list[Any]) -> None:
        """Append these."""
        encoded = _encode_head(some)
        self._pieces.append(encoded[len(_array_head(len(some))) :])
        self._count += len(some)

    def joined(self) -> Any:
        """Return the array, to be encoded in the place of a list."""
        return msgspec.Raw(b"".join((_array_head(self._count), *self._pieces)))


def _array_head(count: int) -> bytes:
    if count < 16:
        return bytes((0x90 | count,))
    return b"\xdc" + count.to_bytes(2) if count < 1 << 16 else b"\xdd" + count.to_bytes(4)


@cache
def _head_decoder(messages: type) -> Callable[[memoryview], Any]:
    """Return what decodes heads of these kinds, made once: it has no state, and making it takes 0.2 ms."""
    return msgspec.msgpack.Decoder(messages).decode


class Decoder(Generic[MessageType]):
    """Takes a peer's bytes as they come, returns whole messages.

    ``unread`` says what becomes of a head that cannot be decoded; by itself it is a violation.
    ``max_data`` bounds the data part. Memory held is at most one message of the largest size, whatever lengths the peer
    claims and however small its pieces are: nothing is reserved ahead of the bytes. After a :class:`PeerViolation` the
    connection must be closed; the decoder refuses more.
    """

    def __init__(
        self,
        messages: type,
        max_data: int,
        max_head: int = MAX_HEAD,
        unread: Callable[[memoryview, Exception], Any] = violation,
    ) -> None:
        self._decode_head: Callable[[memoryview], MessageType] = _head_decoder(messages)
        self._unread = unread
        self._max_data = max_data
        self._max_head = max_head
        # The bytes that have come and were not decoded, from ``_position`` on.
        self._came = _NOTHING
        self._position = 0
        self.uncut = 0
        """The number of bytes that were not decoded: there may be whole messages in them."""
        self.taken = 0
        """The bytes of the messages that :meth:`take` returned last."""
        # The start of a message that has not come whole. A bytearray, not a list of pieces: a peer that sends
        # 16 MiB two bytes at a time would make us hold 430 MiB of objects.
        self.begun = bytearray()
        """The decoded part of a message that is not whole yet."""
        self._needed = LENGTH_BYTES
        self._failed = ""

    @property
    def held(self) -> int:
        """How many bytes are kept of a message that is not whole."""
        return len(self.begun)

    @property
    def missing(self) -> int:
        """The missing bytes of the message that has begun; of its length field, if the length is not known."""
        return self._needed - len(self.begun)

    def feed(self, data: bytes, work: float = inf, each: int = 0) -> list[tuple[MessageType, memoryview]]:
        """Take bytes, return the messages that they complete, each with its data (valid for good).

        Does what :meth:`add` and then :meth:`take` do, in one step if nothing was kept: most reads are a message or
        two.
        """
        if self._failed or self.begun or self.uncut:
            self.add(data)
            return self.take(work, each)
        found: list[tuple[MessageType, memoryview]] = []
        view, self._position = memoryview(data), 0
        if not self._take(view, found, work, each):
            self._came, self.uncut = view, len(view) - self._position
        elif self._position < len(view):
            self.begun += view[self._position :]
        self.taken = self._position
        return found

    def add(self, data: bytes) -> None:
        """Take bytes, and keep them for :meth:`take`."""
        if self._failed:
            raise PeerViolation(self._failed)
        whole: bytes | bytearray = data
        if self.uncut:
            whole = b"".join((self._came[self._position :], data))
        elif self.begun:
            self.begun += data
            if len(self.begun) < self._needed:
                return
            whole, self.begun = self.begun, bytearray()
        self._came, self._position, self.uncut = memoryview(whole), 0, len(whole)

    def take(self, work: float = inf, each: int = 0) -> list[tuple[MessageType, memoryview]]:
        """Return the next whole messages, until they reach ``work``, counted in bytes and ``each`` for each of them."""
        view = self._came
        found: list[tuple[MessageType, memoryview]] = []
        if not self.uncut:
            return found
        start = self._position
        is_all = self._take(view, found, work, each)
        self.taken = self._position - start
        if is_all:
            if self._position < len(view):
                self.begun += view[self._position :]
            self._came, self.uncut = _NOTHING, 0
        else:
            self.uncut = len(view) - self._position
        return found

    def _take(
        self, view: memoryview, found: list[tuple[MessageType, memoryview]], work: float, each: int
    ) -> bool:
        """Append the next whole messages to ``found``; return whether there is no other."""
        try:
            self._position, needed = cut(
                view,
                self._position,
                work,
                each,
                self._max_head,
                self._max_data,
                self._decode_head,
                self._unread,
                found,
            )
        except PeerViolation as error:
            self._failed = str(error)
            self.begun, self._came, self.uncut = bytearray(), _NOTHING, 0
            raise
        if not needed:
            return False
        self._needed = needed
        return True


def request_decoder(max_data: int) -> Decoder[AnyRequest]:
    """Return a decoder for the broker's side."""
    return Decoder(AnyRequest, max_data, unread=unread_request)  # type: ignore[arg-type]


def answer_decoder(max_data: int) -> Decoder[AnyAnswer]:
    """Return a decoder for the client's side."""
    return Decoder(AnyAnswer, max_data, MAX_ANSWER_HEAD)  # type: ignore[arg-type]

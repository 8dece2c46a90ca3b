"""The wire's framing, sans I/O: bytes in, typed messages out, and back.

``total u32 | head length u32 | head | data length u32 | data``; ``total`` counts what follows it. Heads are
those of :mod:`txbroker.commands`. ``docs/wire_protocol.md`` has worked bytes.
"""

from __future__ import annotations

from struct import Struct
from typing import Generic, TypeVar

import msgspec

from txbroker.commands import MAX_HEAD, Answer, AnyAnswer, AnyRequest, Request
from txbroker.errors import PeerViolation

MessageType = TypeVar("MessageType")

_LENGTHS = Struct(">II")
_LENGTH = Struct(">I")
_unpack_lengths = _LENGTHS.unpack_from
_unpack_length = _LENGTH.unpack_from
_pack_lengths = _LENGTHS.pack
_pack_length = _LENGTH.pack
_encode_head = msgspec.msgpack.Encoder().encode
_NO_DATA = _pack_length(0)

OVERHEAD = 8
"""Bytes of a message's lengths that ``total`` counts, beside head and data."""


def encode(head: Request | Answer, data: bytes | memoryview = b"") -> bytes:
    """Return the bytes of one message."""
    packed = _encode_head(head)
    if data:
        size = len(data)
        return b"".join(
            (_pack_lengths(len(packed) + size + OVERHEAD, len(packed)), packed, _pack_length(size), data)
        )
    return _pack_lengths(len(packed) + OVERHEAD, len(packed)) + packed + _NO_DATA


def encode_parts(head: Answer, parts: list[bytes]) -> list[bytes]:
    """Return the bytes of one message as pieces, so that large data is not copied once more."""
    packed = _encode_head(head)
    size = sum(map(len, parts))
    lengths = _pack_lengths(len(packed) + size + OVERHEAD, len(packed))
    return [lengths + packed + _pack_length(size), *parts]


class Decoder(Generic[MessageType]):
    """Takes a peer's bytes as they come, gives whole messages.

    ``max_data`` bounds the data part. Memory held is at most one message of the largest size, whatever lengths
    the peer claims: nothing is reserved ahead of the bytes. After a :class:`PeerViolation` the connection must be
    closed; the decoder refuses more.
    """

    def __init__(self, messages: type, max_data: int) -> None:
        self._decode_head = msgspec.msgpack.Decoder(messages).decode
        self._max_total = MAX_HEAD + max_data + OVERHEAD
        self._pieces: list[bytes] = []
        self._held = 0
        self._needed = 4
        self._failed = ""

    def feed(self, data: bytes) -> list[tuple[MessageType, memoryview]]:
        """Take bytes, return the messages that they complete, each with its data (valid for good)."""
        if self._failed:
            raise PeerViolation(self._failed)
        if self._held:
            self._pieces.append(data)
            self._held += len(data)
            if self._held < self._needed:
                return []
            data = b"".join(self._pieces)
            self._pieces.clear()
        found: list[tuple[MessageType, memoryview]] = []
        position = self._take(data, found)
        rest = data[position:] if position else data
        self._held = len(rest)
        if rest:
            self._pieces.append(rest)
        return found

    def _take(self, data: bytes, found: list[tuple[MessageType, memoryview]]) -> int:
        """Append the whole messages at the start of ``data`` to ``found``; return where they end."""
        position, end = 0, len(data)
        view = memoryview(data)
        while end - position >= 4:
            (total,) = _unpack_length(data, position)
            if total > self._max_total or total < OVERHEAD + 1:
                raise self._violation(f"a message says it has {total} bytes; 9 to {self._max_total} are allowed")
            after = position + 4 + total
            if end >= position + OVERHEAD:
                (head_length,) = _unpack_length(data, position + 4)
                if head_length > total - OVERHEAD or head_length > MAX_HEAD:
                    raise self._violation(f"a message of {total} bytes says its head has {head_length}")
            if after > end:
                self._needed = after - position
                return position
            found.append(self._message(view, position, head_length, after))
            position = after
        self._needed = 4
        return position

    def _message(
        self, view: memoryview, position: int, head_length: int, after: int
    ) -> tuple[MessageType, memoryview]:
        head_end = position + OVERHEAD + head_length
        (data_length,) = _unpack_length(view, head_end)
        if data_length != after - head_end - 4:
            raise self._violation(f"data of {after - head_end - 4} bytes says it has {data_length}")
        try:
            head = self._decode_head(view[position + OVERHEAD : head_end])
        except (msgspec.MsgspecError, UnicodeDecodeError) as error:
            raise self._violation(f"a head is not one of the protocol's: {error}") from error
        return head, view[head_end + 4 : after]

    def _violation(self, reason: str) -> PeerViolation:
        self._failed = reason
        self._pieces.clear()
        self._held = 0
        return PeerViolation(reason)


def request_decoder(max_data: int) -> Decoder[AnyRequest]:
    """A decoder for the broker's side."""
    return Decoder(AnyRequest, max_data)  # type: ignore[arg-type]


def answer_decoder(max_data: int) -> Decoder[AnyAnswer]:
    """A decoder for the client's side."""
    return Decoder(AnyAnswer, max_data)  # type: ignore[arg-type]

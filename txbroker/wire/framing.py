"""How messages of the wire are cut from a peer's bytes, and joined to bytes.

It is one of the modules that are compiled (``journal/compiled.py``).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import msgspec

from journal.formats import octets
from txbroker.errors import PeerViolation
from txbroker.wire.messages import LENGTH_BYTES, OVERHEAD, Answer, Request

MessageType = TypeVar("MessageType")

_encode_head = msgspec.msgpack.Encoder().encode
_NO_DATA = bytes(LENGTH_BYTES)


def encode(head: Request | Answer, data: bytes | memoryview = b"") -> bytes:
    """Return the bytes of one message."""
    packed = _encode_head(head)
    if data:
        size = len(data)
        before = octets.pack_two_u32(len(packed) + size + OVERHEAD, len(packed))
        return b"".join((before, packed, octets.pack_u32(size), data))
    return octets.pack_two_u32(len(packed) + OVERHEAD, len(packed)) + packed + _NO_DATA


def encode_parts(head: Answer, parts: list[bytes]) -> list[bytes]:
    """Return the bytes of one message as pieces, so that large data are not copied once more."""
    packed = _encode_head(head)
    size = sum(map(len, parts))
    before = octets.pack_two_u32(len(packed) + size + OVERHEAD, len(packed))
    return [before + packed + octets.pack_u32(size), *parts]


def cut(
    view: memoryview,
    position: int,
    work: float,
    each: int,
    max_head: int,
    max_data: int,
    decode: Callable[[memoryview], MessageType],
    unread: Callable[[memoryview, Exception], MessageType],
    found: list[tuple[MessageType, memoryview]],
) -> tuple[int, int]:
    """Append the next whole messages to ``found``, until they reach ``work``, counted in bytes and ``each`` for each.

    Returns the position behind them, and the bytes that an unfinished message there needs; 0 if there may be a whole
    one. ``unread`` returns what stands for a head that ``decode`` cannot decode. Raises :class:`PeerViolation`.
    """
    end, stop = len(view), position + work
    max_total = max_head + max_data + OVERHEAD
    while end - position >= OVERHEAD:
        if position >= stop:
            return position, 0
        stop -= each
        total, head_length = octets.unpack_two_u32(view, position)
        if total <= OVERHEAD or total > max_total:
            raise _wrong_total(total, max_total)
        if head_length > total - OVERHEAD or head_length > max_head:
            raise PeerViolation(f"a message of {total} bytes says its head has {head_length}")
        if total - head_length > max_data + OVERHEAD:
            raise PeerViolation(
                f"a message of {total} bytes with a head of {head_length}; {max_data} of data are allowed"
            )
        after = position + LENGTH_BYTES + total
        if after > end:
            return position, after - position
        head_end = position + OVERHEAD + head_length
        (data_length,) = octets.unpack_u32(view, head_end)
        if data_length != after - head_end - LENGTH_BYTES:
            raise PeerViolation(f"data of {after - head_end - LENGTH_BYTES} bytes says it has {data_length}")
        try:
            head = decode(view[position + OVERHEAD : head_end])
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
            head = unread(view[position + OVERHEAD : head_end], error)
        found.append((head, view[head_end + LENGTH_BYTES : after]))
        position = after
    if end - position < LENGTH_BYTES:
        return position, LENGTH_BYTES
    (total,) = octets.unpack_u32(view, position)
    if total <= OVERHEAD or total > max_total:
        raise _wrong_total(total, max_total)
    return position, OVERHEAD


def _wrong_total(total: int, max_total: int) -> PeerViolation:
    start = total.to_bytes(LENGTH_BYTES, "big")
    text = f" (it begins with {start!r}: is txbroker what speaks there?)" if start.isalnum() else ""
    return PeerViolation(
        f"a message says it has {total} bytes{text}; {OVERHEAD + 1} to {max_total} are allowed"
    )

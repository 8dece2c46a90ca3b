"""The check of frames from outside before a broker stores them: everything that a later reader relies on.

A compressed wrapper is opened for that. The bounds are outside of the compressed bytes or are checked while it is
counted, so the cost of a request depends on its limits, not on its sender's intentions.

It is one of the modules that are compiled (``journal/compiled.py``).
"""

from __future__ import annotations

from typing import Final

from crc32c import crc32c

from journal.constants import MAX_ATTRIBUTE, MAX_FRAME, MAX_OPENED_HEADS, MAX_REQUEST_DATA, OPENED_FRAME
from journal.errors import InvalidFrame, MessageTooLarge
from journal.formats import frame_header as header
from journal.formats.compression import WHOLE_ROOM, Room, codec_of, open_payload, opened_size
from journal.formats.frame import UNDECODABLE, open_wrapper, too_short, unpack_attribute, wrong_length
from journal.formats.frame_header import (
    COMPRESSION,
    COMPRESSION_SHIFT,
    CRC_START,
    HEADER_BYTES,
    INNER_HEADER_BYTES,
    KNOWN_FLAGS,
    TOMBSTONE,
    VERSION,
    VERSION_MASK,
    WRAPPER,
)

_NOT_STORED = "; nothing was stored"
_ANY: Final = 1 << 62


def check_run(
    data: bytes | memoryview,
    limit: int = MAX_FRAME,
    opens: bool = True,
    most: int = _ANY,
    left: list[Room] | None = None,
) -> int:
    """Check that ``data`` is a run of whole, sound, unstamped frames; return how many messages they hold.

    It verifies everything that a later reader relies on: lengths, checksums, flags, counts, attributes. No frame is
    over ``limit`` bytes, as it is or uncompressed, and there are at most ``most`` messages. Compressed frames have at
    most ``MAX_REQUEST_DATA`` uncompressed bytes in all, at most ``MAX_OPENED_HEADS`` of it beside values (or the rest
    ``left`` of that). Without ``opens`` they are not opened: what they state is believed if it is possible.

    Raises :class:`InvalidFrame` (also for no frames), :class:`MessageTooLarge` or :class:`CompressionUnavailable`.
    """
    end = len(data)
    room = WHOLE_ROOM if left is None else left[0]
    view = memoryview(data)
    position = messages = 0
    while position < end:
        if end - position < HEADER_BYTES:
            raise too_short(position, end, _NOT_STORED)
        length, crc, offset, appended, _, count, flag, attribute_length = header.unpack_header(data, position)
        if length > limit:
            raise _too_large(position, length, limit)
        if length < HEADER_BYTES or length > end - position:
            raise wrong_length(position, length, end, _NOT_STORED)
        if offset or appended:
            raise _stamped(position, offset, appended)
        after = position + length
        if crc32c(view[position + CRC_START : after]) != crc:
            raise InvalidFrame(f"frame at {position} fails its checksum; nothing was stored")
        messages += count
        if messages > most:
            raise too_many_messages(position, most)  # before these are checked
        if flag == VERSION and count == 1 and not attribute_length:
            pass  # the most common frame: saves 0.1 of 0.8 µs
        elif flag & COMPRESSION:
            room = _check_compressed(view[position:after], position, limit, room, opens)
        else:
            _check_content(view[position:after], count, flag, attribute_length, position)
        position = after
    if not messages:
        raise InvalidFrame("no frames; nothing was stored")
    if left is not None:
        left[0] = room
    return messages


def _stamped(at: int, offset: int, appended: int) -> InvalidFrame:
    return InvalidFrame(
        f"frame at {at} has offset {offset} and append time {appended}, both must come as 0; nothing was stored"
    )


def _too_large(at: int, length: int, limit: int) -> MessageTooLarge:
    return MessageTooLarge(f"frame of {length} bytes at {at}, the limit is {limit}; nothing was stored")


def too_many_messages(at: int, most: int) -> MessageTooLarge:
    """Return the error for more messages, up to the frame at ``at``, than a broker takes at a time."""
    return MessageTooLarge(
        f"the frames up to {at} hold over {most} messages, the limit of one request{_NOT_STORED}. Send smaller batches"
    )


def _check_compressed(frame: memoryview, position: int, limit: int, room: Room, opens: bool) -> Room:
    """Check a compressed frame whose length and checksum are right; return the remaining bounds."""
    *_, count, flag, attribute_length = header.unpack_header(frame, 0)
    what, payload = f"frame at {position}", frame[HEADER_BYTES:]
    if flag & ~COMPRESSION != VERSION | WRAPPER or attribute_length:
        raise InvalidFrame(
            f"{what} has flag {flag:#x} and {attribute_length} attribute bytes: only a wrapper may be compressed"
            f"{_NOT_STORED}"
        )
    number = (flag & COMPRESSION) >> COMPRESSION_SHIFT
    codec_of(number, what, _NOT_STORED)
    size = opened_size(payload, what, _NOT_STORED)
    if HEADER_BYTES + size > limit:
        raise MessageTooLarge(
            f"{what} opens to {HEADER_BYTES + size} bytes, the limit is {limit}{_NOT_STORED}"
        )
    if not 0 < count <= size // INNER_HEADER_BYTES:
        raise InvalidFrame(f"wrapper at {position} says {count} messages in {size} bytes{_NOT_STORED}")
    if not opens:
        return room
    if size > room.opened:
        raise MessageTooLarge(
            f"the compressed frames up to {position} open to over {MAX_REQUEST_DATA} bytes, the limit of one request"
            f"{_NOT_STORED}"
        )
    heads = room.heads - OPENED_FRAME - count * INNER_HEADER_BYTES
    if heads < 0:
        raise _too_many_heads(position)
    opened = memoryview(open_payload(number, payload, what, _NOT_STORED))
    inner, attributes = _count_inner(opened, position, count, heads)
    if inner != count:
        raise InvalidFrame(f"wrapper at {position} says {count} messages, it holds {inner}{_NOT_STORED}")
    return Room(room.opened - size, heads - attributes)


def _too_many_heads(at: int) -> MessageTooLarge:
    return MessageTooLarge(
        f"the compressed frames up to {at} hold over {MAX_OPENED_HEADS} bytes of headers and keys, the limit of one "
        f"request ({INNER_HEADER_BYTES} a message, {OPENED_FRAME} a frame, and what its keys and headers take)"
        f"{_NOT_STORED}. Send smaller batches, or such a one as it is"
    )


def _check_content(frame: memoryview, count: int, flag: int, attribute_length: int, position: int) -> None:
    """Check flag, attribute and count of one frame whose length and checksum are right."""
    if flag & ~KNOWN_FLAGS or flag & VERSION_MASK != VERSION:
        raise InvalidFrame(
            f"frame at {position} has flag {flag:#x}, which is not known here; nothing was stored"
        )
    payload = HEADER_BYTES + attribute_length
    if payload > len(frame) or attribute_length > MAX_ATTRIBUTE:
        raise InvalidFrame(f"frame at {position} says {attribute_length} attribute bytes; nothing was stored")
    if flag & WRAPPER:
        inner = _count_inner(frame[payload:], position, count, _ANY)[0]
        if inner != count or flag & TOMBSTONE or attribute_length:
            raise InvalidFrame(
                f"wrapper at {position} says {count} messages, it holds {inner}; nothing was stored"
            )
        return
    if count != 1:
        raise InvalidFrame(f"frame at {position} says {count} messages, it is one; nothing was stored")
    if flag & TOMBSTONE and payload != len(frame):
        raise InvalidFrame(f"frame at {position} is a tombstone with a value; nothing was stored")
    if attribute_length:
        try:
            unpack_attribute(frame[HEADER_BYTES:payload])
        except UNDECODABLE as error:
            raise _wrong_attribute(f"the frame at {position}", error) from error


def _wrong_attribute(what: str, error: Exception) -> InvalidFrame:
    return InvalidFrame(f"key and headers of {what}: {error}; nothing was stored")


def count_in_wrapper(frame: memoryview) -> int:
    """Return how many messages a stored wrapper holds; opens it if compressed, and checks every inner frame.

    Raises :class:`InvalidFrame` and :class:`CompressionUnavailable`.
    """
    if header.unpack_header(frame, 0)[6] & COMPRESSION:
        return count_inner(memoryview(open_wrapper(frame, "the wrapper")))
    return count_inner(frame[HEADER_BYTES:])


def count_inner(payload: memoryview, at: int = 0) -> int:
    """Check every inner frame in the payload of the wrapper at ``at``, and return how many there are.

    Raises :class:`InvalidFrame`.
    """
    return _count_inner(payload, at, _ANY, _ANY)[0]


def _count_inner(payload: memoryview, at: int, most: int, room: int) -> tuple[int, int]:
    """Do what :func:`count_inner` does, and also return how many bytes keys and headers take.

    It stops at the first message that is more than ``most``, or exceeds ``room``.
    """
    position = messages = attributes = 0
    end = len(payload)
    decode = unpack_attribute  # bound once: 100 a wrapper, 1,000,000 a second
    while position < end and messages <= most:
        if end - position < INNER_HEADER_BYTES:
            raise _wrong_inner(at, messages, f"has only {end - position} bytes")
        length, crc, number, _, count, flag, attribute_length = header.unpack_inner(payload, position)
        bare = length - attribute_length
        if crc or number != messages or count != 1:
            raise _wrong_inner(at, messages, f"has checksum {crc}, number {number}, count {count}")
        if flag != VERSION and (flag != VERSION | TOMBSTONE or bare > INNER_HEADER_BYTES):
            raise _wrong_inner(
                at, messages, f"has flag {flag:#x} and {bare - INNER_HEADER_BYTES} bytes of value"
            )
        if bare < INNER_HEADER_BYTES or length > end - position:
            raise _wrong_inner(at, messages, f"says {length} bytes, {end - position} are there")
        if attribute_length:
            if attribute_length > MAX_ATTRIBUTE:
                raise _wrong_inner(at, messages, f"says {attribute_length} attribute bytes")
            attributes += attribute_length
            if attributes > room:
                raise _too_many_heads(at)
            start = position + INNER_HEADER_BYTES
            try:
                decode(payload[start : start + attribute_length])
            except UNDECODABLE as error:
                raise _wrong_attribute(f"frame {messages} in the wrapper at {at}", error) from error
        messages += 1
        position += length
    if not messages:
        raise InvalidFrame(f"the wrapper at {at} holds no frames; nothing was stored")
    return messages, attributes


def _wrong_inner(at: int, number: int, reason: str) -> InvalidFrame:
    return InvalidFrame(f"frame {number} in the wrapper at {at} {reason}; nothing was stored")

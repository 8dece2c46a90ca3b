"""The bytes of a message: nothing else packs or unpacks them. ``docs/file_format.md`` has a worked example.

A frame is a fixed header of 36 bytes, an attribute (key and headers, msgpack) and the payload::

    length u32 | crc u32 | id u64 | timestamp i64 | count u32 | flag u32 | attribute length u32

``length`` counts the whole frame. ``crc`` is CRC-32C of everything after ``id``; the client computes it and
nobody mends it. ``id`` is the offset: the client sends zero, the broker stamps it, outside the checksum.
A *wrapper* holds a run of frames as its payload and takes ``count`` offsets; frames inside one carry a crc of
zero (the wrapper's covers them) and their position in it as id.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from struct import Struct

import msgspec
from crc32c import crc32c

from journal.constants import MAX_ATTRIBUTE, MAX_FRAME
from journal.errors import InvalidFrame, MessageTooLarge

HEADER = Struct(">IIQqIII")
HEADER_BYTES = HEADER.size
CRC_START = 16
"""Where the bytes covered by the checksum begin."""

VERSION = 0x01000000
VERSION_MASK = 0xFF000000
WRAPPER = 0x1
TOMBSTONE = 0x2
COMPRESSION_MASK = 0xF0
KNOWN_FLAGS = WRAPPER | TOMBSTONE | VERSION_MASK

_unpack_header = HEADER.unpack_from
_pack_id = Struct(">Q").pack_into

assert HEADER_BYTES == 36


class Attribute(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """Key and headers of a message as they lie in its frame."""

    key: bytes | None = None
    headers: dict[str, bytes] = {}


class Message(msgspec.Struct, frozen=True, gc=False):
    """A decoded message. ``timestamp`` is µs UTC as the client gave it; ``value`` is None for a tombstone."""

    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: dict[str, bytes]


_encode_attribute = msgspec.msgpack.Encoder().encode
_decode_attribute = msgspec.msgpack.Decoder(Attribute).decode
_NO_HEADERS: dict[str, bytes] = {}


def encode(
    value: bytes | None,
    timestamp: int,
    key: bytes | None = None,
    headers: Mapping[str, bytes] | None = None,
) -> bytes:
    """Return the frame of one message, id zero. ``value`` None makes a tombstone.

    Raises :class:`MessageTooLarge` if key and headers are over ``MAX_ATTRIBUTE``. Whether the whole frame is
    acceptable is for its reader to say: limits differ between brokers.
    """
    flag, payload = (VERSION | TOMBSTONE, b"") if value is None else (VERSION, value)
    attribute = _attribute_bytes(key, headers)
    tail = _TAIL.pack(timestamp, 1, flag, len(attribute)) + attribute + payload
    return _HEAD.pack(len(tail) + CRC_START, crc32c(tail), 0) + tail


def encode_inner(
    position: int,
    value: bytes | None,
    timestamp: int,
    key: bytes | None = None,
    headers: Mapping[str, bytes] | None = None,
) -> bytes:
    """Return the frame of one message for the inside of a wrapper: crc zero, id its position."""
    flag, payload = (VERSION | TOMBSTONE, b"") if value is None else (VERSION, value)
    attribute = _attribute_bytes(key, headers)
    length = HEADER_BYTES + len(attribute) + len(payload)
    return HEADER.pack(length, 0, position, timestamp, 1, flag, len(attribute)) + attribute + payload


def encode_wrapper(inner: bytes, count: int, timestamp: int) -> bytes:
    """Return a wrapper frame around ``count`` frames made by :func:`encode_inner`, joined in order."""
    tail = _TAIL.pack(timestamp, count, VERSION | WRAPPER, 0) + inner
    return _HEAD.pack(len(tail) + CRC_START, crc32c(tail), 0) + tail


_HEAD = Struct(">IIQ")
_TAIL = Struct(">qIII")


def _attribute_bytes(key: bytes | None, headers: Mapping[str, bytes] | None) -> bytes:
    if key is None and not headers:
        return b""
    attribute = _encode_attribute(Attribute(key, dict(headers or {})))
    if len(attribute) > MAX_ATTRIBUTE:
        raise MessageTooLarge(
            f"key and headers take {len(attribute)} bytes, the limit is {MAX_ATTRIBUTE}; nothing was sent"
        )
    return attribute


def check_run(data: bytes | memoryview, limit: int = MAX_FRAME) -> int:
    """Check that ``data`` is a run of whole, sound, unstamped frames; return how many messages they hold.

    Everything is verified that a later reader relies on: lengths, checksums, flags, counts, attributes.
    Raises :class:`InvalidFrame` or :class:`MessageTooLarge`, naming the position. An empty run is invalid.
    """
    end = len(data)
    view = memoryview(data)
    position = messages = 0
    while position < end:
        if end - position < HEADER_BYTES:
            raise InvalidFrame(
                f"{end - position} bytes at {position} are too few for a frame; nothing was stored"
            )
        length, crc, offset, _, count, flag, attribute_length = _unpack_header(data, position)
        if length > limit:
            raise MessageTooLarge(
                f"frame of {length} bytes at {position}, the limit is {limit}; nothing was stored"
            )
        if length < HEADER_BYTES or length > end - position:
            raise InvalidFrame(
                f"frame at {position} says {length} bytes, {end - position} are there; nothing was stored"
            )
        if offset:
            raise InvalidFrame(
                f"frame at {position} has offset {offset}, it must come as 0; nothing was stored"
            )
        frame = view[position : position + length]
        if crc32c(frame[CRC_START:]) != crc:
            raise InvalidFrame(f"frame at {position} fails its checksum; nothing was stored")
        messages += _check_content(frame, count, flag, attribute_length, position)
        position += length
    if not messages:
        raise InvalidFrame("no frames; nothing was stored")
    return messages


def _check_content(frame: memoryview, count: int, flag: int, attribute_length: int, position: int) -> int:
    """Check flag, attribute and count of one frame whose length and checksum are right; return its count."""
    if flag & ~KNOWN_FLAGS or flag & VERSION_MASK != VERSION:
        raise InvalidFrame(
            f"frame at {position} has flag {flag:#x}, which is not known here; nothing was stored"
        )
    if HEADER_BYTES + attribute_length > len(frame) or attribute_length > MAX_ATTRIBUTE:
        raise InvalidFrame(f"frame at {position} says {attribute_length} attribute bytes; nothing was stored")
    if flag & WRAPPER:
        inner = count_inner(frame[HEADER_BYTES + attribute_length :])
        if inner != count or flag & TOMBSTONE or attribute_length:
            raise InvalidFrame(
                f"wrapper at {position} says {count} messages, it holds {inner}; nothing was stored"
            )
        return count
    if count != 1:
        raise InvalidFrame(f"frame at {position} says {count} messages, it is one; nothing was stored")
    if attribute_length:
        _check_attribute(frame[HEADER_BYTES : HEADER_BYTES + attribute_length], position)
    return 1


def _check_attribute(attribute: memoryview, position: int) -> None:
    try:
        _decode_attribute(attribute)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise InvalidFrame(
            f"key and headers of the frame at {position}: {error}; nothing was stored"
        ) from error


def count_inner(payload: memoryview) -> int:
    """Walk a wrapper's payload, check every inner frame, return how many there are."""
    position = messages = 0
    end = len(payload)
    unpack = _unpack_header  # bound once: 100 of these a wrapper, 1,000,000 a second
    while position < end:
        if end - position < HEADER_BYTES:
            raise InvalidFrame(f"inside a wrapper, {end - position} bytes are too few for a frame")
        length, crc, number, _, count, flag, attribute_length = unpack(payload, position)
        if crc or number != messages or count != 1 or flag & ~TOMBSTONE != VERSION:
            raise InvalidFrame(
                f"inside a wrapper, frame {messages} has a header that is not an inner frame's"
            )
        if length < HEADER_BYTES + attribute_length or length > end - position:
            raise InvalidFrame(
                f"inside a wrapper, frame {messages} says {length} bytes, {end - position} are there"
            )
        if attribute_length:
            start = position + HEADER_BYTES
            _check_attribute(payload[start : start + attribute_length], position)
        messages += 1
        position += length
    if not messages:
        raise InvalidFrame("a wrapper holds no frames")
    return messages


def stamp(view: memoryview, base_offset: int) -> int:
    """Write offsets into a run of checked frames, from ``base_offset`` on; return the offset after them."""
    position, end = 0, len(view)
    while position < end:
        header = _unpack_header(view, position)
        _pack_id(view, position + 8, base_offset)
        base_offset += header[4]
        position += header[0]
    return base_offset


def walk(data: bytes | memoryview) -> Iterator[tuple[int, int, int, int]]:
    """Yield (position, length, offset, count) of the frames of a run that is known to be whole.

    Raises :class:`InvalidFrame` where a length cannot be true.
    """
    position, end = 0, len(data)
    while position < end:
        if end - position < HEADER_BYTES:
            raise InvalidFrame(f"{end - position} bytes at {position} are too few for a frame")
        length, _, offset, _, count, _, _ = _unpack_header(data, position)
        if length < HEADER_BYTES or length > end - position:
            raise InvalidFrame(f"frame at {position} says {length} bytes, {end - position} are there")
        yield position, length, offset, count
        position += length


def is_sound(frame: bytes | memoryview) -> bool:
    """Whether one whole frame fulfils its own checksum."""
    return len(frame) >= HEADER_BYTES and crc32c(memoryview(frame)[CRC_START:]) == _unpack_header(frame)[1]


def decode_run(data: bytes | memoryview, from_offset: int = 0) -> list[Message]:
    """Decode a run of stamped frames, wrappers opened, to the messages at ``from_offset`` and after.

    Checks every checksum. Raises :class:`InvalidFrame`, naming the position.
    """
    messages: list[Message] = []
    view = memoryview(data)
    for position, length, offset, count in walk(view):
        if offset + count <= from_offset:
            continue
        frame = view[position : position + length]
        _, crc, _, timestamp, _, flag, attribute_length = _unpack_header(frame)
        if crc32c(frame[CRC_START:]) != crc:
            raise InvalidFrame(f"frame at {position} (offset {offset}) fails its checksum")
        if flag & WRAPPER:
            _decode_inner(frame[HEADER_BYTES + attribute_length :], offset, from_offset, messages)
        else:
            messages.append(_decode_one(frame, 0, length, offset, timestamp, flag, attribute_length))
    return messages


def _decode_inner(payload: memoryview, base: int, from_offset: int, messages: list[Message]) -> None:
    position, end = 0, len(payload)
    while position < end:
        length, _, number, timestamp, _, flag, attribute_length = _unpack_header(payload, position)
        if length < HEADER_BYTES or length > end - position:
            raise InvalidFrame(f"inside the wrapper at offset {base}, frame {number} says {length} bytes")
        if base + number >= from_offset:
            messages.append(
                _decode_one(payload, position, length, base + number, timestamp, flag, attribute_length)
            )
        position += length


def _decode_one(
    view: memoryview,
    position: int,
    length: int,
    offset: int,
    timestamp: int,
    flag: int,
    attribute_length: int,
) -> Message:
    start = position + HEADER_BYTES
    key, headers = None, _NO_HEADERS
    if attribute_length:
        attribute = _decode_attribute(view[start : start + attribute_length])
        key, headers = attribute.key, attribute.headers
    value = None if flag & TOMBSTONE else bytes(view[start + attribute_length : position + length])
    return Message(offset, timestamp, key, value, headers)

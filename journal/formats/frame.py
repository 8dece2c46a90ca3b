"""The bytes of a message: only this module packs or unpacks them. ``docs/file_format.md`` has a worked example.

A frame is a fixed header of 44 bytes, an attribute (key and headers, msgpack) and the payload::

    length u32 | crc u32 | id u64 | appended i64 | timestamp i64 | count u32 | flag u32 | attribute length u32

``length`` counts the whole frame. ``crc`` is CRC-32C of everything after ``appended``; the client computes it and
nothing changes it later. ``id`` is the offset, and ``appended`` the broker's time of the append, µs since 1970: the
client sends zeros, the log stamps both, outside the checksum. A *wrapper* holds a run of inner frames as its payload
and takes ``count`` offsets. Their headers have no ``appended``, so 36 bytes; their crc is zero (the wrapper's covers
them), their id is their position in it. The run may be compressed (``journal/formats/compression.py``).
"""

from __future__ import annotations

from collections.abc import Iterator
from struct import Struct
from struct import error as StructError

import msgspec
from crc32c import crc32c

from journal.arguments import NOTHING_SENT, OCTETS_OR_NONE, octets, whole
from journal.constants import MAX_ATTRIBUTE, MIB
from journal.errors import InvalidFrame, MessageTooLarge, RequestRefused
from journal.formats.compression import open_payload
from journal.formats.frame_header import COMPRESSION as COMPRESSION
from journal.formats.frame_header import COMPRESSION_SHIFT as COMPRESSION_SHIFT
from journal.formats.frame_header import CRC_START as CRC_START
from journal.formats.frame_header import HEADER as HEADER
from journal.formats.frame_header import HEADER_BYTES as HEADER_BYTES
from journal.formats.frame_header import INNER_HEADER as INNER_HEADER
from journal.formats.frame_header import INNER_HEADER_BYTES as INNER_HEADER_BYTES
from journal.formats.frame_header import KNOWN_FLAGS as KNOWN_FLAGS
from journal.formats.frame_header import STAMP_START as STAMP_START
from journal.formats.frame_header import TOMBSTONE as TOMBSTONE
from journal.formats.frame_header import VERSION as VERSION
from journal.formats.frame_header import VERSION_MASK as VERSION_MASK
from journal.formats.frame_header import WRAPPER as WRAPPER
from journal.formats.frame_header import unpack_header as _unpack_header
from journal.formats.frame_header import unpack_inner as _unpack_inner
from journal.formats.frame_stamp import stamp as stamp
from journal.formats.frame_stamp import stamp_some as stamp_some
from journal.message_headers import (
    ID_HEADER,
    GivenHeaders,
    Headers,
    check_names,
    headers_of,
    last_value,
    tags_of,
)

LOST = 0x4
"""Only in segments, set by a repair: ``count`` messages were here whose bytes no file holds any more. Never sent."""

GAP = 0x8
"""Only in segments, set by a compaction: ``count`` messages were here that nobody reads any more. Readers skip it."""
MOST_IN_GAP = 1 << 18
"""Most messages for which one frame stands. A walk over damage takes no count for possible that is much larger."""

PIECE_BYTES = MIB
"""About how many uncompressed bytes of compressed frames are decoded at a time."""

_WRAPPER = VERSION | WRAPPER

_INNER_TAIL = 16
"""Where in an inner frame the bytes begin that a frame has from ``CRC_START`` on."""
_UNSTAMPED = bytes(CRC_START - STAMP_START)

_unpack_length_id_count = Struct(">I4xQ16xI").unpack_from


class Attribute(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """Key and headers of a message as its frame has them."""

    key: bytes | None = None
    headers: Headers = ()


class Message(msgspec.Struct, frozen=True, gc=False):
    """A decoded message. ``timestamp`` is µs UTC as the client gave it; ``value`` is None for a tombstone.

    ``headers`` are pairs of name and value; a name may come more than once. ``appended`` is when the log took it, µs
    since 1970 UTC by the wall clock of the start; 0 for one that is in no log yet, or that a repair found again without
    its time.
    """

    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: Headers = ()
    appended: int = 0

    def header(self, name: str) -> bytes | None:
        """The value of the last header of that name, None if there is none."""
        return last_value(self.headers, name)

    @property
    def id(self) -> bytes | None:
        """The id that its sender gave it, None if it has none."""
        return last_value(self.headers, ID_HEADER)

    @property
    def tags(self) -> tuple[str, ...]:
        """The tags that its sender gave it."""
        return tags_of(self.headers)


_encode_attribute = msgspec.msgpack.Encoder().encode
unpack_attribute = msgspec.msgpack.Decoder(Attribute).decode


def encode(
    value: bytes | None,
    timestamp: int,
    key: bytes | None = None,
    headers: GivenHeaders | None = None,
) -> bytes:
    """Return the frame of one message, unstamped. ``value`` None makes a tombstone.

    Raises as :func:`encode_inner`. Whether the whole frame is acceptable is not checked here, because limits differ
    between brokers.
    """
    return encode_alone(encode_inner(0, value, timestamp, key, headers))


def encode_alone(inner: bytes | memoryview, offset: int = 0, appended: int = 0) -> bytes:
    """Return a frame of its own for one as it is inside of a wrapper (:func:`encode_inner`): unstamped, as
    :func:`encode` returns it, or stamped with its offset and its wrapper's append time.
    """
    tail = memoryview(inner)[_INNER_TAIL:]
    return b"".join((_HEAD.pack(CRC_START + len(tail), crc32c(tail), offset, appended), tail))


def encode_inner(
    position: int,
    value: bytes | None,
    timestamp: int,
    key: bytes | None = None,
    headers: GivenHeaders | None = None,
) -> bytes:
    """Return the frame of one message for the inside of a wrapper: crc zero, id its position.

    It is a copy: later changes of the caller's bytearray, dict or list have no effect. Raises :class:`WrongType` and
    :class:`WrongValue`, and :class:`MessageTooLarge` if key and headers are over ``MAX_ATTRIBUTE``.
    """
    flag, payload = (VERSION, value) if type(value) is bytes else _payload(value)
    attribute = b"" if key is None and headers is None else _attribute_bytes(key, headers)
    length = INNER_HEADER_BYTES + len(attribute) + len(payload)
    try:
        return (
            INNER_HEADER.pack(length, 0, position, timestamp, 1, flag, len(attribute)) + attribute + payload
        )
    except StructError:
        whole("timestamp", timestamp)
        raise MessageTooLarge(
            f"the message takes {length} bytes, more than a frame can say; {NOTHING_SENT}"
        ) from None


def encode_wrapper(inner: bytes, count: int, timestamp: int, number: int = 0) -> bytes:
    """Return a wrapper frame around ``count`` frames made by :func:`encode_inner`, joined in order.

    ``number`` is the codec's if ``inner`` is the compressed payload of such a run.
    """
    tail = _TAIL.pack(timestamp, count, VERSION | WRAPPER | number << COMPRESSION_SHIFT, 0) + inner
    return _HEAD.pack(len(tail) + CRC_START, crc32c(tail), 0, 0) + tail


def encode_lost(offset: int, count: int, length: int) -> bytes:
    """Return the frame that takes the place of ``count`` lost messages in ``length`` bytes of a segment."""
    tail = _TAIL.pack(0, count, VERSION | LOST, 0) + bytes(length - HEADER_BYTES)
    return _HEAD.pack(length, crc32c(tail), offset, 0) + tail


def encode_gap(offset: int, count: int) -> bytes:
    """Return the frames that take the place of ``count`` messages which nobody reads any more."""
    found = bytearray()
    for first in range(offset, offset + count, MOST_IN_GAP):
        tail = _TAIL.pack(0, min(MOST_IN_GAP, offset + count - first), VERSION | GAP, 0)
        found += _HEAD.pack(HEADER_BYTES, crc32c(tail), first, 0) + tail
    return bytes(found)


_HEAD = Struct(">IIQq")
_TAIL = Struct(">qIII")


def _payload(value: object) -> tuple[int, bytes]:
    """Return flag and payload of a value that is not plain bytes."""
    if value is None:
        return VERSION | TOMBSTONE, b""
    return VERSION, octets("value", value, wanted=OCTETS_OR_NONE)


def _attribute_bytes(key: bytes | None, headers: GivenHeaders | None) -> bytes:
    """Return the encoded key and headers; text is refused, because the broker would refuse the whole batch."""
    pairs = () if headers is None else headers_of(headers)
    if key is None and not pairs:
        return b""
    if key is not None and type(key) is not bytes:
        key = octets("key", key, wanted=OCTETS_OR_NONE)
    try:
        attribute = _encode_attribute(Attribute(key, pairs))
    except UnicodeEncodeError:
        check_names(pairs)
        raise
    if len(attribute) > MAX_ATTRIBUTE:
        raise MessageTooLarge(
            f"key and headers take {len(attribute)} bytes, the limit is {MAX_ATTRIBUTE}; {NOTHING_SENT}"
        )
    return attribute


UNDECODABLE = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError)
"""The errors of msgspec for bytes from outside: wrong types, text that is no UTF-8, arrays nested too deep."""


def too_short(position: int, end: int, state: str = "") -> InvalidFrame:
    """Return the error for a run that ends within a header; ``state`` ends its text."""
    return InvalidFrame(f"{end - position} bytes at {position} are too few for a frame{state}")


def wrong_length(position: int, length: int, end: int, state: str = "") -> InvalidFrame:
    """Return the error for a frame with an impossible length; ``state`` ends its text."""
    return InvalidFrame(f"frame at {position} says {length} bytes, {end - position} are there{state}")


def is_compressed(frames: bytes | memoryview) -> bool:
    """Return whether the first frame is a compressed wrapper."""
    return bool(_unpack_header(frames)[6] & COMPRESSION)


def unstamped(frames: bytes | memoryview) -> bytes:
    """Return a run of frames as it was sent: without offsets and append times. Raises :class:`InvalidFrame`."""
    found = bytearray(frames)
    for position, *_ in walk(frames):
        found[position + STAMP_START : position + CRC_START] = _UNSTAMPED
    return bytes(found)


def walk(data: bytes | memoryview) -> Iterator[tuple[int, int, int, int]]:
    """Yield (position, length, offset, count) of the frames of a run that is known to be whole.

    Raises :class:`InvalidFrame` at an impossible length.
    """
    position, end = 0, len(data)
    while position < end:
        if end - position < HEADER_BYTES:
            raise too_short(position, end)
        length, offset, count = _unpack_length_id_count(data, position)
        if length < HEADER_BYTES or length > end - position:
            raise wrong_length(position, length, end)
        yield position, length, offset, count
        position += length


def walk_begun(data: memoryview, position: int) -> Iterator[tuple[int, int, int, int]]:
    """Yield as :func:`walk` of the frames that begin in ``data`` from ``position`` on; the last may go on behind it."""
    while position < len(data):
        length, offset, count = _unpack_length_id_count(data, position)
        yield position, length, offset, count
        position += length


def walk_inner(data: bytes | memoryview) -> Iterator[tuple[int, int, int]]:
    """Yield (position, length, attribute length) of the frames inside of a wrapper; raises as :func:`walk`."""
    position, end = 0, len(data)
    while position < end:
        if end - position < INNER_HEADER_BYTES:
            raise too_short(position, end)
        length, *_, attribute = _unpack_inner(data, position)
        if length < INNER_HEADER_BYTES + attribute or length > end - position:
            raise wrong_length(position, length, end)
        yield position, length, attribute
        position += length


def bytes_beside_values(inner: bytes | memoryview) -> int:
    """Return how many bytes of a run of inner frames, known to be whole, are headers and attributes."""
    position = found = 0
    while position < len(inner):
        header = _unpack_inner(inner, position)
        found += INNER_HEADER_BYTES + header[6]
        position += header[0]
    return found


def decode_attribute(attribute: bytes | memoryview) -> Attribute:
    """Return key and headers of a stored frame. Raises :class:`InvalidFrame`."""
    try:
        return unpack_attribute(attribute)
    except UNDECODABLE as error:
        raise InvalidFrame(f"key and headers cannot be decoded: {error}") from error


def append_time(frame: bytes | memoryview) -> int:
    """Return when a stamped frame was appended, µs since 1970; 0 if that is not known."""
    appended: int = _unpack_header(frame)[3]
    return appended


def has_gap(frames: bytes | memoryview) -> bool:
    """Return whether some of the messages of a whole run of frames were removed by a compaction."""
    return any(_unpack_header(frames, position)[6] & GAP for position, *_ in walk(frames))


def is_sound(frame: bytes | memoryview) -> bool:
    """Return whether one whole frame fulfils its own checksum."""
    return len(frame) >= HEADER_BYTES and crc32c(memoryview(frame)[CRC_START:]) == _unpack_header(frame)[1]


def decode_run(data: bytes | memoryview, from_offset: int = 0) -> list[Message]:
    """Decode a run of stamped frames, wrappers opened, to the messages at ``from_offset`` and after.

    Checks every checksum of what it decodes. Raises :class:`InvalidFrame`, naming the position, and
    :class:`CompressionUnavailable`. Compressed frames may become many times larger: use :func:`decode_pieces` for a run
    from elsewhere.
    """
    messages: list[Message] = []
    for piece, _ in decode_pieces(data, from_offset):
        messages = messages + piece if messages else piece
    return messages


def decode_pieces(data: bytes | memoryview, from_offset: int = 0) -> Iterator[tuple[list[Message], int]]:
    """Decode as :func:`decode_run`, but only up to about ``PIECE_BYTES`` of compressed frames' contents at a time.

    Yields messages, at least one, and how many bytes of uncompressed frames they took. Without compressed frames a run
    is one piece. If a compressed one cannot be opened, the messages before it are yielded first.
    """
    # Values are slices of bytes, not copies out of views: this saves 0.2 µs a message, for one copy of the run.
    whole = data if type(data) is bytes else bytes(data)
    view = memoryview(whole)
    messages: list[Message] = []
    unpack = _unpack_header
    position, end = 0, len(whole)
    begin = opened = 0
    while position < end:
        if end - position < HEADER_BYTES:
            raise too_short(position, end)
        length, crc, offset, appended, timestamp, count, flag, attribute_length = unpack(whole, position)
        if length < HEADER_BYTES or length > end - position:
            raise wrong_length(position, length, end)
        after = position + length
        if offset + count > from_offset and not flag & GAP:
            if crc32c(view[position + CRC_START : after]) != crc:
                raise InvalidFrame(f"frame at {position} (offset {offset}) fails its checksum")
            if flag == _WRAPPER and not attribute_length:
                begins = position + HEADER_BYTES
                _decode_inner(whole, begins, after, offset, appended, count, from_offset, messages)
            elif flag & COMPRESSION:
                try:
                    inside, size = _decode_compressed(view[position:after], from_offset)
                except RequestRefused:
                    if messages:
                        yield messages, position - begin + opened  # sound, and all that can be read before it
                    raise
                messages += inside
                opened += size
            else:
                content = position + HEADER_BYTES
                one = _decode_one(whole, content, after, offset, appended, timestamp, flag, attribute_length)
                messages.append(one)
        position = after
        if opened >= PIECE_BYTES:
            yield messages, position - begin + opened
            messages, begin, opened = [], position, 0
    if messages:
        yield messages, position - begin + opened


def _decode_compressed(frame: memoryview, from_offset: int) -> tuple[list[Message], int]:
    """Return the messages at ``from_offset`` and after of a compressed wrapper, and its uncompressed size."""
    _, _, offset, appended, _, count, flag, attribute_length = _unpack_header(frame)
    what = f"the wrapper at offset {offset}"
    if flag & ~COMPRESSION != _WRAPPER or attribute_length:
        raise InvalidFrame(f"{what} has flag {flag:#x}: only a wrapper may be compressed")
    run = open_wrapper(frame, what)
    messages: list[Message] = []
    _decode_inner(run, 0, len(run), offset, appended, count, from_offset, messages)
    return messages, len(run)


def open_wrapper(frame: memoryview, what: str, state: str = "") -> bytes:
    """Return the run of frames in a compressed wrapper.

    Raises :class:`InvalidFrame` and :class:`CompressionUnavailable`; ``what`` begins their texts, ``state`` ends them.
    """
    number = (_unpack_header(frame)[6] & COMPRESSION) >> COMPRESSION_SHIFT
    return open_payload(number, frame[HEADER_BYTES:], what, state)


def uncompressed(frame: memoryview, what: str) -> bytes:
    """Return a compressed wrapper without its compression, stamped alike; raises as :func:`open_wrapper`."""
    _, _, offset, appended, timestamp, count, flag, attribute_length = _unpack_header(frame)
    if flag & ~COMPRESSION != _WRAPPER or attribute_length:
        raise InvalidFrame(f"{what} has flag {flag:#x}: only a wrapper may be compressed")
    tail = _TAIL.pack(timestamp, count, VERSION | WRAPPER, 0) + open_wrapper(frame, what)
    return _HEAD.pack(len(tail) + CRC_START, crc32c(tail), offset, appended) + tail


def _decode_inner(
    whole: bytes,
    position: int,
    end: int,
    base: int,
    appended: int,
    count: int,
    from_offset: int,
    messages: list[Message],
) -> None:
    """Append the messages at ``from_offset`` and after of a wrapper that holds ``whole[position:end]``."""
    unpack, append = _unpack_inner, messages.append
    offset = base
    while position < end:
        if end - position < INNER_HEADER_BYTES:
            raise too_short(position, end)
        length, _, _, timestamp, _, flag, attribute_length = unpack(whole, position)
        if length < INNER_HEADER_BYTES or length > end - position:
            raise wrong_length(position, length, end)
        content, after = position + INNER_HEADER_BYTES, position + length
        if offset >= from_offset:
            if flag == VERSION and not attribute_length:  # the most common frame: saves a call, 0.1 µs
                append(Message(offset, timestamp, None, whole[content:after], (), appended))
            else:
                append(
                    _decode_one(whole, content, after, offset, appended, timestamp, flag, attribute_length)
                )
        offset += 1
        position = after
    if offset != base + count:
        raise InvalidFrame(f"the wrapper at offset {base} says {count} messages, it holds {offset - base}")


def _decode_one(
    whole: bytes,
    content: int,
    after: int,
    offset: int,
    appended: int,
    timestamp: int,
    flag: int,
    attribute_length: int,
) -> Message:
    """Return the message of a frame whose key, headers and value are ``whole[content:after]``."""
    payload = content + attribute_length
    if flag & ~TOMBSTONE != VERSION or payload > after:
        raise InvalidFrame(
            f"the frame of offset {offset} has flag {flag:#x} and {attribute_length} attribute bytes, which cannot be "
            "read here"
        )
    value = None if flag & TOMBSTONE else whole[payload:after]
    if not attribute_length:
        return Message(offset, timestamp, None, value, (), appended)
    try:
        attribute = unpack_attribute(whole[content:payload])
    except UNDECODABLE as error:
        raise InvalidFrame(f"key and headers of the frame of offset {offset}: {error}") from error
    return Message(offset, timestamp, attribute.key, value, attribute.headers, appended)

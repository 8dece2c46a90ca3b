"""The bytes of a scheduled message: only this module packs or unpacks them (decision 0054).

An envelope is the frame of one message of the internal topic :data:`SCHEDULE_TOPIC`. Its timestamp is the due time, its
key says for which partition it is and by which clock it is due, and its value is the frame that the partition gets::

    key = partition number i64 | clock u8

For a message that is to go through an exchange when it is due, the address of that exchange, which is negative, stands
where the partition's number does (:func:`journal.records.queue_entries.address_of`, decision 0066).
The log of an envelope and its offset there are the id of the message.
"""

from __future__ import annotations

import enum
from collections.abc import Iterator
from struct import Struct
from typing import Final, NamedTuple

import msgspec

from journal.errors import InvalidFrame
from journal.formats import frame
from journal.formats.filenames import RESERVED_PREFIX
from journal.formats.frame import HEADER, HEADER_BYTES
from journal.formats.frame_header import TOMBSTONE, WRAPPER
from journal.message_headers import ID_HEADER, last_value

SCHEDULE_TOPIC: Final = RESERVED_PREFIX + "schedule"
"""The topic whose logs keep what is scheduled."""
PLACES_TOPIC: Final = RESERVED_PREFIX + "schedule_places"
"""The topic whose log tells where messages were placed when they were due."""

MINUTE: Final = 60 * 1_000_000
DAY: Final = 24 * 60 * MINUTE
HORIZONS: Final = (
    MINUTE, 15 * MINUTE, 4 * 60 * MINUTE, 2 * DAY, 16 * DAY, 128 * DAY, 1024 * DAY, 3653 * DAY
)  # fmt: skip
"""How far ahead, in µs, the messages of each of the schedule's logs are sent at most."""
LOGS: Final = len(HORIZONS)

_LOG_BITS: Final = 3
assert 1 << _LOG_BITS == LOGS
OFFSET_BITS: Final = 39
ID_BITS: Final = OFFSET_BITS + _LOG_BITS
"""An id is below ``1 << ID_BITS``: half a million million messages in each log."""

_KEY: Final = Struct(">qB")
_ID: Final = ID_HEADER.encode()
_encode = msgspec.msgpack.Encoder().encode


class Clock(enum.IntEnum):
    """The clock by which a message is due: schedule time, which is time that has passed; or the wall clock."""

    ELAPSED = 1
    WALL = 2


class Envelope(NamedTuple):
    """A scheduled message: ``due`` is µs by its clock, ``frame`` the unstamped frame for ``partition``, ``offset``
    where it is in its log. A negative ``partition`` is the address of an exchange.
    """

    offset: int
    partition: int
    clock: Clock
    due: int
    frame: memoryview


def log_for(ahead: int) -> int:
    """Return the index of the log for what is sent ``ahead`` µs before it is due, however long that is."""
    return next((index for index, horizon in enumerate(HORIZONS) if ahead <= horizon), LOGS - 1)


def id_of(log: int, offset: int) -> int:
    """Return the id of the message at an offset of the schedule's log of that index."""
    return offset << _LOG_BITS | log


def place_of(number: int) -> tuple[int, int]:
    """Return the index of the log of an id, and the offset there."""
    return number & (LOGS - 1), number >> _LOG_BITS


def key_of(partition: int, clock: Clock) -> bytes:
    """Return the key of an envelope."""
    return _KEY.pack(partition, clock)


class EnvelopeMessage(NamedTuple):
    """The message that an envelope is in its log."""

    value: bytes
    timestamp: int
    key: bytes
    headers: dict[str, bytes] | None


def enclosed(inner: bytes | memoryview, partition: int, clock: Clock, due: int) -> EnvelopeMessage:
    """Return what the envelope of a frame of one message says. It has the id of that message, too, by which it can be
    found.
    """
    end = HEADER_BYTES + HEADER.unpack_from(inner)[7]
    attribute = bytes(inner[HEADER_BYTES:end])
    named = last_value(frame.decode_attribute(attribute).headers, ID_HEADER) if _ID in attribute else None
    headers = None if named is None else {ID_HEADER: named}
    return EnvelopeMessage(bytes(inner), due, key_of(partition, clock), headers)


def seal(inner: bytes | memoryview, partition: int, clock: Clock, due: int) -> bytes:
    """Return the envelope of a frame of one message, unstamped."""
    return frame.encode(*enclosed(inner, partition, clock, due))


def envelopes(data: bytes | memoryview) -> Iterator[Envelope]:
    """Yield the envelopes of a run of frames, whole and checked; frames of messages that are lost are left out.

    Raises :class:`InvalidFrame` for a frame that is no envelope.
    """
    view = memoryview(data)
    position, end = 0, len(view)
    while position < end:
        length, _, offset, _, due, count, flag, attribute = HEADER.unpack_from(view, position)
        if not flag & frame.LOST:
            if count != 1 or flag & (WRAPPER | TOMBSTONE):
                raise InvalidFrame(
                    f"the frame at offset {offset} of the schedule holds {count} messages, or none: each is scheduled "
                    "alone"
                )
            key_end = position + HEADER_BYTES + attribute
            partition, clock = _said(view[position + HEADER_BYTES : key_end], offset)
            yield Envelope(offset, partition, clock, due, view[key_end : position + length])
        position += length


def _said(attribute: memoryview, offset: int) -> tuple[int, Clock]:
    """Return what an envelope's key says."""
    key = frame.decode_attribute(attribute).key if attribute else None
    if key is None or len(key) != _KEY.size:
        raise InvalidFrame(
            f"the message at offset {offset} of the schedule does not say for which partition it is"
        )
    partition, clock = _KEY.unpack(key)
    try:
        return partition, Clock(clock)
    except ValueError:
        raise InvalidFrame(
            f"the message at offset {offset} of the schedule is due by clock {clock}, which is not known"
        ) from None


class Places(msgspec.Struct, array_like=True, frozen=True, tag=1):
    """A message of :data:`PLACES_TOPIC`: for each partition the offset of the first of the messages with these ids,
    in their order; and the ids of those whose partition was gone.
    """

    placed: list[tuple[int, int, list[int]]]
    gone: list[int]


def pack_places(places: Places, wall: int) -> bytes:
    """Return the frame of such a message, unstamped."""
    return frame.encode(_encode(places), wall)


unpack_places = msgspec.msgpack.Decoder(Places).decode
"""Returns what the value of such a message says; raises as msgspec does."""

"""How long messages wait at a delayed exchange: what their header ``x-delay`` says (decision 0066).

The rules are those of RabbitMQ's plugin (its rabbit_delayed_message_utils.erl), but for the longest delay.
"""

from __future__ import annotations

import math
import re
from typing import Final

from journal.constants import MAX_ATTRIBUTE, MAX_FRAME
from journal.errors import MessageTooLarge
from journal.formats import frame
from journal.formats.envelope import HORIZONS
from journal.formats.frame import HEADER_BYTES
from journal.message_headers import Headers, last_value
from txbroker.amqp import properties as props
from txbroker.amqp.fields import Value, entries_of
from txbroker.amqp.reply_codes import AmqpError
from txbroker.wire.queues import AMQP_PROPERTIES, DELAY

LONGEST: Final = HORIZONS[-1]
"""Most that a message waits, in µs: ten years. One that is to wait longer waits so long."""
ROOM: Final = 1024
"""Bytes that a message of the largest size must leave for what is said of it while it waits."""
_NAME: Final = DELAY.encode()
_MILLISECOND: Final = 1_000
_INTEGER: Final = re.compile(rb"[+-]?[0-9]{1,20}")
_NO_NUMBERS: Final = frozenset("tT")
"""The types of a truth value and a time, which are none, though they are decoded as numbers."""
_GREATEST: Final = (1 << 63) - 1


def may_wait(attribute: bytes) -> bool:
    """Return whether a message's key and headers may say that it waits: a look that costs next to nothing."""
    return _NAME in attribute


def delay_of(headers: Headers) -> int:
    """Return how many µs a message is to wait, at most :data:`LONGEST`; 0 for not at all. A header that is no number
    says nothing.
    """
    return min(LONGEST, max(0, _milliseconds(headers)) * _MILLISECOND)


def check_size(attribute: bytes, length: int) -> None:
    """Raise :class:`MessageTooLarge` for a message, with a frame of so many bytes, that leaves no room."""
    if length + ROOM > MAX_FRAME or len(attribute) + ROOM > MAX_ATTRIBUTE:
        raise MessageTooLarge(
            f"a message that is to wait at an exchange takes {length} bytes, with {len(attribute)} of key and headers; "
            f"{MAX_FRAME - ROOM} and {MAX_ATTRIBUTE - ROOM} are the most; nothing was sent"
        )


def waited(data: bytes | memoryview) -> tuple[int, bytes]:
    """Return how many µs the message of a frame is to wait, and its frame without a stamp as it goes on: its header has
    the same number with a minus, so it waits nowhere again, and readers see that it did.
    """
    [message] = frame.decode_run(data)
    headers = message.headers
    said = min(_milliseconds(headers), _GREATEST)
    properties = last_value(headers, AMQP_PROPERTIES)
    if properties is None:
        told = [(name, b"%d" % -said if name == DELAY else value) for name, value in headers]
    else:
        whole = _with_header(properties, -said)
        told = [(name, whole if name == AMQP_PROPERTIES else value) for name, value in headers]
    return delay_of(headers), frame.encode(message.value, message.timestamp, message.key, told)


def _with_header(properties: bytes, value: int) -> bytes:
    spans = props.spans_of(properties)
    fields = props.headers_with(properties, spans, entries_of({DELAY: value}), frozenset({DELAY}))
    return props.replaced(properties, spans, {props.HEADERS: fields})


def _milliseconds(headers: Headers) -> int:
    """Return what a message says; 0 for nothing, or for what is no number."""
    properties = last_value(headers, AMQP_PROPERTIES)
    if properties is None:
        return _number(last_value(headers, DELAY))
    try:
        spans = props.spans_of(properties)
        value: Value = props.headers_of(properties, spans).get(DELAY)
    except AmqpError:
        return 0  # any client of the broker's own protocol may send such a header
    if value is None or props.header_kind(properties, spans, DELAY) in _NO_NUMBERS:
        return 0
    return _number(value.encode() if isinstance(value, str) else value)


def _number(value: Value) -> int:
    if isinstance(value, int):
        return value
    if isinstance(value, float):
        return int(value) if math.isfinite(value) else 0
    if isinstance(value, bytes) and _INTEGER.fullmatch(value):
        return int(value)
    return 0


assert HEADER_BYTES + 2 * 255 + 64 < ROOM, "an envelope says the message's id, its exchange and its clock"

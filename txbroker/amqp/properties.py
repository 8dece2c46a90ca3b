"""The properties of a message: a content header's flags and values, kept as the bytes that came.

Source: the specification, section 4.2.6.1. A server changes few of them, and sends back the others byte for byte.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from struct import Struct
from struct import error as StructError
from typing import Any, Final

from txbroker.amqp.fields import Table, Value, decode_table, entries_of, long_text, malformed, short_text

CONTENT_TYPE, CONTENT_ENCODING, HEADERS, DELIVERY_MODE, PRIORITY, CORRELATION_ID, REPLY_TO = range(15, 8, -1)
EXPIRATION, MESSAGE_ID, TIMESTAMP, TYPE, USER_ID, APP_ID, CLUSTER_ID = range(8, 1, -1)
"""The properties, by the bits of their flags; their values are in this order."""

NAMES: Final = {
    CONTENT_TYPE: "content_type",
    CONTENT_ENCODING: "content_encoding",
    HEADERS: "headers",
    DELIVERY_MODE: "delivery_mode",
    PRIORITY: "priority",
    CORRELATION_ID: "correlation_id",
    REPLY_TO: "reply_to",
    EXPIRATION: "expiration",
    MESSAGE_ID: "message_id",
    TIMESTAMP: "timestamp",
    TYPE: "type",
    USER_ID: "user_id",
    APP_ID: "app_id",
    CLUSTER_ID: "cluster_id",
}
PERSISTENT: Final = b"\2"
"""The delivery mode of messages that outlive the broker."""
NONE: Final = b"\0\0"
"""Of a message without properties."""

_FLAGS: Final = Struct(">H")
_U32: Final = Struct(">I")
_U64: Final = Struct(">Q")
_FIXED: Final = {DELIVERY_MODE: 1, PRIORITY: 1, TIMESTAMP: 8}
_ORDER: Final = tuple(NAMES)
Spans = dict[int, tuple[int, int]]
"""Where the value of each property that is there begins and ends, as it is encoded."""


def spans_of(properties: bytes) -> Spans:
    """Return where the values lie in flags and values; raises AmqpError, SYNTAX_ERROR, unless they fit exactly."""
    try:
        (flags,) = _FLAGS.unpack_from(properties)
        if flags & 3:
            raise malformed(f"properties with flags {flags:#x}: there are no such properties")
        position, found = 2, {}
        for bit in _ORDER:
            if not flags >> bit & 1:
                continue
            begin = position
            if bit == HEADERS:
                position += 4 + int(_U32.unpack_from(properties, position)[0])
            elif bit in _FIXED:
                position += _FIXED[bit]
            else:
                position += 1 + properties[position]
            found[bit] = (begin, position)
    except (StructError, IndexError) as error:
        raise malformed("properties that end within one") from error
    if position != len(properties):
        raise malformed(f"properties of {len(properties)} bytes that say they have {position}")
    return found


def short_of(properties: bytes, spans: Spans, which: int) -> str:
    """Return a property that is a short string, "" if it is not there; raises AmqpError, SYNTAX_ERROR."""
    if which not in spans:
        return ""
    begin, end = spans[which]
    try:
        return properties[begin + 1 : end].decode()
    except UnicodeDecodeError as error:
        raise malformed(f"property {NAMES[which]}: {error}") from error


def headers_of(properties: bytes, spans: Spans) -> Table:
    """Return the headers, {} if there are none; raises AmqpError, SYNTAX_ERROR."""
    if HEADERS not in spans:
        return {}
    begin, end = spans[HEADERS]
    return decode_table(properties[begin:end])[0]


def header_kind(properties: bytes, spans: Spans, name: str) -> str:
    """Return the letter of the type that a header's value has; "" if there is no such header.

    The headers must have been decoded before.
    """
    begin, end = spans.get(HEADERS, (0, 0))
    wanted, kind = short_text(name), ""
    for field in _other_fields(properties[begin + 4 : end], set()):
        if field.startswith(wanted):
            kind = chr(field[len(wanted)])
    return kind


def replaced(properties: bytes, spans: Spans, given: Mapping[int, bytes | None]) -> bytes:
    """Return properties with some of them as given, encoded; None takes one away."""
    flags, pieces = 0, list[bytes]()
    for bit in _ORDER:
        if bit in given:
            value = given[bit]
        else:
            value = properties[slice(*spans[bit])] if bit in spans else None
        if value is not None:
            flags |= 1 << bit
            pieces.append(value)
    return _FLAGS.pack(flags) + b"".join(pieces)


def headers_with(properties: bytes, spans: Spans, fields: bytes, without: frozenset[str]) -> bytes:
    """Return headers with these encoded fields, less those of some names; the others as they came, to the byte.

    Raises AmqpError, SYNTAX_ERROR, if the others cannot be told apart: they need not have been decoded before.
    """
    kept = fields
    if HEADERS in spans:
        begin, end = spans[HEADERS]
        names = {name.encode() for name in without}
        try:
            kept = b"".join(_other_fields(properties[begin + 4 : end], names)) + fields
        except (StructError, IndexError, KeyError) as error:
            raise malformed(f"a field table: {error}") from error
    return long_text(kept)


def _other_fields(entries: bytes, without: set[bytes]) -> Iterator[bytes]:
    """Yield each field of a table, but those of some names."""
    position = 0
    while position < len(entries):
        behind = position + 1 + entries[position]
        end = behind + _length(entries, behind)
        if end > len(entries):
            raise malformed("a field table ends within a field")
        if entries[position + 1 : behind] not in without:
            yield entries[position:end]
        position = end


def _length(entries: bytes, position: int) -> int:
    """Return how many bytes a value takes, with its type."""
    kind = entries[position]
    if kind in b"SxFA":
        return 5 + int(_U32.unpack_from(entries, position + 1)[0])
    return 1 + _SIZES[chr(kind)]


_SIZES: Final = {
    "t": 1, "b": 1, "B": 1, "s": 2, "u": 2, "I": 4, "i": 4, "f": 4, "D": 5, "l": 8, "L": 8, "T": 8, "d": 8, "V": 0,
}  # fmt: skip


def made_of(given: Mapping[int, str | bytes], headers: Mapping[str, Value]) -> bytes:
    """Return properties of these short strings (str) and encoded values (bytes), with headers if there are any."""
    values: dict[int, bytes | None] = {
        bit: short_text(value) if isinstance(value, str) else value for bit, value in given.items()
    }
    if headers:
        values[HEADERS] = long_text(entries_of(headers))
    return replaced(NONE, {}, values)


def decoded(properties: bytes) -> dict[str, Any]:
    """Return the properties of a message by their names, ``headers`` as a dict, ``timestamp`` in seconds since 1970.

    Raises AmqpError, SYNTAX_ERROR.
    """
    spans, found = spans_of(properties), dict[str, Any]()
    for bit, (begin, end) in spans.items():
        name = NAMES[bit]
        if bit == HEADERS:
            found[name] = headers_of(properties, spans)
        elif bit == TIMESTAMP:
            (found[name],) = _U64.unpack_from(properties, begin)
        elif bit in _FIXED:
            found[name] = properties[begin]
        else:
            found[name] = short_of(properties, spans, bit)
        assert end > begin, "every value takes bytes"
    return found

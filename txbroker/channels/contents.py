"""Messages between AMQP and the logs: what was published becomes a frame, and a frame what is delivered.

A frame keeps the properties as they came, in one header; what the broker has to know of them (when the message expires,
which exchange it was published to) is in others. A message from a client of the broker's own protocol has no such
header: its headers become those of the properties.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

from msgspec.structs import replace

from journal.errors import MessageTooLarge
from journal.formats.frame import HEADER, HEADER_BYTES, Attribute, decode_attribute, encode
from journal.message_headers import last_value
from journal.records.queue_entries import MAX_NAME_BYTES, MAX_PRIORITY
from txbroker.amqp import properties as props
from txbroker.amqp.fields import Table, Value, entries_of, short_text, text_of, timestamp
from txbroker.amqp.properties import Spans
from txbroker.amqp.reply_codes import AmqpError, Reply
from txbroker.queues.amqp_headers import headers_of
from txbroker.queues.deaths import QueueDeath, deaths_of
from txbroker.wire.queues import AMQP_PROPERTIES, DEATHS, EXCHANGE, EXPIRATION, KEYS, PRIORITY

_OURS: Final = frozenset({AMQP_PROPERTIES, DEATHS, EXCHANGE, EXPIRATION, KEYS, PRIORITY})
_DEATH_FIELDS: Final = frozenset(
    {"x-death", "x-first-death-exchange", "x-first-death-queue", "x-first-death-reason"}
)
_COUNT_FIELD: Final = "x-delivery-count"
LEASE_FIELD: Final = "x-txbroker-lease"
"""The header with a delivery's lease, and the argument with which a consumer asks for it."""
_SECOND = 1_000_000


class Content(NamedTuple):
    """A message as it is delivered. ``properties`` are flags and values."""

    exchange: str
    routing_key: str
    properties: bytes
    body: bytes | memoryview


def frame_of(
    exchange: str, routing_key: str, properties: bytes, spans: Spans, body: bytes, now: int
) -> bytes:
    """Return the frame of what was published at ``now``, in µs since 1970; raises AmqpError, PRECONDITION_FAILED for an
    expiration that is none, CONTENT_TOO_LARGE.
    """
    headers = headers_of(exchange, properties, spans)
    try:
        return encode(body, now, routing_key.encode(), headers)
    except MessageTooLarge as error:
        raise AmqpError(Reply.CONTENT_TOO_LARGE, str(error)) from error


def content_of(
    data: bytes | memoryview,
    position: int,
    length: int,
    attempts: int,
    lease: str = "",
    outside: Callable[[str], str] = str,
) -> Content:
    """Return the message of a frame in a run as it is delivered, which was returned so often before, with its lease.
    ``outside`` returns what its client calls queues and exchanges.
    """
    begin = position + HEADER_BYTES
    behind = begin + HEADER.unpack_from(data, position)[7]
    attribute = decode_attribute(data[begin:behind])
    known = dict(attribute.headers)
    is_told = bool(attempts or lease) or DEATHS in known
    properties = known.get(AMQP_PROPERTIES)
    if properties is None or not _are_sound(properties, is_told):
        properties = _made(attribute)
    if is_told:
        deaths = [
            replace(each, queue=outside(each.queue), exchange=outside(each.exchange))
            for each in deaths_of(attribute.headers)
        ]
        properties = _told(properties, deaths, attempts, lease)
    return Content(
        outside(known.get(EXCHANGE, b"")[:MAX_NAME_BYTES].decode(errors="ignore")),
        (attribute.key or b"").decode(errors="replace"),
        properties,
        memoryview(data)[behind : position + length],
    )


def _are_sound(properties: bytes, is_told: bool) -> bool:
    """Return whether these are properties: any client of the broker's own protocol may send such a header. The headers
    in them are looked at if something is added to them.
    """
    try:
        spans = props.spans_of(properties)
        if is_told:
            props.headers_of(properties, spans)
            props.short_of(properties, spans, props.EXPIRATION)
    except AmqpError:
        return False
    return True


def _made(attribute: Attribute) -> bytes:
    """Return properties for a message of a client that has none."""
    headers: Table = {}
    for name, value in attribute.headers:
        if name not in _OURS and len(name.encode(errors="replace")) <= 255:
            headers[name] = text_of(value)
    given: dict[int, str | bytes] = {props.DELIVERY_MODE: props.PERSISTENT}
    said = last_value(attribute.headers, PRIORITY)
    if said is not None:
        given[props.PRIORITY] = bytes(
            [min(int(said), MAX_PRIORITY)] if said.isdigit() and len(said) <= 3 else [0]
        )
    return props.made_of(given, headers)


def _told(properties: bytes, deaths: Sequence[QueueDeath], attempts: int, lease: str) -> bytes:
    """Return properties that also say how often and where the message has died, was returned, and its lease."""
    spans = props.spans_of(properties)
    fields, without, given = b"", frozenset[str](), dict[int, bytes | None]()
    if deaths:
        expiration = props.short_of(properties, spans, props.EXPIRATION)
        fields, without = _death_fields(deaths, expiration), _DEATH_FIELDS
        given[props.EXPIRATION] = None
    if attempts:
        fields += entries_of({_COUNT_FIELD: attempts})
        without |= {_COUNT_FIELD}
    if lease:
        fields += entries_of({LEASE_FIELD: lease})
        without |= {LEASE_FIELD}
    if fields:
        given[props.HEADERS] = props.headers_with(properties, spans, fields, without)
    return props.replaced(properties, spans, given)


def _death_fields(deaths: Sequence[QueueDeath], expiration: str) -> bytes:
    """Return the fields about deaths, as RabbitMQ 3.13 has them: each queue and cause, the latest first."""
    first = deaths[-1]
    entries = b"".join([_death_entry(each, expiration) for each in deaths])
    told: dict[str, Value] = {
        "x-first-death-exchange": first.exchange,
        "x-first-death-queue": first.queue,
        "x-first-death-reason": first.cause,
    }
    return short_text("x-death") + b"A" + len(entries).to_bytes(4) + entries + entries_of(told)


def _death_entry(death: QueueDeath, expiration: str) -> bytes:
    told: dict[str, Value] = {
        "count": death.count,
        "reason": death.cause,
        "queue": death.queue,
        "exchange": death.exchange,
        "routing-keys": list(death.keys),
    }
    if expiration and death.cause == "expired":
        told["original-expiration"] = expiration
    fields = entries_of(told) + short_text("time") + timestamp(death.first // _SECOND)
    return b"F" + len(fields).to_bytes(4) + fields

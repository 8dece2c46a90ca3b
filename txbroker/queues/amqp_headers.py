"""The headers with which a message that has AMQP's properties lies in a log, whoever has sent it (decision 0055)."""

from __future__ import annotations

from typing import Final

from journal.records.group_entries import LONGEST_EXPIRY
from journal.records.queue_entries import MAX_NAME_BYTES
from txbroker.amqp import properties as props
from txbroker.amqp.fields import Table
from txbroker.amqp.properties import Spans
from txbroker.amqp.reply_codes import AmqpError, Reply
from txbroker.queues.further_keys import MAX_KEYS, NONE, FurtherKeys, header_of
from txbroker.wire.queues import AMQP_PROPERTIES, EXCHANGE, EXPIRATION, PRIORITY

_MILLISECOND: Final = 1_000
_CC: Final = "CC"
_BCC: Final = "BCC"
_MOST_DIGITS: Final = 20


def headers_of(exchange: str, properties: bytes, spans: Spans) -> list[tuple[str, bytes]]:
    """Return the headers of a message that goes through an exchange: its properties as they came, and what the broker
    has to know of them. Raises AmqpError, PRECONDITION_FAILED for an expiration or further keys that are none.
    """
    further = _further_keys(properties, spans)
    if further.hidden:
        told = props.headers_with(properties, spans, b"", frozenset({_BCC}))
        properties = props.replaced(properties, spans, {props.HEADERS: told})
        spans = props.spans_of(properties)
    headers = [(AMQP_PROPERTIES, properties), *header_of(further)]
    if exchange:
        headers.append((EXCHANGE, exchange.encode()))
    if props.EXPIRATION in spans:
        headers.append((EXPIRATION, b"%d" % _expiration(props.short_of(properties, spans, props.EXPIRATION))))
    if props.PRIORITY in spans and (priority := properties[spans[props.PRIORITY][0]]):
        headers.append((PRIORITY, b"%d" % priority))
    return headers


def _further_keys(properties: bytes, spans: Spans) -> FurtherKeys:
    """Return the keys among the headers CC and BCC; of the latter no reader learns."""
    if props.HEADERS not in spans:
        return NONE
    begin, end = spans[props.HEADERS]
    if properties.find(b"CC", begin, end) < 0:  # also part of another word
        return NONE
    table = props.headers_of(properties, spans)
    return FurtherKeys(_keys(table, _CC), _keys(table, _BCC))


def _keys(table: Table, name: str) -> list[str]:
    given = table.get(name, [])
    found = [each for each in given if isinstance(each, str)] if isinstance(given, list) else []
    is_wrong = not isinstance(given, list) or len(found) < len(given) or len(found) > MAX_KEYS
    if is_wrong or any(len(each.encode()) > MAX_NAME_BYTES for each in found):
        raise AmqpError(
            Reply.PRECONDITION_FAILED,
            f"header {name} must be an array of at most {MAX_KEYS} routing keys of at most {MAX_NAME_BYTES} bytes; "
            "nothing was sent",
        )
    return found


def _expiration(said: str) -> int:
    """Return in µs what is said in ms."""
    if not (said.isascii() and said.isdigit() and len(said) <= _MOST_DIGITS):
        raise AmqpError(
            Reply.PRECONDITION_FAILED,
            f"invalid expiration {said[:40]!r}: it must be milliseconds in decimal digits; nothing was sent",
        )
    return min(int(said) * _MILLISECOND, LONGEST_EXPIRY)

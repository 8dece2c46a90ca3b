"""The headers with which a message that has AMQP's properties lies in a log, whoever has sent it (decision 0055)."""

from __future__ import annotations

from typing import Final

from journal.records.group_entries import LONGEST_EXPIRY
from txbroker.amqp import properties as props
from txbroker.amqp.properties import Spans
from txbroker.amqp.reply_codes import AmqpError, Reply
from txbroker.wire.queues import AMQP_PROPERTIES, EXCHANGE, EXPIRATION, PRIORITY

_MILLISECOND: Final = 1_000
_MOST_DIGITS: Final = 20


def headers_of(exchange: str, properties: bytes, spans: Spans) -> list[tuple[str, bytes]]:
    """Return the headers of a message that goes through an exchange: its properties as they came, and what the broker
    has to know of them. Raises AmqpError, PRECONDITION_FAILED for an expiration that is none.
    """
    headers = [(AMQP_PROPERTIES, properties)]
    if exchange:
        headers.append((EXCHANGE, exchange.encode()))
    if props.EXPIRATION in spans:
        headers.append((EXPIRATION, b"%d" % _expiration(props.short_of(properties, spans, props.EXPIRATION))))
    if props.PRIORITY in spans and (priority := properties[spans[props.PRIORITY][0]]):
        headers.append((PRIORITY, b"%d" % priority))
    return headers


def _expiration(said: str) -> int:
    """Return in µs what is said in ms."""
    if not (said.isascii() and said.isdigit() and len(said) <= _MOST_DIGITS):
        raise AmqpError(
            Reply.PRECONDITION_FAILED,
            f"invalid expiration {said[:40]!r}: it must be milliseconds in decimal digits; nothing was sent",
        )
    return min(int(said) * _MILLISECOND, LONGEST_EXPIRY)

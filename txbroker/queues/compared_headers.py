"""The headers of messages as exchanges compare them with the arguments of bindings."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import suppress
from decimal import Decimal
from functools import cached_property
from typing import Final

from journal.message_headers import Headers, last_value
from journal.records.queue_entries import Scalar
from txbroker.amqp.fields import Value, decode_value, encode_value
from txbroker.amqp.properties import headers_of, spans_of
from txbroker.amqp.reply_codes import AmqpError
from txbroker.wire.queues import AMQP_PROPERTIES

NESTED: Final = b"\xff\xfeamqp "
"""What a table, an array or a decimal begins with among arguments, whose records have bytes for it; no text does."""


def compared_headers(headers: Headers) -> Mapping[str, object]:
    """Return the headers of a message by name. Those of one that came over AMQP are its properties' headers."""
    properties = last_value(headers, AMQP_PROPERTIES)
    return dict(headers) if properties is None else _AmqpHeaders(properties)


def compared(value: Value) -> object:
    """Return a value as it is compared, and kept as an argument: text is its UTF-8, as headers of other messages are
    bytes. A table, an array or a decimal is :data:`NESTED` and its bytes, in which the order of a table counts, as in
    RabbitMQ; itself, which equals nothing, if it holds a time that a field for other numbers has no room for.
    """
    if isinstance(value, str):
        return value.encode()
    if isinstance(value, dict | list | Decimal):
        with suppress(ValueError):
            return NESTED + encode_value(value)
    return value


def told(value: Scalar) -> Value:
    """Return an argument of a binding as a client of AMQP has given it, but for text, which is its UTF-8."""
    if isinstance(value, bytes) and value.startswith(NESTED):
        with suppress(AmqpError):  # else somebody has sent such bytes
            return decode_value(value[len(NESTED) :])
    return value


class _AmqpHeaders(Mapping[str, object]):
    """The headers among a message's properties, decoded when an exchange looks at one: most look at none."""

    def __init__(self, properties: bytes) -> None:
        self._properties = properties

    @cached_property
    def _decoded(self) -> dict[str, object]:
        """The headers; none if they cannot be decoded: any client may send such a header."""
        try:
            table = headers_of(self._properties, spans_of(self._properties))
        except AmqpError:
            return {}
        return {name: compared(value) for name, value in table.items()}

    def __getitem__(self, name: str) -> object:
        return self._decoded[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._decoded)

    def __len__(self) -> int:
        return len(self._decoded)

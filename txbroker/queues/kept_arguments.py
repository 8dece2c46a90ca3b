"""Arguments of declarations over AMQP that are no settings: kept with the queue, and shown (decision 0058)."""

from __future__ import annotations

import base64
import math
from collections.abc import Callable
from decimal import Decimal
from typing import Final

from journal.records.queue_entries import MAX_ARGUMENT_BYTES, QueueSettings
from txbroker.amqp.fields import Table, Value, decode_table, entries_of, long_text
from txbroker.amqp.reply_codes import AmqpError
from txbroker.errors import InvalidSetting

QUEUE_TYPE: Final = "x-queue-type"
"""The argument that says which kind of queue RabbitMQ would make,"""
CLASSIC: Final = "classic"
"""and what that is unless it is said."""


def packed(table: Table) -> bytes:
    """Return arguments as settings have them. Raises ValueError for what cannot be kept, or takes too much."""
    found = entries_of(table)
    if len(found) > MAX_ARGUMENT_BYTES:
        raise ValueError(f"they take {len(found)} bytes, {MAX_ARGUMENT_BYTES} are kept")
    return found


def kept(settings: QueueSettings) -> Table:
    """Return the arguments that were kept of a declaration."""
    return _table(settings.arguments or b"")


def _table(arguments: bytes) -> Table:
    data = long_text(arguments)
    found, _ = decode_table(data)
    return found


def check(name: str, settings: QueueSettings) -> None:
    """Raise InvalidSetting for arguments of a new queue that nobody could read."""
    try:
        _table(settings.arguments or b"")
    except AmqpError as error:
        raise InvalidSetting(
            f"the arguments of queue {name!r} are no fields of an AMQP table ({error}); nothing has changed"
        ) from error


def queue_type(settings: QueueSettings) -> str:
    """Return which kind of queue was asked for, in RabbitMQ's words."""
    found = kept(settings).get(QUEUE_TYPE)
    return found if isinstance(found, str) else CLASSIC


def _in_base64(data: bytes) -> object:
    return {"base64": base64.b64encode(data).decode("ascii")}


def plain(value: Value, of_bytes: Callable[[bytes], object] = _in_base64) -> object:
    """Return a value for JSON: bytes as ``of_bytes`` returns them, and as text what JSON has no number for."""
    match value:
        case bytes():
            return of_bytes(value)
        case Decimal():
            return str(value)
        case float() if not math.isfinite(value):
            return str(value)
        case list():
            return [plain(each, of_bytes) for each in value]
        case dict():
            return {name: plain(each, of_bytes) for name, each in value.items()}
        case _:
            return value

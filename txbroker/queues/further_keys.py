"""Further routing keys of a message: it goes where each of them leads, and once into each queue.

RabbitMQ has the same in the headers CC and BCC (https://www.rabbitmq.com/docs/sender-selected).
"""

from __future__ import annotations

from typing import Annotated, Final

import msgspec

from journal.constants import KIB
from journal.errors import InvalidFrame
from journal.message_headers import Headers, last_value
from journal.records.queue_entries import MAX_NAME_BYTES
from txbroker.wire.queues import KEYS

MAX_KEYS: Final = 1024
"""Most of each kind."""
MAX_BYTES: Final = 1024 * KIB
"""Most bytes of the header that are read."""
Keys = Annotated[
    list[Annotated[str, msgspec.Meta(max_length=MAX_NAME_BYTES)]], msgspec.Meta(max_length=MAX_KEYS)
]


class FurtherKeys(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """Those that readers are told of, and those that nobody is."""

    told: Keys = []
    hidden: Keys = []


NONE: Final = FurtherKeys()
_decode = msgspec.json.Decoder(FurtherKeys).decode


def further_keys(headers: Headers) -> FurtherKeys:
    """Return the further keys of a message; raises :class:`InvalidFrame` if the header that says them says none."""
    said = last_value(headers, KEYS)
    if said is None:
        return NONE
    try:
        if len(said) > MAX_BYTES:
            raise ValueError(f"{len(said)} bytes of them, {MAX_BYTES} are allowed")
        found = _decode(said)
        if any(len(each.encode()) > MAX_NAME_BYTES for each in (*found.told, *found.hidden)):
            raise ValueError(f"one has more than {MAX_NAME_BYTES} bytes")
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        raise InvalidFrame(f"header {KEYS} says no routing keys: {error}; nothing was sent") from error
    return found


def told_keys(headers: Headers) -> FurtherKeys:
    """Return the further keys that readers are told of, alone; none if they cannot be read."""
    try:
        return FurtherKeys(further_keys(headers).told)
    except InvalidFrame:
        return NONE


def header_of(keys: FurtherKeys) -> Headers:
    """Return the header that says so; nothing for none."""
    return ((KEYS, msgspec.json.encode(keys)),) if keys.told or keys.hidden else ()

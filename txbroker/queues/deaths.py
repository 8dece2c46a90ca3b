"""What a dead letter says of its deaths: in which queues it has died, of what, how often and when first.

RabbitMQ has the same in ``x-death``, and decides by it what goes in a circle (rabbit_dead_letter.erl).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Final

import msgspec

from journal.constants import KIB
from journal.message_headers import Headers, last_value
from journal.records.group_entries import Death
from journal.records.queue_entries import MAX_NAME_BYTES
from txbroker.queues.further_keys import told_keys
from txbroker.wire.queues import DEATHS, EXCHANGE

CAUSES: Final = {
    Death.REJECTED: "rejected",
    Death.DELIVERY_LIMIT: "delivery_limit",
    Death.EXPIRED: "expired",
    Death.LENGTH: "maxlen",
}
"""The words for them, which are RabbitMQ's."""
MAX_DEATHS: Final = 64
"""Most deaths that are kept, the latest."""
MAX_BYTES: Final = 1024 * KIB
"""Most bytes of the header that are read; what the broker writes has less."""
MAX_KEY_BYTES: Final = 1024
"""Most bytes of the further routing keys that a death tells."""


class QueueDeath(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """That a message has died in a queue of one cause, ``count`` times, first at ``first`` (µs since 1970 UTC).

    ``exchange`` is the one with a name that it had come through over AMQP ("": none, or that is not known), ``keys``
    are its routing keys, both when it died so first.
    """

    queue: Annotated[str, msgspec.Meta(max_length=MAX_NAME_BYTES)]
    cause: Annotated[str, msgspec.Meta(max_length=32)]
    count: Annotated[int, msgspec.Meta(ge=1, le=1 << 53)]
    first: Annotated[int, msgspec.Meta(ge=0, le=1 << 62)]
    exchange: Annotated[str, msgspec.Meta(max_length=MAX_NAME_BYTES)] = ""
    keys: list[Annotated[str, msgspec.Meta(max_length=MAX_NAME_BYTES)]] = []


_decode = msgspec.json.Decoder(list[QueueDeath]).decode


def deaths_of(headers: Headers) -> list[QueueDeath]:
    """Return the deaths of a message, the latest first; none for one that says nothing that can be read: any client
    may send that header.
    """
    said = last_value(headers, DEATHS)
    if said is None or len(said) > MAX_BYTES:
        return []
    try:
        return _decode(said)[:MAX_DEATHS]
    except (msgspec.MsgspecError, ValueError, RecursionError):  # also text that is none
        return []


def with_death(headers: Headers, key: bytes | None, queue: str, death: Death, at: int) -> list[QueueDeath]:
    """Return the deaths of a message that has died once more."""
    cause, deaths = CAUSES[death], deaths_of(headers)
    others = [each for each in deaths if (each.queue, each.cause) != (queue, cause)]
    known = next((each for each in deaths if (each.queue, each.cause) == (queue, cause)), None)
    latest = (
        QueueDeath(queue, cause, 1, at, *_way(headers, key))
        if known is None
        else msgspec.structs.replace(known, count=known.count + 1)
    )
    return [latest, *others][:MAX_DEATHS]


def _way(headers: Headers, key: bytes | None) -> tuple[str, list[str]]:
    """Return the exchange that a message came through, and its routing keys."""
    exchange = (last_value(headers, EXCHANGE) or b"")[:MAX_NAME_BYTES].decode(errors="ignore")
    own = (key or b"")[:MAX_NAME_BYTES].decode(errors="ignore")
    keys, left = [own], MAX_KEY_BYTES
    for each in told_keys(headers).told:
        left -= len(each.encode())
        if left < 0:
            break
        keys.append(each)
    return exchange, keys


def header_of(deaths: Sequence[QueueDeath]) -> tuple[str, bytes]:
    """Return the header that says so."""
    return DEATHS, msgspec.json.encode(deaths)


def goes_in_a_circle(deaths: Sequence[QueueDeath], queue: str) -> bool:
    """Return whether a message that comes to a queue has died in it before, and was not rejected since; or has died in
    so many that this is not known any more.
    """
    for each in deaths:
        if each.cause == CAUSES[Death.REJECTED]:
            return False
        if each.queue == queue:
            return True
    return len(deaths) >= MAX_DEATHS

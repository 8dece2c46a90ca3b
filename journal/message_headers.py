"""A message as its sender gives it, and its headers: pairs of name and value, where a name may come more than once.

Kafka's and AMQP's messages have such pairs too; a mapping would lose what comes twice.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

from journal.arguments import NOTHING_SENT, OCTETS_OR_NONE, index_of, micros, octets, text
from journal.errors import WrongType

Headers = tuple[tuple[str, bytes], ...]
"""The headers of a message, in the order in which its sender gave them."""

GivenHeaders = Mapping[str, bytes] | Iterable[tuple[str, bytes]]
"""What callers give as a message's headers."""

_WANTED: Final = "a dict of names (str) and values (bytes), a list of pairs of these, or None"


def headers_of(headers: Any, state: str = NOTHING_SENT) -> Headers:
    """The headers that a caller gave, copied; raises :class:`WrongType`.

    Whether the names are UTF-8 is found out when they are encoded: :func:`check_names` then says which is not.
    """
    pairs = (
        tuple(headers.items())
        if type(headers) is dict or isinstance(headers, Mapping)
        else _pairs(headers, state)
    )
    for name, value in pairs:
        if type(name) is not str or type(value) is not bytes:
            break
    else:
        return pairs
    return tuple(
        (text("the name of a header", name, state), octets(f"the value of header {name!r:.60}", value, state))
        for name, value in pairs
    )


def _pairs(headers: Any, state: str) -> tuple[tuple[Any, Any], ...]:
    kind = type(headers).__name__
    if isinstance(headers, Iterator):
        raise WrongType(
            f"headers is an iterator, of type {kind}; it must be what can be gone through again, as list(headers): a "
            f"message that does not fit into a batch is encoded for the next one; {state}"
        )
    if isinstance(headers, (str, bytes, bytearray, memoryview)) or not isinstance(headers, Iterable):
        raise WrongType(f"headers is of type {kind}; it must be {_WANTED}; {state}")
    pairs = tuple(headers)
    for pair in pairs:
        if not isinstance(pair, (tuple, list)) or len(pair) != 2:
            raise WrongType(
                f"one of headers is of type {type(pair).__name__}, and no pair; headers must be {_WANTED}; {state}"
            )
    return tuple((name, value) for name, value in pairs)


def check_names(headers: Headers, state: str = NOTHING_SENT) -> None:
    """Raise :class:`WrongValue` for the name of a header that is no UTF-8."""
    for name, _ in headers:
        text("the name of a header", name, state)


def last_value(headers: Headers, name: str) -> bytes | None:
    """The value of the last header of that name, None if there is none."""
    return next((value for each, value in reversed(headers) if each == name), None)


def size_of(headers: Headers | None) -> int:
    """How many characters and bytes names and values have."""
    return sum(len(name) + len(value) for name, value in headers or ())


Message = tuple[str, bytes | None, bytes | None, Headers | None, int | None, int | None]


def message_of(
    topic: Any, value: Any, key: Any, headers: Any, partition: Any, timestamp: Any, state: str = NOTHING_SENT
) -> Message:
    """A message that is kept for later: checked where the caller is, and a copy, whatever he does with his own.

    Raises :class:`WrongType`, :class:`WrongValue`.
    """
    pairs = None if headers is None else headers_of(headers, state)
    check_names(pairs or (), state)
    return (
        text("topic", topic, state),
        None if value is None else octets("value", value, state, wanted=OCTETS_OR_NONE),
        None if key is None else octets("key", key, state, wanted=OCTETS_OR_NONE),
        pairs,
        None if partition is None else index_of(partition, state),
        None if timestamp is None else micros("timestamp", timestamp, state),
    )

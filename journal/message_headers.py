"""A message as its sender gives it, and its headers: pairs of name and value, where a name may come more than once.

Kafka's and AMQP's messages have such pairs too; a mapping would lose what comes twice.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, Literal

from journal.arguments import (
    NOTHING_READ,
    NOTHING_SENT,
    OCTETS_OR_NONE,
    index_of,
    micros,
    octets,
    text,
    texts,
    wrong_type,
    wrong_value,
)
from journal.errors import Misuse, WrongType, WrongValue
from journal.random_id import new_id

Headers = tuple[tuple[str, bytes], ...]
"""The headers of a message, in the order in which its sender gave them."""

GivenHeaders = Mapping[str, bytes] | Iterable[tuple[str, bytes]]
"""What callers give as a message's headers."""

ID_HEADER: Final = "txbroker.id"
"""The header that has a message's id."""

MAX_ID: Final = 255
"""Most bytes of an id."""

TAG_HEADER: Final = "txbroker.tag"
"""The header that has one of a message's tags; it comes once for each of them."""

MAX_TAG: Final = 255
"""Most bytes of a tag, in UTF-8."""

MAX_TAGS: Final = 16
"""Most tags of a message, and of a group."""

GivenId = bool | str | bytes | None
"""What callers give as a message's id; True for a new one."""

GivenIds = Sequence[GivenId] | Literal[True] | None
"""What callers give as the ids of several messages; True for a new one each."""

GivenTags = str | Sequence[str] | None
"""What callers give as a message's tags: one, or several."""

_ID: Final = "a str, bytes, bytearray or memoryview, True for a new one, or None"
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


def message_id(given: Any, state: str = NOTHING_SENT, name: str = "id") -> bytes | None:
    """Return the id that a caller gave (a str as UTF-8), or a new one for True: 32 hex digits that nothing else has.

    None and False give None. Raises :class:`WrongType`, and :class:`WrongValue` for an id that is empty or longer than
    ``MAX_ID`` bytes.
    """
    if given is None or given is False:
        return None
    if given is True:
        return new_id().hex().encode()
    found = (
        text(name, given, state).encode()
        if isinstance(given, str)
        else octets(name, given, state, wanted=_ID)
    )
    if not 1 <= len(found) <= MAX_ID:
        raise wrong_value(name, given, f"of 1 to {MAX_ID} bytes", state)
    return found


def message_tags(given: Any, state: str = NOTHING_SENT) -> tuple[str, ...]:
    """Return the tags that a caller gave, each once.

    Raises :class:`WrongType`, and :class:`WrongValue` for a tag that is empty or longer than ``MAX_TAG`` bytes, and for
    more than ``MAX_TAGS``.
    """
    found = tuple(dict.fromkeys(texts("tags", [given] if isinstance(given, str) else given, state)))
    for each in found:
        if not 1 <= len(each.encode()) <= MAX_TAG:
            raise wrong_value("one of tags", each, f"of 1 to {MAX_TAG} bytes in UTF-8", state)
    if len(found) > MAX_TAGS:
        raise WrongValue(f"tags has {len(found)} different ones, {MAX_TAGS} are allowed; {state}")
    return found


def tags_of(headers: Headers) -> tuple[str, ...]:
    """Return the tags in a message's headers. What is no UTF-8, and so no tag, is shown as Python shows such names."""
    return tuple([value.decode(errors="surrogateescape") for name, value in headers if name == TAG_HEADER])


def wanted_of(
    key: Any, id: Any, tag: Any, state: str = NOTHING_READ
) -> tuple[bytes | None, bytes | None, bytes | None]:
    """Return the key, the id and the tag that a caller looks for.

    Raises :class:`Misuse` without any, :class:`WrongType` and :class:`WrongValue`.
    """
    if key is None and id is None and tag is None:
        raise Misuse(f"find looks for messages by key=, id= and tag=: say one, or several; {state}")
    if isinstance(id, bool):
        raise wrong_type("id", id, "a str, bytes, bytearray, memoryview or None", state)
    return (
        None if key is None else octets("key", key, state, wanted=OCTETS_OR_NONE),
        message_id(id, state),
        None if tag is None else message_tags(text("tag", tag, state), state)[0].encode(),
    )


def marked(
    headers: GivenHeaders | None, id: Any, tags: Any, state: str = NOTHING_SENT
) -> tuple[GivenHeaders | None, bytes | None]:
    """Return the headers that a caller gave, with tags and an id in place of those that are in them; and the id.

    None gives no id, and leaves the tags in the headers as they are. Raises as :func:`message_id`,
    :func:`message_tags` and :func:`headers_of`.
    """
    own = message_id(id, state)
    if own is None and tags is None:
        return headers, None
    pairs = () if headers is None else headers_of(headers, state)
    if tags is not None:
        given = message_tags(tags, state)
        others = (pair for pair in pairs if pair[0] != TAG_HEADER)
        pairs = (*others, *((TAG_HEADER, tag.encode()) for tag in given))
    if own is not None:
        pairs = (*(pair for pair in pairs if pair[0] != ID_HEADER), (ID_HEADER, own))
    return pairs, own


def size_of(headers: Headers | None) -> int:
    """How many characters and bytes names and values have."""
    return sum(len(name) + len(value) for name, value in headers or ())


Message = tuple[str, bytes | None, bytes | None, Headers | None, int | None, int | None]


def message_of(
    topic: Any,
    value: Any,
    key: Any,
    headers: Any,
    partition: Any,
    timestamp: Any,
    id: Any = None,
    tags: Any = None,
) -> Message:
    """A message that is kept for later: checked where the caller is, and a copy, whatever he does with his own.

    Raises :class:`WrongType`, :class:`WrongValue`.
    """
    given, _ = marked(headers, id, tags)
    pairs = None if given is None else headers_of(given)
    check_names(pairs or ())
    return (
        text("topic", topic),
        None if value is None else octets("value", value, wanted=OCTETS_OR_NONE),
        None if key is None else octets("key", key, wanted=OCTETS_OR_NONE),
        pairs,
        None if partition is None else index_of(partition),
        None if timestamp is None else micros("timestamp", timestamp),
    )

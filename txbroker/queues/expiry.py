"""When messages of queues expire: after the time to live of their queue, or after their own, whichever is shorter."""

from __future__ import annotations

from typing import Final

from journal.errors import InvalidFrame
from journal.formats.frame import HEADER, HEADER_BYTES, decode_attribute, walk
from journal.message_headers import Headers, last_value
from journal.records.group_entries import LONGEST_EXPIRY
from txbroker.wire.queues import EXPIRATION

NEVER: Final = 1 << 62
"""When a message expires that does not."""
_NAME: Final = EXPIRATION.encode()
_MOST_DIGITS: Final = len(str(LONGEST_EXPIRY))


def expiration_of(headers: Headers) -> int | None:
    """Return the time to live that a message has of its own, in µs; raises :class:`InvalidFrame` if it is none."""
    said = last_value(headers, EXPIRATION)
    if said is None:
        return None
    if len(said) > _MOST_DIGITS or not said.isdigit() or int(said) > LONGEST_EXPIRY:
        raise InvalidFrame(
            f"header {EXPIRATION} is {said[:40]!r}; it must be µs in decimal digits, from 0 to {LONGEST_EXPIRY} "
            "(ten years); nothing was sent"
        )
    return int(said)


def may_expire(data: bytes, ttl: int | None) -> bool:
    """Return whether frames may have messages that expire: a look that costs next to nothing."""
    return ttl is not None or _NAME in data


def expires_at(data: bytes, position: int, ttl: int | None) -> int:
    """Return when the message of a frame in a queue's log expires, in µs since 1970; :data:`NEVER` if it does not, or
    has lost its append time.
    """
    header = HEADER.unpack_from(data, position)
    appended, begin = header[3], position + HEADER_BYTES
    attribute = data[begin : begin + header[7]]
    own = _own(attribute) if _NAME in attribute else None
    lives = min(NEVER if each is None else each for each in (ttl, own))
    return appended + lives if appended and lives < NEVER else NEVER


def expired_run(data: bytes, first: int, end: int, ttl: int | None, now: int) -> tuple[int, int] | None:
    """Return the first run of messages, (first, end), from offset ``first`` to below ``end`` that have expired at
    ``now``, in µs since 1970; None if none has.
    """
    if not may_expire(data, ttl):
        return None
    begin = behind = -1
    for position, _, offset, count in walk(data):
        if not first <= offset < end:
            continue
        if expires_at(data, position, ttl) <= now:
            begin, behind = offset if begin < 0 else begin, offset + count
        elif begin >= 0:
            break
    return None if begin < 0 else (begin, behind)


def _own(attribute: bytes) -> int | None:
    """Return what a message has of its own; None for what no exchange has let through."""
    try:
        return expiration_of(decode_attribute(attribute).headers)
    except InvalidFrame:
        return None

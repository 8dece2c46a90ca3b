"""Arguments of callers: converted to the types that calls use, or refused by the parameter's name.

``state`` ends the text of a refusal, because only the caller knows what has been done so far.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from operator import index
from typing import Any, Final

from journal.constants import MAX_BRANCH_ID, MAX_GLOBAL_ID
from journal.errors import InvalidName, WrongType, WrongValue
from journal.xid import Xid

LEAST_TIME: Final = 10**14
"""µs since 1970 UTC, in March 1973. A smaller number is probably a time in seconds or milliseconds."""

MOST_TIME: Final = 253_402_300_799_999_999
"""The last µs of the year 9999, where calendars and ``datetime`` end. A greater number is probably nanoseconds."""

MOST: Final = (1 << 63) - 1
"""The greatest whole number that frames and records have room for."""

LONGEST: Final = 1e9
"""Seconds; 30 years. Operating systems have an upper bound for time-outs."""

NOTHING_SENT: Final = "nothing was sent"
OCTETS_OR_NONE: Final = "bytes, bytearray, memoryview or None"
NOTHING_CHANGED: Final = "nothing has changed"
NOTHING_READ: Final = "nothing was read"

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND = timedelta(microseconds=1)
_SHOWN = (str, bytes, int, float, type(None))
_TIME = "µs since 1970 UTC as an int, as time.time_ns() // 1000 gives them, or a datetime with a time zone"


def shown(value: object) -> str:
    """Return a value for a message: short, and only its type if it may be large or secret."""
    kind = type(value).__name__
    if not isinstance(value, _SHOWN) or (isinstance(value, int) and value.bit_length() > 64):
        return f"of type {kind}"
    start = value[:60] if isinstance(value, (str, bytes)) else value
    return f"{start!r:.80}, of type {kind}"


def wrong_type(parameter: str, value: object, wanted: str, state: str = NOTHING_SENT) -> WrongType:
    """Return the error for an argument of a type that is not accepted."""
    return WrongType(f"{parameter} is {shown(value)}; it must be {wanted}; {state}")


def wrong_value(parameter: str, value: object, wanted: str, state: str = NOTHING_SENT) -> WrongValue:
    """Return the error for an argument of the right type whose value is not accepted."""
    return WrongValue(f"{parameter} is {shown(value)}; it must be {wanted}; {state}")


def text(parameter: str, value: Any, state: str = NOTHING_SENT) -> str:
    """Return a str that can be written as UTF-8; raises :class:`WrongType` and :class:`WrongValue`."""
    if not isinstance(value, str):
        raise wrong_type(parameter, value, "a str", state)
    try:
        value.encode()
    except UnicodeEncodeError:
        raise wrong_value(parameter, value, "text that UTF-8 can hold, without surrogates", state) from None
    return str.__str__(value)


def _is_truth(value: Any) -> bool:
    """Return whether it is a bool, Python's or NumPy's (before version 2.3, NumPy's bool counts as an index)."""
    return isinstance(value, bool) or getattr(getattr(value, "dtype", None), "kind", "") == "b"


def whole(
    parameter: str,
    value: Any,
    state: str = NOTHING_SENT,
    *,
    least: int = -MOST - 1,
    most: int = MOST,
    wanted: str = "an int",
) -> int:
    """Return an int, of a value with ``__index__`` that is no bool; raises :class:`WrongType`, :class:`WrongValue`."""
    try:
        number = None if _is_truth(value) else index(value)
    except TypeError:
        number = None
    if number is None:
        raise wrong_type(parameter, value, wanted, state)
    if not least <= number <= most:
        raise wrong_value(parameter, number, f"from {least} to {most}", state)
    return number


def listed(parameter: str, values: Any, of: str, state: str = NOTHING_SENT) -> list[Any]:
    """Return a list of the items of an iterable that is no text and no bytes; raises :class:`WrongType`."""
    if isinstance(values, (str, bytes, bytearray, memoryview)) or not isinstance(values, Iterable):
        raise wrong_type(parameter, values, f"a list of {of}", state)
    return list(values)


def texts(parameter: str, values: Any, state: str = NOTHING_SENT) -> list[str]:
    """Return a list of the str in an iterable that is no str itself; raises as :func:`text`."""
    return [text(f"one of {parameter}", value, state) for value in listed(parameter, values, "str", state)]


def seconds(parameter: str, value: Any, state: str = NOTHING_SENT) -> float:
    """Return seconds, 0 to :data:`LONGEST`, as int or float; raises :class:`WrongType`, :class:`WrongValue`."""
    if isinstance(value, bool) or not hasattr(type(value), "__float__"):
        raise wrong_type(parameter, value, "a number of seconds", state)
    number = float(value)
    if not 0 <= number <= LONGEST:
        raise wrong_value(parameter, value, f"a number of seconds from 0 to {LONGEST:g}", state)
    return number


def truth(parameter: str, value: Any, state: str = NOTHING_SENT) -> bool:
    """Return True or False; raises :class:`WrongType`."""
    if not isinstance(value, bool):
        raise wrong_type(parameter, value, "True or False", state)
    return value


def octets(parameter: str, value: Any, state: str = NOTHING_SENT, *, wanted: str = "") -> bytes:
    """Return the bytes of bytes, a bytearray or a memoryview, copied now; raises :class:`WrongType`."""
    if isinstance(value, (bytes, bytearray, memoryview)):
        return bytes(value)
    raise WrongType(
        f"{parameter} is of type {type(value).__name__}; it must be {wanted or 'bytes, bytearray or memoryview'}; "
        f"{state}"
    )


def index_of(partition: Any, state: str = NOTHING_SENT) -> int:
    """Return a partition's index in its topic; raises :class:`WrongType` for "1", 1.0, True and others that are
    no int.
    """
    return whole("partition", partition, state, wanted="an int, 0 for the first one")


def micros(parameter: str, value: Any, state: str = NOTHING_SENT, most: int = MOST_TIME) -> int:
    """Return a time in µs since 1970 UTC, from µs or a ``datetime``; raises :class:`WrongType`, :class:`WrongValue`.

    A ``datetime`` must have a time zone: without one it would mean another time on each machine. A number below
    :data:`LEAST_TIME`, or above ``most``, is refused with the unit that was probably meant.
    """
    if isinstance(value, datetime):
        if value.utcoffset() is None:
            raise WrongValue(
                f"{parameter} is {value.isoformat()}, a datetime without a time zone; it must be one with a zone, as "
                f"datetime.now(UTC) is (value.astimezone() takes the machine's); {state}"
            )
        return (value - _EPOCH) // _MICROSECOND
    number = whole(parameter, value, state, wanted=_TIME)
    if not LEAST_TIME <= number <= most:
        raise WrongValue(f"{parameter} is {number}{_guess(number)}; it must be {_TIME}; {state}")
    return number


def _guess(number: int) -> str:
    """Return the unit that was probably meant by a number that is no time in µs."""
    if number > MOST_TIME:
        return ": these seem to be nanoseconds, so divide by 1,000 (calendars end with the year 9999)"
    for unit, factor in (("milliseconds", 1_000), ("seconds", 1_000_000)):
        if LEAST_TIME // factor <= number:
            return f": these seem to be {unit}, so multiply by {factor:,}"
    return ", which is no time since 1973"


def checked_xid(xid: object) -> Xid:
    """Return what a caller gave if it is an xid within XA's bounds; raises :class:`InvalidName`, :class:`WrongType`."""
    if (
        type(xid) is Xid
        and type(xid.format_id) is int
        and type(xid.global_id) is type(xid.branch) is bytes
        and 0 <= xid.format_id < 1 << 31
        and 0 < len(xid.global_id) <= MAX_GLOBAL_ID
        and len(xid.branch) <= MAX_BRANCH_ID
    ):
        return xid  # a sound one at one look: 4,000 instructions less for each transaction in two phases
    if not isinstance(xid, Xid):
        raise wrong_type("xid", xid, "an Xid, which is what xid() gives", NOTHING_CHANGED)
    whole("the format id of an xid", xid.format_id, NOTHING_CHANGED)
    for name, part in (("global id", xid.global_id), ("branch", xid.branch)):
        if type(part) is not bytes:
            raise wrong_type(f"the {name} of an xid", part, "bytes", NOTHING_CHANGED)
    if not 0 <= xid.format_id < 1 << 31:
        raise InvalidName(f"xid format id {xid.format_id} is not within 0..2147483647; nothing has changed")
    if not 1 <= len(xid.global_id) <= MAX_GLOBAL_ID or len(xid.branch) > MAX_BRANCH_ID:
        raise InvalidName(
            f"xid with a global id of {len(xid.global_id)} bytes (1 to {MAX_GLOBAL_ID} are allowed) and a branch "
            f"of {len(xid.branch)} (at most {MAX_BRANCH_ID}); nothing has changed"
        )
    return xid

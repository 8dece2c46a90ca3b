"""The formats of arguments: times, settings, headers, xids. All of it is pure.

Durations and sizes are read by :mod:`journal.quantities`.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any, Generic, NamedTuple, TypeVar

import click

from journal.arguments import checked_xid
from journal.constants import EARLIEST_TIME
from journal.errors import InvalidName, InvalidSetting
from journal.quantities import Quantity, duration, read
from journal.records.group_entries import LEAST_EXPIRY
from journal.settings import OPTIONAL, QUANTITIES, RANGES, check_setting
from journal.transaction_states import TransactionNumber
from journal.xid import Xid

T = TypeVar("T")


def pause(text: str) -> int:
    """Return a duration in µs that is more than nothing: the wait between repetitions."""
    found = duration(text)
    if not found:
        raise ValueError(f"{text!r} is no time to wait: write a duration, like 2s")
    return found


class Expiry(NamedTuple):
    """When a group expires: after so many seconds without use, 0 for never, None as the broker's setting says."""

    seconds: float | None


def expiry(text: str) -> Expiry:
    """Return what ``30d``, ``never`` or ``usual`` says of a group; raises ``ValueError``."""
    if text in ("never", "usual"):
        return Expiry(0.0 if text == "never" else None)
    found = duration(text)
    if found < LEAST_EXPIRY:
        raise ValueError(f"{text!r} is less than 1m, the least: say a longer time, or never")
    return Expiry(found / 1e6)


def moment(text: str, now: int) -> int:
    """Return ``2026-01-01T10:00`` (UTC unless it says otherwise) or ``-10m`` (before ``now``) in µs since 1970.

    Raises ``ValueError``, for a time before any message too.
    """
    found = _moment(text, now)
    if found < EARLIEST_TIME:
        raise ValueError(
            f"{text!r} is before 1973-03-03, and no message is so old: say a later time, or an offset"
        )
    return found


def _moment(text: str, now: int) -> int:
    if text == "now":
        return now
    if text.startswith("-"):
        return now - duration(text[1:])
    try:
        when = datetime.fromisoformat(text)
    except ValueError:
        raise ValueError(
            f"{text!r} is not a time like 2026-01-01T10:00, 2026-01-01T10:00+02:00 or -10m"
        ) from None
    if when.tzinfo is None:
        when = when.replace(tzinfo=UTC)
    since = when - datetime(1970, 1, 1, tzinfo=UTC)
    return (since.days * 86_400 + since.seconds) * 1_000_000 + since.microseconds


def setting(text: str) -> tuple[str, int | timedelta | None]:
    """Parse ``retention_age=7d``, ``segment_bytes=64MiB``, ``retention_bytes=none``; raises ``ValueError``.

    The value is one that ``create_topic`` takes.
    """
    name, equals, value = text.partition("=")
    if not equals:
        raise ValueError(f"{text!r} is not NAME=VALUE")
    if name not in RANGES:
        raise ValueError(f"there is no setting {name!r}; known are {', '.join(RANGES)}")
    if value == "none" and name in OPTIONAL:
        return name, None
    try:
        number = read(QUANTITIES[name], value)
    except ValueError as error:
        raise ValueError(f"setting {name}: {error}") from None
    try:
        check_setting(name, number)
    except InvalidSetting as error:
        raise ValueError(str(error)) from None
    return name, timedelta(microseconds=number) if QUANTITIES[name] is Quantity.DURATION else number


def header(text: str) -> tuple[str, bytes]:
    """Parse ``kind=new``: a header's name and its value in UTF-8; raises ``ValueError``."""
    name, equals, value = text.partition("=")
    if not equals or not name:
        raise ValueError(f"{text!r} is not NAME=VALUE")
    return name, value.encode("utf-8", "surrogateescape")


def binding_argument(text: str) -> tuple[str, bytes | None]:
    """Parse ``kind=new``, a header's name and the value that it must have, or ``kind`` alone: any value; raises
    ``ValueError``.
    """
    name, equals, value = text.partition("=")
    if not name:
        raise ValueError(f"{text!r} is neither NAME=VALUE nor NAME")
    return name, value.encode("utf-8", "surrogateescape") if equals else None


def transaction(text: str) -> TransactionNumber | Xid:
    """Parse a transaction as ``str`` prints its number or its xid; raises ``ValueError``."""
    if re.fullmatch(r"\d+-\d+", text, re.ASCII):
        return TransactionNumber.parse(text)
    parts = text.split(":")
    if len(parts) != 3 or not re.fullmatch(r"\d+", parts[0], re.ASCII):
        raise ValueError(f"{text!r} is neither SESSION-SERIAL like 68719476737-3 nor FORMAT:GLOBAL:BRANCH")
    try:
        return checked_xid(Xid(int(parts[0]), _xid_part(parts[1]), _xid_part(parts[2])))
    except InvalidName as error:
        raise ValueError(str(error)) from None


class XidPrefix(NamedTuple):
    """A filter for xids of a format (None: any) whose global id begins with a prefix."""

    format_id: int | None
    global_prefix: bytes


def xid_prefix(text: str) -> XidPrefix:
    """Parse ``7:order-``, ``7:``, ``*:0x00ff``; raises ``ValueError``."""
    format_id, colon, prefix = text.partition(":")
    if not colon or ":" in prefix or not (format_id == "*" or re.fullmatch(r"\d+", format_id, re.ASCII)):
        raise ValueError(f"{text!r} is not FORMAT:PREFIX like 7:order-, 7: or *:order-")
    return XidPrefix(None if format_id == "*" else int(format_id), _xid_part(prefix))


def _xid_part(text: str) -> bytes:
    if text.startswith("0x"):
        return bytes.fromhex(text[2:])
    if not text.isascii():
        raise ValueError(f"{text!r} is not ASCII: write that part of the xid as 0x and hex")
    return text.encode("ascii")


class Parsed(click.ParamType[T], Generic[T]):
    """An argument of click that one of the functions above parses."""

    def __init__(self, name: str, parse: Callable[[str], T]) -> None:
        self.name = name
        self._parse = parse

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> T:
        """Parse the text; a ``ValueError`` becomes a usage error."""
        if not isinstance(value, str):
            return value  # type: ignore[no-any-return]
        try:
            return self._parse(value)
        except ValueError as error:
            self.fail(str(error), param, ctx)

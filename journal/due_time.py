"""When a message is due, as callers say it: ``after`` a time from now, or ``at`` a time of the wall clock."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any, Final, NamedTuple

from journal.arguments import NOTHING_SENT, micros, seconds, shown
from journal.errors import Misuse, WrongValue
from journal.formats.envelope import HORIZONS, Clock

After = timedelta | float
"""A time from now: a ``timedelta``, or seconds."""
At = datetime | int
"""A time of the wall clock: a ``datetime`` with a time zone, or µs since 1970 UTC."""

_MICROSECOND: Final = timedelta(microseconds=1)
_LONGEST: Final = HORIZONS[-1]


class DueTime(NamedTuple):
    """When a message is due: ``micros`` from now, if it is time that has to pass; else a time of the wall clock, in µs
    since 1970 UTC.
    """

    clock: Clock
    micros: int


def due_time(after: Any, at: Any, state: str = NOTHING_SENT, wall: int | None = None) -> DueTime | None:
    """Return when a message is due by what a caller gave; None if it is to be sent at once. ``wall`` is the time now.

    Raises Misuse for both, WrongType and WrongValue for what is no time, or one that is more than ten years ahead.
    """
    if after is None:
        return None if at is None else DueTime(Clock.WALL, _moment(at, state, wall))
    if at is not None:
        raise Misuse(f"a message is due after a time or at one, not both; {state}. Give after= or at=")
    return DueTime(Clock.ELAPSED, time_span("after", after, state))


def time_span(parameter: str, given: Any, state: str = NOTHING_SENT) -> int:
    """Return the µs of a time span that a caller gave, a ``timedelta`` or seconds; raises WrongType, and WrongValue for
    one that is not from 0 to ten years.
    """
    found = (
        given // _MICROSECOND if isinstance(given, timedelta) else int(seconds(parameter, given, state) * 1e6)
    )
    if not 0 <= found <= _LONGEST:
        raise WrongValue(
            f"{parameter} is {shown(given) if not isinstance(given, timedelta) else given}; it must be from 0 to ten "
            f"years; {state}"
        )
    return found


def _moment(at: Any, state: str, wall: int | None) -> int:
    moment = micros("at", at, state)
    if wall is not None and moment - wall > _LONGEST:
        what = at.isoformat() if isinstance(at, datetime) else at
        raise WrongValue(f"at is {what}; it must be within ten years from now; {state}")
    return moment

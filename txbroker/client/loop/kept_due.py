"""When a message is due that waits in the program before a client gets it."""

from __future__ import annotations

import time
from datetime import timedelta
from typing import NamedTuple, TypedDict

from journal.due_time import After, At, DueTime, due_time
from journal.formats.envelope import Clock
from txbroker.client.loop.since_boot import since_boot


class DueArguments(TypedDict, total=False):
    """The arguments of a later call of ``send``."""

    after: timedelta
    at: int


class KeptDue(NamedTuple):
    """When it is due, as its caller has said it at the moment ``since`` (:func:`since_boot`)."""

    due: DueTime
    since: float


def arguments_of(kept: KeptDue | None) -> DueArguments:
    """Return the arguments for a call of ``send`` that is made now: what is left of a time that has to pass."""
    if kept is None:
        return {}
    clock, micros = kept.due
    if clock is Clock.WALL:
        return {"at": micros}
    passed = int((since_boot() - kept.since) * 1e6)
    return {"after": timedelta(microseconds=max(0, micros - passed))}


def kept_due(after: After | None, at: At | None) -> KeptDue | None:
    """Return when a message is due by what its caller gave; None if it is for now.

    Raises as :func:`journal.due_time.due_time`.
    """
    if after is None and at is None:
        return None
    due = due_time(after, at, wall=time.time_ns() // 1000)
    assert due is not None
    return KeptDue(due, since_boot())

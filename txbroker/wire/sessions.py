"""The requests and answers about sessions, for operators."""

from __future__ import annotations

from typing import Final

import msgspec

from txbroker.wire.answers import Answer
from txbroker.wire.requests import Request

MAX_SESSIONS_LISTED: Final = 1_000
"""Most sessions of one answer to :class:`ListSessions`."""


class ListSessions(Request, frozen=True, tag=47):
    """Answered by :class:`Sessions`: those whose numbers are above ``after``, by their numbers, 1,000 at a time. The
    answer waits for no force.
    """

    after: int = 0


class CloseSession(Request, frozen=True, tag=48):
    """End another session, by its number. Answered by :class:`Done` at once. Its client is told ``why``
    (:class:`GoingAway`), and may connect again. ``by`` says who wants that, "" for the client's own name; both are
    logged. Refused with UnknownSession if there is none of that number (any more).
    """

    session: int
    by: str = ""
    why: str = ""


class SessionInfo(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """A session: its number, the name of its client, who that has proven to be, its address, and its age in µs.

    ``held`` are the bytes of its requests and answers that wait for a force, ``unsent`` those of answers that it has
    not read, ``waiting`` counts its requests that wait for the engine, ``fetches`` its fetches that are not answered,
    ``members`` the members of groups that were heard of on it last.
    """

    session: int
    client: str
    principal: str
    address: str
    age: int
    held: int
    unsent: int
    waiting: int
    fetches: int
    members: int


class Sessions(Answer, frozen=True, tag=94):
    """Answers :class:`ListSessions`. ``more``: there may be others above the last."""

    sessions: list[SessionInfo]
    more: bool

"""The requests about what groups are to try again, and how."""

from __future__ import annotations

from enum import IntEnum
from typing import Final

import msgspec

from journal.random_id import new_id
from journal.records.group_entries import GroupSettings
from txbroker.wire.requests import Request

MAX_PARKED_LISTED: Final = 1000
"""Most offsets of one :class:`ListParked`, and of one :class:`ReleaseParked`."""


class Release(IntEnum):
    """What an operator has done with offsets."""

    RETRY = 0
    """Those that wait are tried again now, also those that are to be moved to the dead letters."""
    SKIP = 1
    """They are finished."""
    DEAD_LETTER = 2
    """Those that are to be tried again go to the topic of dead letters instead."""
    AGAIN = 3
    """Those that are finished become unfinished, for this group alone."""


class ListParked(Request, frozen=True, tag=40):
    """Answered by :class:`Parked`: what a group is to try again in a partition, from offset ``first`` on, in order.

    It has 1,000 offsets at most: the next ones are asked for from behind the last.
    """

    group: str
    partition: int
    first: int = 0


class ReleaseParked(Request, frozen=True, tag=41):
    """Do something with offsets of a group. Answered by :class:`Done` once forced.

    It is for operators, so it names no generation. Those that it does not fit (they are not to be tried again, they are
    finished already, or not) stay as they are. It takes 1,000 offsets at most (LimitExceeded), of the group with that
    ``id`` (UnknownGroup). Refused while a prepared transaction holds one of them (OffsetPending).
    """

    group: str
    id: bytes
    partition: int
    offsets: list[int]
    what: Release = Release.RETRY


class Whether(IntEnum):
    """When settings replace those of a group."""

    ALWAYS = 0
    """Whatever it has."""
    NONE_OR_SAME = 1
    """If it has none; refused (GroupSettingsConflict) if it has others."""
    NONE = 2
    """If it has none; those that it has stay."""


class AlterGroup(Request, frozen=True, tag=42):
    """Change settings of a group. Answered by :class:`Done` once forced.

    Those whose names are in ``changed`` become what they are in ``settings``, each if ``whether`` says so; the others
    stay. A group that is not there is made, with that ``id``. Only one that is made, or alters, is refused on a full
    disk.
    """

    group: str
    settings: GroupSettings
    changed: list[str]
    whether: Whether = Whether.ALWAYS
    id: bytes = msgspec.field(default_factory=new_id)

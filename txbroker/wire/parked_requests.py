"""The requests about what groups are to try again."""

from __future__ import annotations

from typing import Final

from txbroker.wire.requests import Request

MAX_PARKED_LISTED: Final = 1000
"""Most offsets of one :class:`ListParked`, and of one :class:`ReleaseParked`."""


class ListParked(Request, frozen=True, tag=40):
    """Answered by :class:`Parked`: what a group is to try again in a partition, from offset ``first`` on, in order.

    It has 1,000 offsets at most: the next ones are asked for from behind the last.
    """

    group: str
    partition: int
    first: int = 0


class ReleaseParked(Request, frozen=True, tag=41):
    """Have offsets of a group tried again now, or finish them (``skip``). Answered by :class:`Done` once forced.

    It is for operators, so it names no generation. Those that are not to be tried again, or are finished already, stay
    as they are. It takes 1,000 offsets at most (LimitExceeded), of the group with that ``id`` (UnknownGroup). Refused
    while a prepared transaction holds one of them (OffsetPending).
    """

    group: str
    id: bytes
    partition: int
    offsets: list[int]
    skip: bool = False

"""The kinds of journal records about scheduled messages (decision 0054).

That a message is scheduled is told by the record of its send, or of its transaction, as of any message.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import Annotated

import msgspec

from journal.formats.checkpoint_rows import Count
from journal.formats.envelope import ID_BITS
from journal.parties import Actor
from journal.records.record_base import Record
from journal.records.record_parts import Placement

ScheduledId = Annotated[int, msgspec.Meta(ge=0, lt=1 << ID_BITS)]
"""The id of a scheduled message: the number of its log, and its offset there."""


Scheduled = tuple[ScheduledId, int]
"""A scheduled message, and the number of the partition that it is for, or the address of the exchange."""


class TakenBack(msgspec.Struct, array_like=True, frozen=True, gc=False, tag=3):
    """The scheduled messages that a commit takes back."""

    messages: list[Scheduled]


class Due(Record, frozen=True, tag=29):
    """These messages were due. The data are their frames, stamped, by ``placements``: those of each begin at the place
    in ``starts``.

    ``ids`` are in the order of the frames. The last placement is of the log of places, and has no ids. ``gone`` are
    messages whose partition is gone, or whose frame is lost: they are over, too.
    """

    ids: list[ScheduledId]
    placements: list[Placement]
    starts: list[Count]
    at: int
    gone: list[Scheduled] = []  # noqa: RUF012  (a struct's)

    def messages(self) -> Iterator[Scheduled]:
        """Yield each message that is placed, with its partition."""
        ids = iter(self.ids)
        for placed in self.placements[:-1]:
            for number in islice(ids, placed.count):
                yield number, placed.partition


class Cancelled(Record, frozen=True, tag=30):
    """These messages were taken back before they were due. ``by`` is who asked for it."""

    messages: list[Scheduled]
    at: int
    by: Actor | None = None


class WallClockTold(Record, frozen=True, tag=31):
    """The wall clock showed ``wall`` (µs since 1970) at ``at``: it has jumped while the broker ran.

    ``holds`` says whether messages that are due by the wall clock are held from here on; with ``by`` a person has
    released them.
    """

    wall: int
    at: int
    holds: bool
    by: Actor | None = None

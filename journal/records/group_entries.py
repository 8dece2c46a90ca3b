"""The parts of records that say what consumer groups have finished, and how their partitions are claimed."""

from __future__ import annotations

from enum import IntEnum
from typing import Annotated, Final

import msgspec

from journal.constants import KIB
from journal.formats.checkpoint_rows import Count
from journal.formats.offset_set_bytes import encode_offsets, within_spans
from journal.offset_set import OffsetSet

MAX_SETTLED: Final = 1024
"""Most partitions that one record settles; with the next bound it bounds what a record, also a forged one, can cost."""
MAX_FINISHED_BYTES: Final = 64 * KIB
"""Most bytes of sets of finished offsets in one record: the worst of them are read in 25 ms."""
MAX_PAUSE: Final = 366 * 24 * 3600 * 1_000_000
"""The longest time until an offset is tried again, in µs: a year."""
LEAST_EXPIRY: Final = 60_000_000
LONGEST_EXPIRY: Final = 10 * MAX_PAUSE
"""Bounds of the time without use after which a group is deleted, in µs: consumers come back from a restart in less than
a minute.
"""

DEAD: Final = 1 << 62
"""The due time of an offset that is to be moved to the dead-letter topic: it is not tried again."""
STOPPED: Final = DEAD - 1
"""The due time of an offset whose attempts are used up and that waits for an operator: the last before a dead one's."""
MAX_ATTEMPTS: Final = 1000
"""The largest number of attempts after which a group gives a message up."""


class PartitionOffset(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """A group's position in a partition: the next offset to read. ``generation`` 0 is unfenced."""

    partition: int
    offset: int
    generation: int = 0
    metadata: str = ""


Offset = Annotated[int, msgspec.Meta(ge=0, le=1 << 62)]
"""An offset in what a group settles."""


class Death(IntEnum):
    """Why a message is a dead letter."""

    REJECTED = 0
    """Its consumer gave it up."""
    DELIVERY_LIMIT = 1
    """It was returned, or tried, as often as it may be."""
    EXPIRED = 2
    """It was in a queue for longer than it, or the queue, says."""
    LENGTH = 3
    """Its queue had more messages than it may have."""


class Unfinished(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """An unfinished offset of a group: how often it was tried, when it is due (journal time, 0 for now), and why.

    ``failed`` is when the group first failed with it (µs of the wall clock since 1970, for people only), 0 for never.
    One that is due at 2^62, which is :data:`DEAD`, waits for being moved to the dead-letter topic; one that is due at
    2^62 - 1, which is :data:`STOPPED`, for an operator. ``death`` is what made it a dead letter, if it is one.
    """

    offset: Offset
    attempts: Count = 0
    due: Count = 0
    reason: str = ""
    failed: Count = 0
    death: Death = Death.REJECTED

    @property
    def is_dead(self) -> bool:
        """Whether it is to be moved to the dead-letter topic."""
        return self.due == DEAD

    @property
    def is_stopped(self) -> bool:
        """Whether its attempts are used up, and it waits for an operator."""
        return self.due == STOPPED

    @property
    def has_details(self) -> bool:
        """Whether there is something to keep of it."""
        return bool(self.attempts or self.due or self.reason)


class Retried(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """An offset that a request has tried again later: ``after`` µs from now (None: as the broker says), and why.

    ``attempts`` is how many the message had when it was handed out. If the group has counted more since, this failure
    is noted already, because the request is a repetition. With ``dead`` it is not tried again, but moved to the
    dead-letter topic.
    """

    offset: Offset
    attempts: Count = 0
    after: int | None = None
    reason: str = ""
    dead: bool = False


class Settled(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """What a group has finished in a partition, offset by offset, and what it has to say of unfinished offsets.

    ``finished`` is a set of offsets relative to ``base`` (:mod:`journal.formats.offset_set_bytes`). A group without a
    position there gets ``base``, the lowest offset that can be unfinished. Each offset of ``unfinished`` is unfinished,
    also if it was finished before. ``start`` is the start of the log if retention has passed the position, else 0: a
    position below it becomes it. ``generation`` is as in :class:`PartitionOffset`.

    ``base``, ``start`` and ``unfinished`` of a record are the broker's. A request has ``retried`` instead of the last;
    a record has none.
    """

    partition: Count
    generation: int
    base: Offset
    finished: bytes = b""
    unfinished: list[Unfinished] = []
    start: Offset = 0
    retried: list[Retried] = []


def finishing(partition: int, offsets: OffsetSet, generation: int = 0, start: int = 0) -> list[Settled]:
    """Return what finishes offsets: one entry, or several if they lie further apart than an encoded set has room for.

    Each has its own lowest offset as base, however far above the position that is.
    """
    return [
        Settled(partition, generation, each.first, encode_offsets(each, each.first), start=start)
        for each in within_spans(offsets)
    ]


class Ending(IntEnum):
    """What becomes of a message that was tried as often as its group's rules allow."""

    DEAD_LETTER = 0
    """It is moved to the dead-letter topic."""
    DROP = 1
    """It is finished."""
    STOP = 2
    """It is unfinished, and waits for an operator."""


class RetryRules(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """How a group tries messages again: ``attempts`` times at most, the last failure has the ``ending``.

    The first pause is ``pause`` µs, each further one twice the one before, up to ``longest`` µs. ``target`` is the
    topic that its dead letters go to, "" for the usual one of each topic.
    """

    attempts: Annotated[int, msgspec.Meta(ge=1, le=MAX_ATTEMPTS)]
    pause: Annotated[int, msgspec.Meta(ge=0, le=MAX_PAUSE)]
    longest: Annotated[int, msgspec.Meta(ge=0, le=MAX_PAUSE)]
    ending: Ending
    target: str = ""


class GroupSettings(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """What is said of a group as a whole.

    ``retry`` is how it tries messages again; None if each retry says it. ``expiry`` is the time without use, in µs,
    after which it is deleted: 0 for never, None for what the broker does with groups that say nothing. ``tags``,
    sorted, are those of which a message has one if it is for the group; empty if all are.
    """

    retry: RetryRules | None = None
    expiry: Count | None = None
    tags: list[str] = []


NO_SETTINGS: Final = GroupSettings()


class GroupPositions(msgspec.Struct, array_like=True, frozen=True, gc=False, tag=1):
    """Positions of a group that a transaction moves, and what it settles behind them.

    ``id`` is the group's id if the commit makes the group. The tag leaves room for other things that a transaction may
    settle.
    """

    group: str
    id: bytes
    offsets: list[PartitionOffset]
    settled: list[Settled] = []


class ClaimKind(IntEnum):
    """How partitions are claimed. All claims of a group are of the first kind, or all of the other two."""

    CONSUMER = 0
    """By a consumer that names its partitions, or takes all."""
    MEMBER = 1
    """For a member of the group, by the broker, which shares the partitions out."""
    STATIC_MEMBER = 2
    """The same, for a member with a name of its own, for which its partitions are kept while it is away."""

    @property
    def is_for_member(self) -> bool:
        """Whether the broker gave the partitions to a member."""
        return self is not ClaimKind.CONSUMER

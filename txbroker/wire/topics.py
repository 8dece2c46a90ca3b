"""The requests that make, change and delete topics, or drop what is in them."""

from __future__ import annotations

from typing import Final

import msgspec

from journal.random_id import new_id
from journal.settings import TopicSettings
from txbroker.wire.requests import Request

MAX_PURGED: Final = 256
"""Most partitions of one purge: 3 ms."""


class CreateTopic(Request, frozen=True, tag=6):
    """Create a topic. Answered by :class:`Topics` with the one topic. An existing one is refused (TopicExists).

    ``id``, 16 random bytes, identifies the topic beside its name: a client that got no answer finds by it whether the
    topic of that name is the one that it asked for.
    """

    name: str
    partitions: int
    settings: TopicSettings
    id: bytes = msgspec.field(default_factory=new_id)


class DeleteTopic(Request, frozen=True, tag=7):
    """Delete a topic. Answered by :class:`Done` once forced. Refused while an undecided transaction has messages for
    it, and (ScheduledForTopic) while messages are scheduled for it, unless ``scheduled`` says that they go with it.

    It deletes the topic with that ``id``; a topic that was made anew under the name is another one (UnknownTopic).
    """

    name: str
    id: bytes
    scheduled: bool = False


class AlterTopic(Request, frozen=True, tag=30):
    """Change some settings of a topic, or its number of partitions. Answered by :class:`Topics` with it, once forced.

    ``changes`` are settings by name, in their units; None takes a limit away. The others stay. ``partitions``, unless
    it is 0, is how many the topic has from now on: more, or as many as before (InvalidSetting for fewer,
    LimitExceeded). All of it is done in one step, or nothing. It alters the topic with that ``id``; a topic that was
    made anew under the name is another one (UnknownTopic).
    """

    name: str
    id: bytes
    changes: dict[str, int | None]
    partitions: int = 0


class Purge(Request, frozen=True, tag=29):
    """Drop the messages below an offset from partitions: [(partition, offset)]. Answered by :class:`Done` once forced.

    An offset below the start of a log changes nothing. If one of them cannot be, none is purged (UnknownPartition,
    OffsetOutOfRange above the end of what can be read). It takes 256 partitions at most (LimitExceeded).
    """

    starts: list[tuple[int, int]]

"""The requests about scheduled messages, and their answers (decision 0054).

A message is scheduled by a :class:`Send`, :class:`Add`, :class:`Prepare` or :class:`Commit` of envelopes
(:mod:`journal.formats.envelope`) to a log of the schedule.
"""

from __future__ import annotations

from typing import Final

import msgspec

from txbroker.wire.answers import Answer
from txbroker.wire.requests import Request

MAX_SCHEDULED_IDS: Final = 1000
"""Most ids of one request."""

ScheduledPlace = tuple[int, int, int]
"""The id of a scheduled message: the index of its log, its offset there, and the checksum of its envelope."""


class AskSchedule(Request, frozen=True, tag=57):
    """Ask where messages are scheduled. Answered by :class:`ScheduleTold`; the schedule is made if there is none."""


class CancelScheduled(Request, frozen=True, tag=58):
    """Take messages back that are not due yet. Answered by :class:`ScheduledStates`, in the order of the ids.

    Those that wait are taken back, all in one step; the others are as they are. Each id is there once.
    """

    ids: list[ScheduledPlace]


class ShowScheduled(Request, frozen=True, tag=59):
    """Ask what has become of messages. Answered by :class:`ScheduledStates`, with the frames of those that wait as
    data if ``frames``, one after the other. Each id is there once.

    Of the frames come the first one, and others as far as there are 1 MiB of them: ask again for those of ``size`` 0.
    """

    ids: list[ScheduledPlace]
    frames: bool = False


class ListScheduled(Request, frozen=True, tag=60):
    """List messages that wait, of one topic, of one exchange, or of all (both ""). Answered by :class:`ScheduledList`.

    They come in the order of their logs, and there in that of their sends, behind ``after``, the log and offset up to
    which an answer has come; ``limit`` is 1,000 at most. An answer looks at a part of the logs: ask again until it has
    no ``next``.
    """

    topic: str = ""
    after: tuple[int, int] = (0, -1)
    limit: int = 1000
    exchange: str = ""


class ReleaseScheduled(Request, frozen=True, tag=61):
    """Let messages go that are due by the wall clock, and are held since it has jumped. Answered by :class:`Done`."""


class ScheduleTold(Answer, frozen=True, tag=100):
    """Answers :class:`AskSchedule`: the partition numbers of the schedule's logs, in their order, and schedule time in
    µs.
    """

    partitions: list[int]
    now: int


class ScheduledState(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """What has become of a scheduled message: ``state`` is "waits", "held" (``holder`` is the xid of the transaction,
    for people), "cancelled", "sent", "not scheduled", or "unreadable" if the log is damaged there.

    ``clock`` (1: schedule time, 2: the wall clock) and ``due`` are known of all but the last two. ``partition`` is the
    number of the partition that it is for; if it was sent and its place is known, it is at ``offset`` there, else that
    is -1. ``size`` is how many bytes of data are its frame. One that is to go through an exchange has that one's
    address as ``partition``, and its name as ``exchange``, "" if it is gone.
    """

    state: str
    clock: int = 0
    due: int = 0
    partition: int = 0
    offset: int = -1
    holder: str = ""
    size: int = 0
    exchange: str = ""


class ScheduledStates(Answer, frozen=True, tag=101):
    """Answers :class:`CancelScheduled` and :class:`ShowScheduled`. ``now`` is schedule time."""

    states: list[ScheduledState]
    now: int


class ScheduledInfo(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """A message that waits: its id, the topic and index of its partition, when it is due by which clock, and how many
    bytes its frame has. ``is_held``: a prepared transaction takes it back. ``message_id`` is what its sender gave it,
    "" for none. Of one whose topic is gone the topic is "", and ``partition`` the number of its partition. Of one that
    is to go through an exchange ``exchange`` is its name, "" if it is gone, and ``partition`` its address.
    """

    id: ScheduledPlace
    topic: str
    partition: int
    clock: int
    due: int
    size: int
    is_held: bool
    message_id: bytes
    exchange: str = ""


class ScheduledList(Answer, frozen=True, tag=102):
    """Answers :class:`ListScheduled`. ``next`` is for the next request, None at the end. ``now`` is schedule time,
    ``holds`` says that what is due by the wall clock is held. ``is_filtered``: all were asked for, and there may be
    others, of topics that the client's principal may not describe. ``unreadable`` is how many wait that cannot be
    read, of all topics.
    """

    messages: list[ScheduledInfo]
    now: int
    next: tuple[int, int] | None = None
    holds: bool = False
    is_filtered: bool = False
    unreadable: int = 0

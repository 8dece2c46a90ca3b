"""What clients are told of scheduled messages."""

from __future__ import annotations

from typing import NamedTuple

from journal.scheduled_id import ScheduledId
from txbroker.client.core.results import Listed, Message


class ScheduledMessage(NamedTuple):
    """A scheduled message. ``state`` is "waits", "held" (the transaction named by ``holder`` takes it back if it is
    committed), "cancelled" or "sent".

    ``partition`` is the index in the topic; if the topic is gone, ``topic`` is "", and ``partition`` the number that
    the partition had. ``clock`` is "elapsed" for one that was sent ``after`` a time, else "wall". It is due in
    ``due_in`` seconds, or was if that is less than nothing: at ``due_at``, µs since 1970 UTC, if the clocks run on as
    they do. ``offset`` is where a sent one is, None if that is not known any more. ``size`` is how many
    bytes a waiting one has, ``message_id`` the id that its sender gave it, ``message`` what its partition will get, if
    that was asked for. One that waits at a delayed exchange has that one's name as ``exchange`` ("" if it is gone; None
    of others), no topic, and no place when it was sent: it may be in any number of queues.
    """

    id: ScheduledId
    state: str
    topic: str
    partition: int
    clock: str
    due_in: float
    due_at: int
    offset: int | None = None
    holder: str = ""
    size: int = 0
    message_id: bytes | None = None
    message: Message | None = None
    exchange: str | None = None


class ScheduledMessages(Listed[ScheduledMessage]):
    """Scheduled messages. ``holds``: those that are due by the wall clock are held, because that has jumped.
    ``unreadable`` is how many others wait, of all topics, that the broker cannot read.
    """

    holds = False
    unreadable = 0

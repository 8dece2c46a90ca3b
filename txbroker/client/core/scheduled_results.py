"""What clients are told of scheduled messages."""

from __future__ import annotations

from typing import NamedTuple

from journal.scheduled_id import ScheduledId
from txbroker.client.core.results import Message


class ScheduledMessage(NamedTuple):
    """A scheduled message. ``state`` is "waits", "held" (the transaction named by ``holder`` takes it back if it is
    committed), "cancelled" or "sent".

    ``partition`` is the index in the topic; if the topic is gone, ``topic`` is "", and ``partition`` the number that
    the partition had. ``clock`` is "elapsed" for one that was sent ``after`` a time, else "wall". It is ``due`` in so
    many seconds, or was. ``offset`` is where a sent one is, None if that is not known any more. ``size`` is how many
    bytes a waiting one has, ``message_id`` the id that its sender gave it, ``message`` what its partition will get, if
    that was asked for.
    """

    id: ScheduledId
    state: str
    topic: str
    partition: int
    clock: str
    due: float
    offset: int | None = None
    holder: str = ""
    size: int = 0
    message_id: bytes | None = None
    message: Message | None = None

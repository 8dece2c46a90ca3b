"""The requests of every client about scheduled messages, written once for all clients."""

from __future__ import annotations

from collections.abc import Coroutine
from typing import Any

from journal.scheduled_id import ScheduledId
from txbroker.client.core.client_method import client_method
from txbroker.client.core.core import Core
from txbroker.client.core.promise import Promise
from txbroker.client.core.scheduled_results import ScheduledMessage, ScheduledMessages
from txbroker.client.operations import scheduled


class ScheduleOperations:
    """The methods of every client's connection about scheduled messages."""

    core: Core

    @client_method
    def cancel(
        self, id: ScheduledId | str | None = None, *, message_id: str | bytes | None = None
    ) -> Coroutine[Promise[Any], None, list[ScheduledId]]:
        """Take a scheduled message back; return its id. One that was taken back before, in the last day, is no error.

        ``id`` is what its receipt has as ``scheduled``, or the text of that. With ``message_id``, all that wait with
        that id of their sender are taken back. Raises AlreadySent, ScheduleHeld, NotScheduled.
        """
        return scheduled.cancel(self.core, id, message_id)

    @client_method
    def scheduled(
        self, id: ScheduledId | str, *, with_message: bool = False
    ) -> Coroutine[Promise[Any], None, ScheduledMessage]:
        """Return what has become of a scheduled message; raises NotScheduled for one that is over for a day.

        ``with_message`` also returns the message itself while it waits, for which the right to read its topic is
        needed.
        """
        return scheduled.scheduled(self.core, id, with_message)

    @client_method
    def list_scheduled(
        self, topic: str | None = None, *, exchange: str | None = None
    ) -> Coroutine[Promise[Any], None, ScheduledMessages]:
        """Return the scheduled messages that wait, in the order in which they are due: of a topic, of a delayed
        exchange, or of all.

        They are those of topics and exchanges that the client's principal may describe; the list's ``is_filtered`` says
        whether there may be others, and ``holds`` whether messages that are due by the wall clock are held, because it
        has jumped.
        """
        return scheduled.list_scheduled(self.core, topic, exchange)

    @client_method
    def release_scheduled(self) -> Coroutine[Promise[Any], None, None]:
        """Let messages go that are due by the wall clock, and are held since that has jumped forward."""
        return scheduled.release(self.core)

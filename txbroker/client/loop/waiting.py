"""What waits in the program for a commit that is the caller's: messages, and scheduled ones to be taken back."""

from __future__ import annotations

from datetime import datetime
from typing import Any, NamedTuple, Protocol

from journal.due_time import After, At
from journal.message_headers import GivenHeaders, GivenId, GivenTags, Headers, message_of, size_of
from journal.scheduled_id import ScheduledId
from txbroker.client.loop.kept_due import KeptDue, arguments_of, kept_due
from txbroker.client.operations.scheduled import check_named


class Carries(Protocol):
    """A transaction that it is carried out in."""

    def send(
        self,
        topic: str,
        value: bytes | None,
        key: bytes | None,
        headers: GivenHeaders | None,
        partition: int | None,
        timestamp: int | datetime | None,
        *,
        after: After | None = None,
        at: At | None = None,
    ) -> Any:
        """Add a message."""

    def cancel(self, id: ScheduledId | str | None = None, *, message_id: str | bytes | None = None) -> Any:
        """Take scheduled messages back."""


class Waiting(NamedTuple):
    """One message that waits; fields as the arguments of ``Connection.send``, but for when it is ``due``."""

    topic: str
    value: bytes | None
    key: bytes | None = None
    headers: Headers | None = None
    partition: int | None = None
    timestamp: int | None = None
    due: KeptDue | None = None

    @property
    def size(self) -> int:
        """Bytes it counts for."""
        return len(self.value or b"") + len(self.key or b"") + size_of(self.headers)

    def carry_out(self, transaction: Carries) -> None:
        """Send it."""
        transaction.send(*self[:6], **arguments_of(self.due))


class TakenBack(NamedTuple):
    """A scheduled message that is to be taken back, by its id, or all that their sender gave an id."""

    id: ScheduledId | None
    message_id: bytes | None

    @property
    def size(self) -> int:
        """Bytes it counts for."""
        return 64 + len(self.message_id or b"")

    def carry_out(self, transaction: Carries) -> None:
        """Take it back."""
        transaction.cancel(self.id, message_id=self.message_id)


Waits = Waiting | TakenBack


def waiting(
    topic: str,
    value: bytes | None,
    key: bytes | None,
    headers: GivenHeaders | None,
    partition: int | None,
    timestamp: int | datetime | None,
    id: GivenId,
    tags: GivenTags,
    after: After | None,
    at: At | None,
) -> Waiting:
    """Return a message that waits, from the arguments of ``Connection.send``; raises as that does for wrong ones."""
    return Waiting(
        *message_of(topic, value, key, headers, partition, timestamp, id, tags), kept_due(after, at)
    )


def taken_back(id: ScheduledId | str | None, message_id: str | bytes | None) -> TakenBack:
    """Return what is to be taken back, from the arguments of ``Connection.cancel``; raises as that for wrong ones."""
    named = check_named(id, message_id)
    return TakenBack(None if id is None else ScheduledId.of(id), named)

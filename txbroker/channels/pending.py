"""What a channel's client has said that has not happened yet."""

from __future__ import annotations

from typing import Final

from journal.constants import MAX_REQUEST_DATA, MAX_REQUEST_MESSAGES
from txbroker.amqp.reply_codes import AmqpError, Reply
from txbroker.channels.unacknowledged import Run

MOST_UNCOMMITTED: Final = 2 * MAX_REQUEST_DATA
"""Most bytes of messages in all transactions of a connection that are not committed."""
WEIGHT: Final = 200
"""Bytes that a message counts for beside its own."""


class Uncommitted:
    """Counts what the transactions of one connection hold, over all its channels."""

    def __init__(self) -> None:
        self.held = 0

    def add(self, size: int) -> None:
        """Count so many bytes more; raises AmqpError, RESOURCE_ERROR."""
        if self.held + size > MOST_UNCOMMITTED:
            raise AmqpError(
                Reply.RESOURCE_ERROR,
                f"the transactions of a connection with more than {MOST_UNCOMMITTED} bytes together; nothing of the "
                "one on this channel was sent. Commit more often, or use several connections",
            )
        self.held += size


class Transaction:
    """What a channel has said since its last commit or rollback."""

    def __init__(self, uncommitted: Uncommitted) -> None:
        """``uncommitted`` counts the messages until :meth:`release`."""
        self.frames: list[tuple[int, bytes]] = []
        """The number of an exchange, and a frame."""
        self.mandatory: list[int] = []
        """Which of these may have to come back."""
        self.acknowledged: list[Run] = []
        self.returned: list[Run] = []
        self.rejected: list[Run] = []
        self._uncommitted = uncommitted
        self._size = 0

    def publish(self, exchange: int, frame: bytes, is_mandatory: bool) -> None:
        """Keep a message; raises AmqpError, RESOURCE_ERROR."""
        if self._size + len(frame) > MAX_REQUEST_DATA or len(self.frames) >= MAX_REQUEST_MESSAGES:
            raise AmqpError(
                Reply.RESOURCE_ERROR,
                f"a transaction with more than {MAX_REQUEST_MESSAGES} messages or {MAX_REQUEST_DATA} bytes; nothing of "
                "it was sent",
            )
        self._uncommitted.add(len(frame) + WEIGHT)
        self._size += len(frame)
        if is_mandatory:
            self.mandatory.append(len(self.frames))
        self.frames.append((exchange, frame))

    def release(self) -> None:
        """Forget the messages: they were sent, or will not be."""
        self._uncommitted.held -= self._size + WEIGHT * len(self.frames)
        self._size = 0
        self.frames.clear()
        self.mandatory.clear()

    @property
    def settled(self) -> list[Run]:
        """The deliveries of which it has said something."""
        return [*self.acknowledged, *self.returned, *self.rejected]

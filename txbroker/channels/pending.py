"""What a channel's client has said that has not happened yet."""

from __future__ import annotations

from typing import NamedTuple

from journal.constants import MAX_REQUEST_DATA, MAX_REQUEST_MESSAGES
from txbroker.amqp.methods import BasicPublish
from txbroker.amqp.reply_codes import AmqpError, Reply
from txbroker.channels.unacknowledged import Run


class Message(NamedTuple):
    """A message as it was published."""

    method: BasicPublish
    properties: bytes
    body: bytes


class Transaction:
    """What a channel has said since its last commit or rollback."""

    def __init__(self) -> None:
        self.frames: list[tuple[int, bytes]] = []
        """The number of an exchange, and a frame."""
        self.mandatory: list[tuple[int, bytes, Message]] = []
        self.acknowledged: list[Run] = []
        self.returned: list[Run] = []
        self.rejected: list[Run] = []
        self._size = 0

    def publish(self, exchange: int, frame: bytes, message: Message | None) -> None:
        """Keep a message; raises AmqpError, RESOURCE_ERROR. One that is mandatory may have to come back."""
        self._size += len(frame)
        if self._size > MAX_REQUEST_DATA or len(self.frames) >= MAX_REQUEST_MESSAGES:
            raise AmqpError(
                Reply.RESOURCE_ERROR,
                f"a transaction with more than {MAX_REQUEST_MESSAGES} messages or {MAX_REQUEST_DATA} bytes; nothing of "
                "it was sent",
            )
        self.frames.append((exchange, frame))
        if message is not None:
            self.mandatory.append((exchange, frame, message))

    @property
    def settled(self) -> list[Run]:
        """The deliveries of which it has said something."""
        return [*self.acknowledged, *self.returned, *self.rejected]

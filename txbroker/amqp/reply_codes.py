"""The reply codes of AMQP 0-9-1, and the errors that become them.

Source: the specification, section 1.2 of its XML (``constant``); which of them end a channel and which a connection is
RabbitMQ's rabbit_misc.erl and rabbit_channel.erl, by which clients judge; RESOURCE_ERROR apart, which ends a connection
there.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Final


class Reply(IntEnum):
    """A reply code."""

    SUCCESS = 200
    CONTENT_TOO_LARGE = 311
    NO_ROUTE = 312
    CONNECTION_FORCED = 320
    ACCESS_REFUSED = 403
    NOT_FOUND = 404
    RESOURCE_LOCKED = 405
    PRECONDITION_FAILED = 406
    FRAME_ERROR = 501
    SYNTAX_ERROR = 502
    COMMAND_INVALID = 503
    CHANNEL_ERROR = 504
    UNEXPECTED_FRAME = 505
    RESOURCE_ERROR = 506
    NOT_ALLOWED = 530
    NOT_IMPLEMENTED = 540
    INTERNAL_ERROR = 541

    @property
    def ends_connection(self) -> bool:
        """Whether it ends the connection, not only the channel that it happened on."""
        return self not in _OF_CHANNELS


_OF_CHANNELS: Final = frozenset(
    {
        Reply.CONTENT_TOO_LARGE,
        Reply.NO_ROUTE,
        Reply.ACCESS_REFUSED,
        Reply.NOT_FOUND,
        Reply.RESOURCE_LOCKED,
        Reply.PRECONDITION_FAILED,
        Reply.RESOURCE_ERROR,
    }
)


class AmqpError(Exception):
    """What a peer is told when its channel or connection is closed: a code, and words for people.

    ``channel`` is the number of the channel it happened on, None where that is known to who catches it.
    """

    def __init__(self, reply: Reply, text: str, channel: int | None = None) -> None:
        super().__init__(text)
        self.reply, self.text, self.channel = reply, text, channel
        self.method = (0, 0)
        """Class and number of the method that it answers, if there is one."""

    @property
    def told(self) -> str:
        """The text of a close, as RabbitMQ writes it; 255 bytes at most."""
        words = f"{self.reply.name} - {self.text}".encode()[:255]
        return words.decode(errors="ignore")

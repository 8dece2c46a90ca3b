"""What refusals of the broker are in AMQP: the reply codes that RabbitMQ gives for the same."""

from __future__ import annotations

from typing import Final

from txbroker.amqp.reply_codes import AmqpError, Reply
from txbroker.wire.messages import Refused

_REPLIES: Final = {
    "UnknownQueue": Reply.NOT_FOUND,
    "UnknownExchange": Reply.NOT_FOUND,
    "DeclaredOtherwise": Reply.PRECONDITION_FAILED,
    "QueueInUse": Reply.PRECONDITION_FAILED,
    "QueueFull": Reply.PRECONDITION_FAILED,
    "Unroutable": Reply.PRECONDITION_FAILED,
    "DeliveryLost": Reply.PRECONDITION_FAILED,
    "InvalidSetting": Reply.PRECONDITION_FAILED,
    "InvalidFrame": Reply.PRECONDITION_FAILED,
    "InvalidName": Reply.ACCESS_REFUSED,
    "AccessDenied": Reply.ACCESS_REFUSED,
    "AuthenticationFailed": Reply.ACCESS_REFUSED,
    "MessageTooLarge": Reply.CONTENT_TOO_LARGE,
}
PASSING: Final = frozenset(
    {
        "DiskFull", "MemoryExhausted", "LimitExceeded", "TooManyParked", "TooFarAhead", "StorageUnavailable",
        "TooManyLogins",
    }
)  # fmt: skip
"""Refusals that say nothing of the request itself: the same may be taken later."""


def amqp_error(refused: Refused) -> AmqpError:
    """Return the error for a refusal. One that is not known ends the connection: it is the broker's own fault."""
    if refused.error in PASSING:
        return AmqpError(Reply.RESOURCE_ERROR, refused.message)
    return AmqpError(_REPLIES.get(refused.error, Reply.INTERNAL_ERROR), refused.message)

"""What refusals of the broker are in AMQP: the reply codes that RabbitMQ gives for the same."""

from __future__ import annotations

from typing import Final

from journal.records.access_entries import Resource, Right
from txbroker.amqp.reply_codes import AmqpError, Reply
from txbroker.channels.virtual_hosts import VirtualHost
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
    "TransactionTooLarge": Reply.RESOURCE_ERROR,
}
PASSING: Final = frozenset(
    {
        "DiskFull", "MemoryExhausted", "LimitExceeded", "TooManyParked", "TooFarAhead", "StorageUnavailable",
        "TooManyLogins",
    }
)  # fmt: skip
"""Refusals that say nothing of the request itself: the same may be taken later."""


def access_refused(
    right: Right, resource: Resource, name: str, principal: str, host: VirtualHost
) -> AmqpError:
    """Return the error for who has not a right on the thing of a name, whether or not it is there."""
    does, what = right.name.lower(), resource.name.lower()
    return AmqpError(
        Reply.ACCESS_REFUSED,
        f"{does} access to {what} {host.shown(name)} refused for user '{principal}'; nothing was done, and this "
        "does not say whether it is there. An administrator may allow it: "
        f"txbroker access allow {principal} {does} {what} NAME",
    )


def amqp_error(refused: Refused, host: VirtualHost) -> AmqpError:
    """Return the error for a refusal, with the names that clients of a host know. One that is not known ends the
    connection: it is the broker's own fault.
    """
    known = Reply.RESOURCE_ERROR if refused.error in PASSING else _REPLIES.get(refused.error)
    return AmqpError(known or Reply.INTERNAL_ERROR, host.told(refused.message))

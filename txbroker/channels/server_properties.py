"""What the broker says of itself to clients of AMQP, by which they decide what they use."""

from __future__ import annotations

import platform
from typing import Final

import txbroker
from txbroker.amqp.fields import Table

RABBITMQ_VERSION: Final = "3.13.7"
"""The version of RabbitMQ whose ways these are: clients compare it."""
CAPABILITIES: Final = (
    "publisher_confirms",
    "exchange_exchange_bindings",
    "basic.nack",
    "consumer_cancel_notify",
    "connection.blocked",
    "consumer_priorities",
    "authentication_failure_close",
    "per_consumer_qos",
    "direct_reply_to",
)
"""What is answered beyond the specification."""


def server_properties() -> Table:
    """Return them. The product is RabbitMQ's, because clients switch off what they know only of that."""
    return {
        "capabilities": dict.fromkeys(CAPABILITIES, True),
        "product": "RabbitMQ",
        "version": RABBITMQ_VERSION,
        "platform": f"Python {platform.python_version()}",
        "information": f"txbroker {txbroker.__version__}, which speaks AMQP 0-9-1 as RabbitMQ does",
        "txbroker_version": txbroker.__version__,
    }

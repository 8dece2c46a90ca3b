"""The queue of messages on their way to an exchange, and its name among topics."""

from __future__ import annotations

import math
from typing import Final

from journal.message_headers import GivenHeaders
from txbroker.client.producer.batch import Batch
from txbroker.client.producer.partition_queue import PartitionQueue, Sender
from txbroker.client.producer.separate_batch import SeparateBatch

EXCHANGE_PREFIX: Final = "exchange:"
"""What stands before the name of an exchange where a send names a topic, whose own name has no colon."""
OPTIONAL_PREFIX: Final = "exchange?:"
"""The same, if messages that find no queue are to be dropped."""


def target_of(exchange: str, mandatory: bool) -> str:
    """Return what a send names as its topic to send through an exchange."""
    return f"{EXCHANGE_PREFIX if mandatory else OPTIONAL_PREFIX}{exchange}"


def exchange_of(topic: str) -> tuple[str, bool] | None:
    """Return the exchange that is meant by the topic of a send, and whether its messages must find a queue; None for a
    topic.
    """
    for prefix in (EXCHANGE_PREFIX, OPTIONAL_PREFIX):
        if topic.startswith(prefix):
            return topic.removeprefix(prefix), prefix == EXCHANGE_PREFIX
    return None


class ExchangeQueue(PartitionQueue):
    """The messages for one exchange on their way; ``number`` is its address.

    If all messages must find a queue, a batch has messages of one key and the same headers: the broker refuses none
    because of another one.
    """

    def __init__(self, producer: Sender, target: str, address: int, mandatory: bool) -> None:
        super().__init__(producer, target, 0, address)
        self.partitions = 1
        self._mandatory = mandatory
        self._last: tuple[bytes | None, GivenHeaders | None] = (None, None)

    def batch(self, deadline: float) -> Batch:
        """Return a new batch for messages that are sent by themselves."""
        return SeparateBatch(deadline, self.settled)

    def part(self) -> Batch:
        """Return a new batch for messages of a transaction."""
        return SeparateBatch(math.inf)

    def append(
        self, value: bytes | None, timestamp: int, key: bytes | None, headers: GivenHeaders | None
    ) -> tuple[Batch, int]:
        """Add a message; return its batch and its position there."""
        if self._mandatory and self.open is not None and self._last != (key, headers):
            self.flush()
        self._last = key, headers
        return super().append(value, timestamp, key, headers)

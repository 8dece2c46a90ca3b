"""The queue of one log of the schedule, and the way of a message into it."""

from __future__ import annotations

import math
from typing import cast

from journal.formats import frame
from journal.formats.envelope import SCHEDULE_TOPIC, EnvelopeMessage, enclosed, log_for
from journal.message_headers import GivenHeaders
from txbroker import errors
from txbroker.client.core.schedule_time import Due
from txbroker.client.producer.batch import Batch
from txbroker.client.producer.envelope_batch import EnvelopeBatch
from txbroker.client.producer.partition_queue import PartitionQueue, Sender
from txbroker.client.producer.route import Route

GivenMessage = tuple[bytes | None, int, bytes | None, GivenHeaders | None]
"""Value, timestamp, key, headers."""


class ScheduleQueue(PartitionQueue):
    """The envelopes of one log of the schedule on their way. Each of its batches is for one topic."""

    def __init__(self, producer: Sender, index: int, number: int) -> None:
        super().__init__(producer, SCHEDULE_TOPIC, index, number)
        self.target: PartitionQueue | None = None
        """The queue of the partition that the last message is for."""

    def batch(self, deadline: float) -> EnvelopeBatch:
        """Return a new batch for messages that are sent by themselves."""
        return EnvelopeBatch(deadline, self.settled, self.target)

    def part(self) -> EnvelopeBatch:
        """Return a new batch for messages of a transaction."""
        return EnvelopeBatch(math.inf)

    def spread(self) -> None:
        """Have the next messages for the topic of the last one, without a key, go to another partition."""
        if self.target is not None:
            self.target.spread()

    def append(
        self, value: bytes | None, timestamp: int, key: bytes | None, headers: GivenHeaders | None
    ) -> tuple[Batch, int]:
        """Add an envelope for the target; return its batch and its position there."""
        batch, target = cast(EnvelopeBatch | None, self.open), cast(PartitionQueue, self.target)
        if batch is not None and not batch.suits(target):
            self.flush()
        added, position = super().append(value, timestamp, key, headers)
        targets = cast(EnvelopeBatch, added).targets
        if target not in targets:
            targets.append(target)
        return added, position

    def flush(self) -> None:
        """Send everything that waits. What comes for the same topic, without a key, goes to another partition then."""
        batch = cast(EnvelopeBatch | None, self.open)
        if batch is not None:
            for target in batch.targets:
                target.spread()
        super().flush()

    def misfit(self, batch: Batch, refusal: errors.RequestRefused) -> None:
        """Note that the broker has refused a batch for what the topic is now that it is for; others may go on."""
        producer, target = self._producer, cast(EnvelopeBatch, batch).targets[0]
        if isinstance(refusal, errors.MessageTooLarge):
            producer.forget_route(target.topic)
        else:
            producer.gone(target)


def scheduled(
    logs: Route, target: PartitionQueue, due: Due, message: GivenMessage
) -> tuple[ScheduleQueue, EnvelopeMessage]:
    """Return the queue for a message that is due later, and the message that its envelope is there.

    Raises as :meth:`PartitionQueue.append` does for an ordinary message, and Misuse for one to an exchange.
    """
    if target.number < 0:
        raise errors.Misuse(
            f"a message for later has a topic, and {target.topic!r} is an exchange; nothing was sent. Send it without "
            "after and at, or have it returned for later when it is taken: nack(after=)"
        )
    inner, queue = frame.encode(*message), cast(ScheduleQueue, logs.queues[log_for(due.ahead)])
    queue.target = target
    return queue, enclosed(inner, target.number, due.clock, due.at)

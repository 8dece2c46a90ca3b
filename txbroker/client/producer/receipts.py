"""Where a message is on its way, and the receipt for it."""

from __future__ import annotations

from typing import NamedTuple

from journal.scheduled_id import ScheduledId
from txbroker.client.core.results import Durability, Receipt
from txbroker.client.producer.batch import Batch
from txbroker.client.producer.envelope_batch import EnvelopeBatch
from txbroker.client.producer.partition_queue import PartitionQueue


class Appended(NamedTuple):
    """The place of a message that was taken: the one at ``position`` of ``batch``, in ``queue``. ``target`` is the
    queue of the partition that it is for: the same, unless it is scheduled.
    """

    queue: PartitionQueue
    batch: Batch
    position: int
    target: PartitionQueue

    def receipt(self, base_offset: int, id: bytes | None) -> Receipt:
        """Return the receipt for it, whose batch is stored from ``base_offset`` on."""
        queue, batch, position, target = self
        if queue is target:
            return Receipt(queue.topic, queue.index, base_offset + position, Durability.FORCED, id)
        assert isinstance(batch, EnvelopeBatch)
        scheduled = ScheduledId(queue.index, base_offset + position, batch.checksums[position])
        return Receipt(target.topic, target.index, None, Durability.FORCED, id, scheduled)

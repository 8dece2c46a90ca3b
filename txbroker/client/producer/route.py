"""The route to a topic: which of its partitions gets a message."""

from __future__ import annotations

from collections.abc import Callable

from journal.arguments import octets
from txbroker import errors
from txbroker.client.core.partitioner import Partitioner, by_key, named_index
from txbroker.client.producer.partition_queue import PartitionQueue


class Route:
    """The route to a topic's partitions.

    ``forget`` is called with the topic's name for a partition that the route does not have: the topic may have more
    by now, and the next send looks.
    """

    def __init__(
        self,
        topic: str,
        queues: list[PartitionQueue],
        partitioner: Partitioner | None,
        forget: Callable[[str], None],
    ) -> None:
        self.topic = topic
        self._forget = forget
        self._partitioner = partitioner
        self.queues = queues
        self._sticky = 0
        self._sealed_before = queues[0].batches_sealed

    def choose(self, key: bytes | None, partition: int | None) -> PartitionQueue:
        """Choose the queue by explicit index, else by the user's partitioner, else by key, else one for a whole batch.

        Raises :class:`UnknownPartition`, and :class:`WrongType` for an impossible index or key.
        """
        queues = self.queues
        if key is not None and type(key) is not bytes:
            key = octets("key", key)
        if partition is None and self._partitioner is not None:
            partition = self._partitioner(self.topic, key, len(queues))
        if partition is not None:
            if type(partition) is not int:
                partition = named_index(partition)
            if not 0 <= partition < len(queues):
                self._forget(self.topic)
                raise errors.UnknownPartition(
                    f"{self.topic} has partitions 0 to {len(queues) - 1}, not {partition}; nothing was sent. If it got "
                    "more since this client looked, the next send finds them"
                )
            return queues[partition]
        if len(queues) == 1:
            return queues[0]
        if key is not None:
            return queues[by_key(key, len(queues))]
        queue = queues[self._sticky]
        if queue.batches_sealed != self._sealed_before:
            self._sticky = (self._sticky + 1) % len(queues)
            queue = queues[self._sticky]
            self._sealed_before = queue.batches_sealed
        return queue

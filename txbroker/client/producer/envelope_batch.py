"""Batches of envelopes: messages for one log of the schedule."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from journal.formats.frame import HEADER
from journal.message_headers import GivenHeaders
from txbroker.client.producer.batch import Batch
from txbroker.client.producer.separate_batch import SeparateBatch

if TYPE_CHECKING:
    from txbroker.client.producer.partition_queue import PartitionQueue


class EnvelopeBatch(SeparateBatch):
    """Envelopes, in order. Each of them is taken back, and comes due, by itself.

    All are for partitions of one topic, so that the broker refuses none because of what another one is for. ``targets``
    are their queues; in a transaction there are none. ``checksums`` are those of the envelopes, parts of their ids.
    """

    __slots__ = ("checksums", "targets")

    def __init__(
        self,
        deadline: float,
        on_settled: Callable[[Batch], None] | None = None,
        target: PartitionQueue | None = None,
    ) -> None:
        super().__init__(deadline, on_settled)
        self.targets = [] if target is None else [target]
        self.checksums: list[int] = []

    def add(
        self,
        value: bytes | None,
        timestamp: int,
        key: bytes | None,
        headers: GivenHeaders | None,
        room: int,
    ) -> int:
        """Add an envelope, as :func:`journal.formats.envelope.enclosed` says it; return its position, -1 if it does not
        fit.
        """
        position = super().add(value, timestamp, key, headers, room)
        if position >= 0:
            self.checksums.append(HEADER.unpack_from(self._pieces[-1])[1])
        return position

    def suits(self, target: PartitionQueue) -> bool:
        """Return whether a message for that partition may be in it: its topic is the one that the others are for, and
        has not been deleted and made anew since.
        """
        first = self.targets[0]
        return target is first or (target.topic == first.topic and first.broken is None)

    def mend(self) -> None:
        """Repair after an interrupt in :meth:`add`: the message is in the batch or it is not."""
        super().mend()
        del self.checksums[self.count :]

"""Batches of envelopes: messages for one log of the schedule."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from journal.constants import MAX_REQUEST_MESSAGES
from journal.formats import frame
from journal.formats.compression import Compressor
from journal.formats.frame import HEADER
from journal.message_headers import GivenHeaders
from txbroker.client.producer.batch import Batch

if TYPE_CHECKING:
    from txbroker.client.producer.partition_queue import PartitionQueue


class EnvelopeBatch(Batch):
    """Envelopes, in order: frames one after the other, because each of them is taken back, and comes due, by itself.

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
        count = self.count
        piece = frame.encode(value, timestamp, key, headers)
        size = self.size + len(piece)
        if count and (size > room or count >= MAX_REQUEST_MESSAGES):
            return -1
        self._pieces.append(piece)
        self.checksums.append(HEADER.unpack_from(piece)[1])
        self.size = size
        self.count = count + 1
        return count

    def suits(self, target: PartitionQueue) -> bool:
        """Return whether a message for that partition may be in it: its topic is the one that the others are for, and
        has not been deleted and made anew since.
        """
        first = self.targets[0]
        return target is first or (target.topic == first.topic and first.broken is None)

    @property
    def alone_size(self) -> int:
        """How many bytes its first message has as a frame by itself."""
        return self.size

    def mend(self) -> None:
        """Repair after an interrupt in :meth:`add`: the message is in the batch or it is not."""
        super().mend()
        del self.checksums[self.count :]

    def seal(self, compressor: Compressor | None = None) -> bytes:  # noqa: ARG002 - each is a frame of its own
        """Return the frames, which are not compressed."""
        if not self.frames:
            self.frames = self.data = b"".join(self._pieces)
            self._pieces.clear()
        return self.frames

"""Batches of envelopes: messages for one log of the schedule."""

from __future__ import annotations

from collections.abc import Callable
from typing import cast

from journal.constants import MAX_REQUEST_MESSAGES
from journal.formats import frame
from journal.formats.compression import Compressor
from journal.formats.frame import HEADER
from journal.message_headers import GivenHeaders
from txbroker.client.producer.batch import Batch


class EnvelopeBatch(Batch):
    """Envelopes, in order: frames one after the other, because each of them is taken back, and comes due, by itself.

    With ``of_one`` all are for one partition, so that the broker refuses none because of what another one is for.
    ``checksums`` are those of the envelopes, which are parts of their ids.
    """

    __slots__ = ("_of_one", "checksums", "key")

    def __init__(
        self, deadline: float, on_settled: Callable[[Batch], None] | None = None, of_one: bool = False
    ) -> None:
        super().__init__(deadline, on_settled)
        self.key = b""
        """The key of its first envelope."""
        self.checksums: list[int] = []
        self._of_one = of_one

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
        count, given = self.count, cast(bytes, key)
        piece = frame.encode(value, timestamp, given, headers)
        size = self.size + len(piece)
        is_full = size > room or count >= MAX_REQUEST_MESSAGES or (self._of_one and given != self.key)
        if count and is_full:
            return -1
        if not count:
            self.key = given
        self._pieces.append(piece)
        self.checksums.append(HEADER.unpack_from(piece)[1])
        self.size = size
        self.count = count + 1
        return count

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

"""Batches of messages that are frames of their own: each goes its own way, or comes due by itself."""

from __future__ import annotations

from journal.constants import MAX_REQUEST_MESSAGES
from journal.formats import frame
from journal.formats.compression import Compressor
from journal.formats.frame import encode_alone, walk_inner
from journal.message_headers import GivenHeaders
from txbroker.client.producer.batch import Batch, Frames


class SeparateBatch(Batch):
    """Messages, in order: frames one after the other, which are not compressed together."""

    __slots__ = ()

    def add(
        self,
        value: bytes | None,
        timestamp: int,
        key: bytes | None,
        headers: GivenHeaders | None,
        room: int,
    ) -> int:
        """Add a message; return its position, -1 if it does not fit."""
        count = self.count
        piece = frame.encode(value, timestamp, key, headers)
        size = self.size + len(piece)
        if count and (size > room or count >= MAX_REQUEST_MESSAGES):
            return -1
        self._pieces.append(piece)
        self.size = size
        self.count = count + 1
        return count

    def add_frames(self, frames: Frames, first: int, last: int) -> None:
        """Add messages that are frames already."""
        packed = frames.packed(first, last, self.count)
        for position, length, _ in walk_inner(packed):
            piece = encode_alone(packed[position : position + length])
            self._pieces.append(piece)
            self.size += len(piece)
        self.count += last - first

    @property
    def alone_size(self) -> int:
        """How many bytes its first message has as a frame by itself."""
        return self.size

    def seal(self, compressor: Compressor | None = None) -> bytes:  # noqa: ARG002 - each is a frame of its own
        """Return the frames, which are not compressed."""
        if not self.frames:
            self.frames = self.data = b"".join(self._pieces)
            self._pieces.clear()
        return self.frames

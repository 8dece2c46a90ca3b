"""The headers of new segments: with the newest start that the journal records, and a new salt."""

from __future__ import annotations

from collections.abc import Callable

from journal.formats.segment_header import SALT_BYTES, SegmentHeader
from journal.log.start_history import Starts


class SegmentOrigin:
    """Makes the headers of new segments. ``random(n)`` returns n random bytes."""

    def __init__(self, starts: Starts, random: Callable[[int], bytes]) -> None:
        self._starts = starts
        self._random = random

    def header(self, partition: int, base_offset: int) -> SegmentHeader:
        """Return the header of a new segment. In a replay, the newest start is the one that the journal has reached."""
        starts = self._starts
        return SegmentHeader(
            starts.nonce,
            starts.number,
            partition,
            base_offset,
            int.from_bytes(self._random(SALT_BYTES), "big"),
        )

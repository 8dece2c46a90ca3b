"""What records and requests say of streams: the numbered deliveries of outboxes (decision 0048)."""

from __future__ import annotations

from typing import Annotated, Final

import msgspec

from journal.formats.checkpoint_rows import Count

STREAM_BYTES: Final = 16
StreamId = Annotated[bytes, msgspec.Meta(min_length=STREAM_BYTES, max_length=STREAM_BYTES)]
"""Random bytes that a program makes up for one connection to its database."""

MAX_TABLE: Final = 64
TableName = Annotated[str, msgspec.Meta(min_length=1, max_length=MAX_TABLE)]
"""The identity of a decision table."""

Number = Annotated[int, msgspec.Meta(ge=1)]
"""A number of a stream: that of a block."""


class Delivered(msgspec.Struct, array_like=True, frozen=True, gc=False, tag=2):
    """The stream's numbers up to ``number`` are delivered by the commit; ``claim`` is the LSN of the holder's claim."""

    stream: StreamId
    claim: Count
    number: Number

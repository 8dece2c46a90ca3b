"""The kinds of journal records about streams of outboxes (decision 0048)."""

from __future__ import annotations

from typing import Annotated

import msgspec

from journal.formats.checkpoint_rows import Count
from journal.records.record_base import Record
from journal.records.stream_entries import StreamId, TableName

NONCE_BYTES = 16
Nonce = Annotated[bytes, msgspec.Meta(min_length=NONCE_BYTES, max_length=NONCE_BYTES)]
"""Random bytes that distinguish a start from another one of the same number, which a copy of the data may use again."""


class StreamClaimed(Record, frozen=True, tag=23):
    """A client holds a stream from here on, and nobody else: this record's LSN and ``nonce``, that of the start, are
    the epoch of its deliveries.

    ``table`` is the identity of the decision table whose rows it is of, ``generation`` that table's as the client has
    read it. ``client`` is the name of the client, for people.
    """

    stream: StreamId
    table: TableName
    generation: Count
    nonce: Nonce
    client: str
    at: int


class StreamReleased(Record, frozen=True, tag=24):
    """A stream is not known any more: its rows are gone. ``generation`` is that of its table from then on."""

    stream: StreamId
    generation: Count
    at: int

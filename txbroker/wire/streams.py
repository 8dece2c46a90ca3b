"""The requests about streams: the numbered deliveries of outboxes (decision 0048)."""

from __future__ import annotations

from typing import Final

from txbroker.wire.requests import Request

MAX_STREAMS_LISTED: Final = 1000
"""Most streams of one answer to :class:`ListStreams`."""


class ClaimStream(Request, frozen=True, tag=44):
    """Become the holder of a stream, and fence the one before. Answered by :class:`StreamHeld` once forced.

    ``stream`` is 16 random bytes; one that is not known is known from then on. ``table`` is the identity of the
    decision table whose rows it numbers, ``generation`` that table's as the client has read it. Refused with
    OutboxSetBack if a higher generation is known (``numbers``: ``generation``): read it again, and if it is still
    lower the database has been set back. Refused with StreamFenced if the stream is of another table, with
    LimitExceeded if there are ``max_streams``.
    """

    stream: bytes
    table: str
    generation: int


class ReleaseStream(Request, frozen=True, tag=45):
    """Have a stream forgotten whose rows up to ``last`` are gone for good. Answered by :class:`Done` once forced.

    ``generation`` is that of its table since the rows are gone. A stream that is not known is released already. Refused
    with StreamFenced without the newest ``epoch``, with StreamOutOfOrder unless ``last`` is the last number that is
    delivered, with OutboxSetBack for a lower generation than is known.
    """

    stream: bytes
    epoch: bytes
    last: int
    generation: int


class ListStreams(Request, frozen=True, tag=46):
    """Answered by :class:`Streams`: those of a decision table ("" for all) whose claims are above ``after``, in the
    order of their claims, 1,000 at most.
    """

    table: str = ""
    after: int = 0

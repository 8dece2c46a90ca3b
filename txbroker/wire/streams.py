"""The requests about streams, the numbered deliveries of outboxes (decision 0048), and their answers."""

from __future__ import annotations

from typing import Final

import msgspec

from txbroker.wire.answers import Answer
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


class StreamHeld(Answer, frozen=True, tag=91):
    """Answers :class:`ClaimStream`: deliver under this ``epoch``, after ``last``, the highest number that is delivered.

    ``born`` is the epoch of the claim with which the stream became known: as long as it is the same, the stream has not
    been released.
    """

    epoch: bytes
    last: int
    born: bytes


class StreamInfo(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """A stream: ``last`` is the highest number that is delivered, ``claim`` the LSN of the newest claim, ``client`` who
    made it, and ``idle`` how many µs ago the last claim or delivery was.
    """

    stream: bytes
    table: str
    last: int
    claim: int
    client: str
    idle: int


class Streams(Answer, frozen=True, tag=92):
    """Answers :class:`ListStreams`. ``more``: there may be others behind the last."""

    streams: list[StreamInfo]
    more: bool

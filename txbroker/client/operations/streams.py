"""The requests about streams of an outbox (docs/decisions/0048-outbox-streams.md), for whoever looks after one."""

from __future__ import annotations

from txbroker.client.core.core import Core
from txbroker.wire.messages import (
    ClaimStream,
    Done,
    ListStreams,
    ReleaseStream,
    StreamHeld,
    StreamInfo,
    Streams,
)


async def claim_stream(core: Core, stream: bytes, table: str, generation: int) -> StreamHeld:
    """Become the holder of a stream. Raises OutboxSetBack, StreamFenced for a stream of another table, LimitExceeded.

    ``generation`` is that of the decision table with the identity ``table``, read and forced before.
    """
    return await core.request(ClaimStream(core.correlation(), stream, table, generation), StreamHeld)


async def release_stream(core: Core, stream: bytes, epoch: bytes, last: int, generation: int) -> None:
    """Have a stream forgotten whose rows up to ``last`` are gone by a forced commit, which raised the generation.

    Raises StreamFenced, StreamOutOfOrder, OutboxSetBack.
    """
    await core.request(ReleaseStream(core.correlation(), stream, epoch, last, generation), Done)


async def list_streams(core: Core, table: str) -> list[StreamInfo]:
    """Return the known streams of a decision table, in the order of their claims."""
    found, after = list[StreamInfo](), 0
    while True:
        page = await core.request(ListStreams(core.correlation(), table, after), Streams)
        found += page.streams
        if not page.more or not page.streams:
            return found
        after = found[-1].claim

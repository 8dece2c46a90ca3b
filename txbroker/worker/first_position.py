"""The first position of a group in a partition, where a worker with transactions begins."""

from __future__ import annotations

from journal.records.group_entries import PartitionOffset
from txbroker.client.core.core import Core
from txbroker.client.core.positions import Position, stored_positions
from txbroker.wire.messages import CommitOffsets, Done


async def set_first_position(core: Core, group: str, position: Position) -> None:
    """Give a group that has none in a partition the position where its reader has begun.

    Otherwise the first transaction that finishes a message there would decide where the group begins, and hold all
    offsets of the partition until its outcome: the transactions beside it would be refused, and done again. Raises
    OffsetPending if a transaction of an earlier reader does that, GenerationFenced.
    """
    (found,) = await stored_positions(core, group, [position.number])
    if found.offset is None:
        begin = PartitionOffset(position.number, position.begin, position.generation)
        await core.request(CommitOffsets(core.correlation(), group, [begin]), Done)

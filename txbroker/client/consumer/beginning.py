"""The beginning of a consumer's reading: its partitions, where it begins in each, and its claims."""

from __future__ import annotations

from datetime import datetime

from journal.arguments import NOTHING_READ, micros
from txbroker import errors
from txbroker.client.consumer.options import ConsumerOptions, Start
from txbroker.client.core.core import Core
from txbroker.client.core.positions import Position, requests_of
from txbroker.wire.messages import Claimed, ClaimPartitions, DescribeTopics, Offsets, OffsetsForTime, Topics


async def positions_to_read(core: Core, options: ConsumerOptions) -> dict[int, Position]:
    """Return the positions where the options say to begin, by number. Raises UnknownTopic, UnknownPartition."""
    answer = await core.request(DescribeTopics(core.correlation(), list(options.topics)), Topics)
    missing = set(options.topics) - {topic.name for topic in answer.topics}
    if missing:
        names = ", ".join(map(repr, sorted(missing)))
        raise errors.UnknownTopic(f"there is no topic {names}; nothing is read. Create it first")
    found: dict[int, Position] = {}
    for topic in answer.topics:
        known = {part.index for part in topic.partitions}
        if unknown := set(options.partitions or ()) - known:
            raise errors.UnknownPartition(
                f"{topic.name} has no partitions {sorted(unknown)}; nothing is read"
            )
        for part in topic.partitions:
            if options.partitions is None or part.index in options.partitions:
                position = Position(topic.name, part.index, part.number, part.high_watermark, options.order)
                position.next = position.begin = _start_of(
                    options.start, part.start_offset, part.high_watermark
                )
                found[part.number] = position
    if isinstance(options.start, datetime):
        await _start_at_time(core, found, options.start)
    return found


def _start_of(start: Start, start_offset: int, high_watermark: int) -> int:
    if isinstance(start, int):
        return start
    return high_watermark if start == "latest" else start_offset


async def _start_at_time(core: Core, positions: dict[int, Position], time: datetime) -> None:
    wall = micros("start", time, NOTHING_READ)
    for some in requests_of(list(positions)):
        request = OffsetsForTime(core.correlation(), some, wall)
        for number, offset in (await core.request(request, Offsets)).offsets:
            positions[number].next = positions[number].begin = offset


async def claim(core: Core, group: str, member: str, positions: dict[int, Position]) -> None:
    """Claim partitions, before the group's positions are taken: so a late commit of others is fenced."""
    for some in requests_of(list(positions)):
        request = ClaimPartitions(core.correlation(), group, member, some)
        for number, generation in (await core.request(request, Claimed)).claims:
            positions[number].generation = generation

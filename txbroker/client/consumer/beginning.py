"""The beginning of a consumer's reading: its partitions, where it begins in each, and its claims."""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping, Sequence
from datetime import datetime

from journal.arguments import NOTHING_READ, micros
from txbroker import errors
from txbroker.client.consumer.options import ConsumerOptions, Start
from txbroker.client.core.core import Core
from txbroker.client.core.positions import Position, requests_of, stored_positions
from txbroker.wire.messages import (
    AssignedPartition,
    Claimed,
    ClaimPartitions,
    DescribeTopics,
    Offsets,
    OffsetsForTime,
    TopicInfo,
    Topics,
)

log = logging.getLogger("txbroker.client")


async def check_topics(core: Core, options: ConsumerOptions) -> list[TopicInfo]:
    """Return the topics that the options name; raises UnknownTopic."""
    if not options.topics:
        return []
    answer = await core.request(DescribeTopics(core.correlation(), list(options.topics)), Topics)
    missing = set(options.topics) - {topic.name for topic in answer.topics}
    if missing:
        names = ", ".join(map(repr, sorted(missing)))
        raise errors.UnknownTopic(f"there is no topic {names}; nothing is read. Create it first")
    return answer.topics


async def positions_to_read(core: Core, options: ConsumerOptions) -> dict[int, Position]:
    """Return the positions where the options say to begin, by number. Raises UnknownTopic, UnknownPartition."""
    found: dict[int, Position] = {}
    for topic in await check_topics(core, options):
        known = {part.index for part in topic.partitions}
        if unknown := set(options.partitions or ()) - known:
            raise errors.UnknownPartition(
                f"{topic.name} has no partitions {sorted(unknown)}; nothing is read"
            )
        for part in topic.partitions:
            if options.partitions is None or part.index in options.partitions:
                position = Position(topic.name, part.index, part.number, part.high_watermark, options.order)
                position.next = position.begin = start_of(
                    options.start, part.start_offset, part.high_watermark
                )
                found[part.number] = position
    if isinstance(options.start, datetime):
        await _start_at_time(core, found, options.start)
    return found


def start_of(start: Start, start_offset: int, high_watermark: int) -> int:
    """Return the offset that a ``start`` means in a partition that begins and ends there."""
    if isinstance(start, int):
        return start
    return high_watermark if start == "latest" else start_offset


async def _start_at_time(core: Core, positions: dict[int, Position], time: datetime) -> None:
    wall = micros("start", time, NOTHING_READ)
    for some in requests_of(list(positions)):
        request = OffsetsForTime(core.correlation(), some, wall)
        for number, offset in (await core.request(request, Offsets)).offsets:
            positions[number].next = positions[number].begin = offset


async def begin_of(
    core: Core, options: ConsumerOptions, given: Sequence[AssignedPartition]
) -> list[Position]:
    """Return where a member begins to read the partitions that it was given: where the group is, and where the options
    say if that is nowhere. Raises UnknownPartition or UnknownTopic if one is gone, with its topic.
    """
    numbers = [each.partition for each in given]
    stored = await stored_positions(core, options.group or "", numbers)
    offsets = {each.partition: each.offset for each in stored if each.offset is not None}
    there: dict[int, Position] = {}
    if not options.follow or len(offsets) < len(given):
        topics = tuple(dict.fromkeys(each.topic for each in given))
        there = await positions_to_read(core, options._replace(topics=topics))
    found = []
    for each in given:
        known = there.get(each.partition)
        position = known or Position(each.topic, each.index, each.partition, 0, options.order)
        position.generation = each.generation
        position.next = position.begin = offsets.get(each.partition, position.next)
        found.append(position)
    return found


def within_range(position: Position, out_of_range: str, there: tuple[int, int], why: str) -> int:
    """Return where to go on when the next offset is not among those that are ``there``; raises OffsetOutOfRange if
    that is not wanted.
    """
    where = f"{position.topic}-{position.index}"
    if out_of_range == "raise":
        reason = f"{where}: offset {position.next} is not within {there[0]} to {there[1]}"
        raise errors.OffsetOutOfRange(f"{reason}; {why}", *there)
    target = there[1] if out_of_range == "latest" else there[0]
    log.warning(
        "%s: offset %d is out of range (%d to %d are there); going on at %d because of out_of_range=%r",
        where, position.next, *there, target, out_of_range,
    )  # fmt: skip
    return target


async def claim(core: Core, group: str, member: str, positions: dict[int, Position]) -> None:
    """Claim partitions, before the group's positions are taken: so a late commit of others is fenced."""
    for some in requests_of(list(positions)):
        request = ClaimPartitions(core.correlation(), group, member, some)
        for number, generation in (await core.request(request, Claimed)).claims:
            positions[number].generation = generation


async def lost_claims(core: Core, group: str, positions: Mapping[int, Position]) -> list[int]:
    """Return the partitions whose claims are not those of these positions any more; all if one of them is gone."""
    claimed = dict(positions)
    try:
        known = await stored_positions(core, group, list(claimed))
    except errors.UnknownPartition:
        return list(claimed)
    return [found.partition for found in known if found.generation != claimed[found.partition].generation]


async def say_what_waits(core: Core, group: str, positions: Collection[Position]) -> None:
    """Log of partitions where something has begun to wait which transaction holds it, if one does."""
    waits = [each for each in positions if each.left.waiting]
    for each in positions:
        if not each.left.waiting:
            each.pending = ""
    fresh = {each.number: each for each in waits if not each.pending}
    if not fresh:
        return
    for found in await stored_positions(core, group, list(fresh)):
        position = fresh[found.partition]
        position.pending = found.pending_by or "nothing that is known"
        if found.pending_by:
            log.warning(
                "group %s waits at %s-%d: its offset is held by the undecided transaction %s",
                group, position.topic, position.index, found.pending_by,
            )  # fmt: skip
            core.on_held()

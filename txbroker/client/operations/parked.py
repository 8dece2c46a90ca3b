"""What a group is to try again, as operators see it: listed, and released."""

from __future__ import annotations

from collections.abc import Sequence

from txbroker.client.core.core import Core
from txbroker.client.core.results import ParkedMessage
from txbroker.client.operations.topic_creation import described
from txbroker.wire import messages as commands


async def parked_messages(core: Core, group: str) -> list[ParkedMessage]:
    """Return the messages that a group is to try again, sorted by topic, partition and offset."""
    known = await core.request(commands.FetchOffsets(core.correlation(), group), commands.GroupOffsets)
    if not known.offsets:
        return []
    places = {
        p.number: (topic.name, p.index) for topic in await described(core, None) for p in topic.partitions
    }
    found: list[ParkedMessage] = []
    for number in [at.partition for at in known.offsets if at.partition in places]:
        first, more = 0, True
        while more:
            request = commands.ListParked(core.correlation(), group, number, first)
            told = await core.request(request, commands.Parked)
            found += [
                ParkedMessage(
                    *places[number],
                    each.offset,
                    each.attempts,
                    each.left / 1e6,
                    each.reason,
                    each.dead,
                    each.stopped,
                )
                for each in told.offsets
            ]
            first, more = (told.offsets[-1].offset + 1, told.more) if told.offsets else (0, False)
    return sorted(found)


async def release(
    core: Core, group: str, group_id: bytes, number: int, offsets: Sequence[int], what: commands.Release
) -> None:
    """Do something with offsets of a partition; in as many steps as there are thousands."""
    for first in range(0, len(offsets), commands.MAX_PARKED_LISTED):
        some = list(offsets[first : first + commands.MAX_PARKED_LISTED])
        request = commands.ReleaseParked(core.correlation(), group, group_id, number, some, what)
        await core.request(request, commands.Done)

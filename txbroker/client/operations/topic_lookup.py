"""Finding one topic, and a partition of it, by their names."""

from __future__ import annotations

from journal.arguments import NOTHING_READ, text
from txbroker import errors
from txbroker.client.core.core import Core
from txbroker.client.core.partitioner import named_index
from txbroker.client.operations.topic_creation import described
from txbroker.wire.messages import TopicInfo


async def one_topic(core: Core, name: str) -> TopicInfo:
    """Return the description of one topic; raises UnknownTopic."""
    name = text("topic", name, NOTHING_READ)
    found = await described(core, [name])
    if not found:
        raise errors.UnknownTopic(f"there is no topic {name!r}")
    return found[0]


def number_of(info: TopicInfo, index: int) -> int:
    """Return the number of a topic's partition; raises UnknownPartition, WrongType, WrongValue."""
    wanted = named_index(index)
    for part in info.partitions:
        if part.index == wanted:
            return part.number
    raise no_partition(info, index)


def no_partition(info: TopicInfo, index: int) -> errors.UnknownPartition:
    """Return the error for an index that a topic has no partition of."""
    return errors.UnknownPartition(f"{info.name} has {len(info.partitions)} partitions, none is {index}")

"""The topic of a measurement is made and removed again; a topic of the user's is never removed."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import msgspec

import txbroker
from txbroker.errors import Misuse, UnknownTopic
from txbroker.wire.messages import TopicInfo


class Ground(msgspec.Struct, frozen=True):
    """A topic as it was found or made: its name, and where each partition ended before anything was sent."""

    name: str
    starts: dict[int, int]
    own: bool


@contextmanager
def own_topic(broker: txbroker.Connection, run: int, partitions: int) -> Iterator[Ground]:
    """Make a topic for this run alone, and delete it at the end; a failure to delete it names it."""
    name = f"bench-{run:08x}"
    info = broker.create_topic(name, partitions)
    try:
        yield _ground(info, own=True)
    finally:
        try:
            broker.delete_topic(name)
        except txbroker.errors.TxBrokerError as error:
            error.add_note(f"The topic {name} was made for this run and is still there; delete it by hand")
            raise


def topic_to_write(broker: txbroker.Connection, name: str, partitions: int, append: bool) -> Ground:
    """Find or make the user's topic. Raises :class:`Misuse` if it holds messages and appending was not asked for."""
    found = broker.topics([name])
    info = found[0] if found else broker.create_topic(name, partitions, exist_ok=True)
    held = sum(part.high_watermark - part.start_offset for part in info.partitions)
    if held and not append:
        raise Misuse(
            f"the topic {name!r} holds {held:,} messages; nothing was sent. Leave --topic out for one that is made for "
            "the measurement and removed again, name an empty one, or say --append to add to what is there for good"
        )
    return _ground(info, own=False)


def topic_to_read(broker: txbroker.Connection, name: str) -> Ground:
    """Return the user's topic, which must hold messages."""
    found = broker.topics([name])
    if not found:
        raise UnknownTopic(f"there is no topic {name!r}; nothing was read")
    if not any(part.high_watermark > part.start_offset for part in found[0].partitions):
        raise Misuse(
            f"the topic {name!r} is empty; nothing can be read from it. Leave --topic out for one that is filled"
        )
    return _ground(found[0], own=False)


def _ground(info: TopicInfo, own: bool) -> Ground:
    return Ground(info.name, {part.index: part.high_watermark for part in info.partitions}, own)

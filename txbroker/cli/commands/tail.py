"""``txbroker tail``: prints messages as lines, from anywhere in a topic."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import chain, islice
from typing import TYPE_CHECKING

import click

from txbroker.cli.clock import TIME
from txbroker.cli.commands.topics import known_topic
from txbroker.cli.exits import Exit, Failure
from txbroker.cli.invocation import Command, Invocation, pass_invocation
from txbroker.cli.output import bytes_json, bytes_text, count_text, json_line, time_text, visible
from txbroker.cli.positions import nearest
from txbroker.wire.messages import TopicInfo

if TYPE_CHECKING:
    from txbroker import Connection, Message

LAST = -10
"""Where it begins by default: with the last ten messages of each partition."""


PREFETCH = 1 << 20
"""Bytes that each consumer reads ahead."""

LOOK = 0.1
"""Seconds in which all partitions are read once while following."""


@click.command(cls=Command)
@click.argument("topic")
@click.option(
    "--partition",
    "partitions",
    type=click.IntRange(0),
    multiple=True,
    help="Show only this partition. Repeatable.",
)
@click.option(
    "--from-offset", type=int, metavar="N", help="Begin at this offset; -N for the last N of each partition."
)
@click.option(
    "--from-time",
    type=TIME,
    help="Begin with the first message appended at that time or later: 2026-01-01T10:00 (UTC), or -10m.",
)
@click.option("--group", help="Begin where this group stands. The group is not moved.")
@click.option("--follow", is_flag=True, help="Wait for new messages at the end, until Ctrl-C.")
@click.option("--count", type=click.IntRange(1), metavar="N", help="Stop after so many messages.")
@pass_invocation
def tail(
    invocation: Invocation,
    topic: str,
    partitions: tuple[int, ...],
    from_offset: int | None,
    from_time: int | None,
    group: str | None,
    follow: bool,
    count: int | None,
) -> None:
    """Print the messages of TOPIC.

    It begins with the last ten messages of each partition, unless an option says where. Only committed messages are
    shown. The messages of a partition keep their order. With --json each message is a line.
    """
    if sum(chosen is not None for chosen in (from_offset, from_time, group)) > 1:
        raise click.UsageError("say at most one of --from-offset, --from-time, --group")
    with invocation.connect() as broker:
        info = known_topic(broker.topics([topic]), topic)
        chosen = chosen_partitions(info, partitions)
        tell_moved(info, chosen, from_offset)
        start = starts(broker, info, from_offset, from_time, group)
        messages = read_on(broker, topic, {index: start[index] for index in chosen}, follow)
        print_lines(messages, count, invocation.as_json)


def chosen_partitions(topic: TopicInfo, wanted: tuple[int, ...]) -> list[int]:
    """Return the partitions to read; exit 1 for one that the topic does not have."""
    known = [part.index for part in topic.partitions]
    if unknown := sorted(set(wanted) - set(known)):
        count = count_text(len(known), "partition")
        raise Failure(f"topic {topic.name} has no partition {unknown[0]}; it has {count}, from 0 on", Exit.NO)
    return sorted(set(wanted)) or known


def starts(
    broker: Connection, topic: TopicInfo, offset: int | None, time: int | None, group: str | None
) -> dict[int, int]:
    """Return where to begin in each partition; an offset that it does not have becomes the nearest that it has."""
    parts = topic.partitions
    if time is not None:
        found = dict(broker.offsets_for_time(topic.name, time))
        return {part.index: found.get(part.index, part.high_watermark) for part in parts}
    if group is not None:
        known = group_starts(broker, topic.name, group)
        return {part.index: nearest(part, known.get(part.index, 0))[0] for part in parts}
    wanted = LAST if offset is None else offset
    if wanted < 0:
        return {part.index: max(part.start_offset, part.high_watermark + wanted) for part in parts}
    return {part.index: nearest(part, wanted)[0] for part in parts}


def tell_moved(topic: TopicInfo, chosen: list[int], offset: int | None) -> None:
    """Report on stderr where the given offset does not exist. 0 means the oldest, and needs no report."""
    for part in topic.partitions:
        if offset and offset > 0 and part.index in chosen and (note := nearest(part, offset)[1]):
            click.echo(f"{topic.name}[{part.index}]: {note}", err=True)


def group_starts(broker: Connection, topic: str, group: str) -> dict[int, int]:
    """Return a group's positions in the topic; where it has none it would begin with the oldest message."""
    return {
        position.partition: position.offset
        for position in broker.group_offsets(group)
        if position.topic == topic and position.offset is not None
    }


def read_on(broker: Connection, topic: str, start: dict[int, int], follow: bool) -> Iterator[Message]:
    """Yield the messages of these partitions from these offsets on; those that begin alike share a consumer."""
    indexes: dict[int, list[int]] = {}
    for index, offset in start.items():
        indexes.setdefault(offset, []).append(index)
    consumers = [
        broker.consume(
            topic, partitions=together, start=offset, follow=follow, prefetch=PREFETCH, out_of_range="raise"
        )
        for offset, together in indexes.items()
    ]
    if not follow or len(consumers) == 1:
        yield from chain.from_iterable(consumers)
        return
    while True:
        for consumer in consumers:
            yield from consumer.poll(LOOK / len(consumers))


def print_lines(messages: Iterable[Message], count: int | None, as_json: bool) -> int:
    """Print each message as a line as soon as it comes, at most so many; return how many there were."""
    printed = 0
    for message in islice(messages, count):
        click.echo(json_line(message_json(message)) if as_json else message_text(message))
        printed += 1
    return printed


def message_text(message: Message) -> str:
    """Return a message for people, on one line."""
    return content_text(f"{message.topic}[{message.partition}] {message.offset}", message)


def content_text(place: str, message: Message, marks: Iterable[str] = ()) -> str:
    """Return a message at a place for people, on one line; ``marks`` are what else is to be said of it."""
    parts = [place, time_text(message.timestamp)]
    if message.appended:
        parts.append(f"appended={time_text(message.appended)}")
    parts += marks
    if message.key is not None:
        parts.append(f"key={bytes_text(message.key)}")
    parts += [f"{visible(name)}={bytes_text(value)}" for name, value in message.headers]
    parts.append("(tombstone)" if message.value is None else bytes_text(message.value))
    return "  ".join(parts)


def message_json(message: Message) -> dict[str, object]:
    """Return a message in JSON."""
    return {"topic": message.topic, "partition": message.partition, **content_json(message)}


def content_json(message: Message) -> dict[str, object]:
    """Return a message in JSON, without the topic; ``timestamp`` is the sender's, ``appended`` the broker's, in µs
    since 1970 UTC.
    """
    return {
        "offset": message.offset,
        "timestamp": message.timestamp,
        "appended": message.appended or None,
        "key": bytes_json(message.key),
        "value": bytes_json(message.value),
        "id": bytes_json(message.id),
        "tags": list(message.tags),
        "headers": [[name, bytes_json(value)] for name, value in message.headers],
    }

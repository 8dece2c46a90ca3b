"""``txbroker topics``: create, list, describe and delete topics."""

from __future__ import annotations

from typing import Any

import click
from rich.console import Group as Stack

from journal.constants import MAX_PARTITIONS_PER_TOPIC
from journal.formats.filenames import is_internal
from journal.formats.outcome_entry import OUTCOMES_TOPIC
from journal.settings import TopicSettings
from txbroker.cli.arguments import Parsed, setting
from txbroker.cli.exits import Exit, Failure
from txbroker.cli.invocation import Group, Invocation, confirm, pass_invocation
from txbroker.cli.output import age_text, count_text, emit, facts, size_text, table
from txbroker.errors import TopicExists
from txbroker.wire.messages import TopicInfo


@click.group(cls=Group)
def topics() -> None:
    """Create, list, describe and delete topics."""


@topics.command(short_help="Create the topic NAME.")
@click.argument("name")
@click.option(
    "--partitions",
    type=click.IntRange(1, MAX_PARTITIONS_PER_TOPIC),
    metavar="N",
    help="Number of partitions (default: 1).",
)
@click.option(
    "--set",
    "settings",
    multiple=True,
    metavar="NAME=VALUE",
    type=Parsed("setting", setting),
    help="A setting, such as retention_age=7d or segment_bytes=64MiB. Repeatable.",
)
@click.option("--if-not-exists", is_flag=True, help="If the topic exists, leave it unchanged and succeed.")
@pass_invocation
def create(
    invocation: Invocation,
    name: str,
    partitions: int | None,
    settings: tuple[tuple[str, int | None], ...],
    if_not_exists: bool,
) -> None:
    """Create the topic NAME. Without --if-not-exists, a topic that exists is refused."""
    wanted: dict[str, Any] = dict(settings)
    with invocation.connect() as broker:
        created = True
        try:
            topic = broker.create_topic(name, partitions=partitions, **wanted)
        except TopicExists:
            if not if_not_exists:
                raise
            created = False
            topic = broker.create_topic(name, partitions=partitions, exist_ok=True, **wanted)
    what = "Created topic {}" if created else "Topic {} is there already,"
    have = count_text(len(topic.partitions), "partition")
    emit(invocation.as_json, topic_json(topic), lambda: f"{what.format(topic.name)} with {have}.")


@topics.command("list", short_help="List all topics.")
@pass_invocation
def list_topics(invocation: Invocation) -> None:
    """List all topics. The topics that the broker keeps for itself are listed separately."""
    with invocation.connect() as broker:
        found = broker.topics()
        own = broker.topics([OUTCOMES_TOPIC])

    def shown() -> Stack:
        columns = ("topic", "partitions", "messages", "bytes")
        listed = table(columns, map(_row, found), "There are no topics.")
        kept = table(("kept by the broker itself", *columns[1:]), map(_row, own), "")
        return Stack(listed, "", kept) if own else Stack(listed)

    emit(invocation.as_json, [topic_json(each) for each in (*found, *own)], shown)


def _row(topic: TopicInfo) -> tuple[object, ...]:
    return (topic.name, len(topic.partitions), messages_of(topic), size_text(bytes_of(topic)))


@topics.command(short_help="Show settings and partitions of the topic NAME.")
@click.argument("name")
@pass_invocation
def describe(invocation: Invocation, name: str) -> None:
    """Show the settings and partitions of the topic NAME. Exits with 1 if it does not exist."""
    with invocation.connect() as broker:
        topic = known_topic(broker.topics([name]), name)
    columns = ("partition", "number", "start offset", "end offset", "messages", "bytes", "segments")
    rows = [
        (
            part.index,
            part.number,
            part.start_offset,
            part.high_watermark,
            part.high_watermark - part.start_offset,
            size_text(part.bytes),
            part.segments,
        )
        for part in topic.partitions
    ]
    settings = [
        (name, setting_text(name, getattr(topic.settings, name))) for name in TopicSettings.__struct_fields__
    ]
    emit(
        invocation.as_json,
        topic_json(topic),
        lambda: Stack(facts([("topic", topic.name), *settings]), "", table(columns, rows, "No partitions.")),
    )


@topics.command()
@click.argument("name")
@click.option("--yes", is_flag=True, help="Do not ask.")
@pass_invocation
def delete(invocation: Invocation, name: str, yes: bool) -> None:
    """Delete the topic NAME with all its messages."""
    with invocation.connect() as broker:
        topic = known_topic(broker.topics([name]), name)
        confirm(f"Delete topic {name} with {count_text(messages_of(topic), 'message')}?", yes)
        broker.delete_topic(name, topic.id)  # the one that was shown
    emit(invocation.as_json, {"deleted": name}, lambda: f"Deleted topic {name}.")


def known_topic(found: list[TopicInfo], name: str) -> TopicInfo:
    """Return the topic of that name from the broker's answer; exit 1 if it does not exist."""
    for topic in found:
        if topic.name == name:
            return topic
    raise Failure(f"there is no topic {name!r}; `txbroker topics list` shows those there are", Exit.NO)


def messages_of(topic: TopicInfo) -> int:
    """Return how many messages can be read."""
    return sum(part.high_watermark - part.start_offset for part in topic.partitions)


def bytes_of(topic: TopicInfo) -> int:
    """Return how many bytes its partitions take."""
    return sum(part.bytes for part in topic.partitions)


def setting_text(name: str, value: int | None) -> str:
    """Return a setting for people, with its unit, or what it means if it is not set."""
    if value is None:
        return "the broker's limit" if name == "max_message_bytes" else "keep everything"
    if name.endswith(("_age", "_interval")):
        return age_text(value)
    return size_text(value) if name.endswith("_bytes") else f"{value:,}"


def topic_json(topic: TopicInfo) -> dict[str, object]:
    """Return a topic in JSON: sizes in bytes, times in µs, ``end_offset`` exclusive."""
    return {
        "name": topic.name,
        "internal": is_internal(topic.name),
        "settings": {name: getattr(topic.settings, name) for name in TopicSettings.__struct_fields__},
        "partitions": [
            {
                "partition": part.index,
                "number": part.number,
                "start_offset": part.start_offset,
                "end_offset": part.high_watermark,
                "bytes": part.bytes,
                "segments": part.segments,
            }
            for part in topic.partitions
        ],
    }

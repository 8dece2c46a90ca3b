"""``txbroker topics``: create, alter, list, describe, purge and delete topics."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Any, NamedTuple

import click
from rich.console import Group as Stack

from journal.constants import MAX_PARTITIONS_PER_TOPIC
from journal.formats.envelope import PLACES_TOPIC, SCHEDULE_TOPIC
from journal.formats.filenames import is_internal
from journal.records.outcome_entry import OUTCOMES_TOPIC
from journal.settings import TopicSettings
from txbroker.cli.arguments import Parsed, setting
from txbroker.cli.clock import TIME
from txbroker.cli.exits import Exit, Failure
from txbroker.cli.invocation import Group, Invocation, confirm, pass_invocation
from txbroker.cli.output import FILTERED, age_text, count_text, emit, facts, size_text, table
from txbroker.cli.positions import nearest
from txbroker.errors import AccessDenied, TopicExists
from txbroker.wire.messages import GroupInfo, TopicInfo


@click.group(cls=Group)
def topics() -> None:
    """Create, alter, list, describe, purge and delete topics."""


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


@topics.command(short_help="Change settings of the topic NAME, or give it more partitions.")
@click.argument("name")
@click.option(
    "--partitions",
    type=click.IntRange(1, MAX_PARTITIONS_PER_TOPIC),
    metavar="N",
    help="Number of partitions from now on: more than before. Keys go to other partitions then.",
)
@click.option(
    "--set",
    "settings",
    multiple=True,
    metavar="NAME=VALUE",
    type=Parsed("setting", setting),
    help="A setting, such as retention_age=7d; none removes a limit. Repeatable.",
)
@pass_invocation
def alter(
    invocation: Invocation, name: str, partitions: int | None, settings: tuple[tuple[str, int | None], ...]
) -> None:
    """Change settings of the topic NAME from now on, or give it more partitions; its other settings stay.

    A topic never gets fewer partitions. With more of them the same key goes to another partition, so messages of one
    key that are sent before and after are in no order: docs/clients.md says how to keep it.
    """
    if partitions is None and not settings:
        raise click.UsageError("Give --partitions, or at least one --set.")
    changes: dict[str, Any] = dict(settings)
    with invocation.connect() as broker:
        before = known_topic(broker.topics([name]), name)
        topic = broker.alter_topic(name, partitions=partitions, topic_id=before.id, **changes)
    rows = [
        (each, *(setting_text(each, getattr(info.settings, each)) for info in (before, topic)))
        for each in changes
    ]
    if partitions is not None:
        rows.insert(0, ("partitions", *(f"{len(info.partitions):,}" for info in (before, topic))))
    emit(invocation.as_json, topic_json(topic), lambda: table(("setting", "before", "now"), rows, ""))


@topics.command("list", short_help="List all topics.")
@pass_invocation
def list_topics(invocation: Invocation) -> None:
    """List all topics. The topics that the broker keeps for itself are listed separately."""
    with invocation.connect() as broker:
        found = broker.topics()
        own: Sequence[TopicInfo] = ()
        with suppress(AccessDenied):
            own = broker.topics([OUTCOMES_TOPIC, SCHEDULE_TOPIC, PLACES_TOPIC])

    def shown() -> Stack:
        columns = ("topic", "partitions", "messages", "bytes")
        listed = table(columns, map(_row, found), "There are no topics.")
        kept = table(("kept by the broker itself", *columns[1:]), map(_row, own), "")
        filtered = [FILTERED] if found.is_filtered else []
        return Stack(listed, "", kept, *filtered) if own else Stack(listed, *filtered)

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
@click.option("--scheduled", is_flag=True, help="Also if messages are scheduled for it, which go with it.")
@click.option("--yes", is_flag=True, help="Do not ask.")
@pass_invocation
def delete(invocation: Invocation, name: str, scheduled: bool, yes: bool) -> None:
    """Delete the topic NAME with all its messages. Refused while messages are scheduled for it, without --scheduled."""
    with invocation.connect() as broker:
        topic = known_topic(broker.topics([name]), name)
        what = count_text(messages_of(topic), "message")
        if scheduled:
            what += f" and {len(broker.list_scheduled(name)):,} that are scheduled for it"
        confirm(f"Delete topic {name} with {what}?", yes)
        broker.delete_topic(name, topic.id, scheduled=scheduled)  # the one that was shown
    emit(invocation.as_json, {"deleted": name}, lambda: f"Deleted topic {name}.")


@topics.command(short_help="Drop the oldest messages of the topic NAME.")
@click.argument("name")
@click.option(
    "--before-offset", type=click.IntRange(0), metavar="N", help="Drop the messages below this offset."
)
@click.option(
    "--before-time", type=TIME, metavar="TIME", help="Drop the messages appended before that time, as -1h."
)
@click.option("--all", "everything", is_flag=True, help="Drop every message.")
@click.option(
    "--partition",
    "partitions",
    multiple=True,
    type=click.IntRange(0),
    help="Purge only this partition. Repeatable.",
)
@click.option("--execute", is_flag=True, help="Do it. Without this, only the plan is shown.")
@pass_invocation
def purge(
    invocation: Invocation,
    name: str,
    before_offset: int | None,
    before_time: int | None,
    everything: bool,
    partitions: tuple[int, ...],
    execute: bool,
) -> None:
    """Drop the oldest messages of the topic NAME for good. Without --execute, only the plan is shown.

    The plan says how many of the messages each group has not read yet.
    """
    if (before_offset is not None) + (before_time is not None) + everything != 1:
        raise click.UsageError("say exactly one of --before-offset, --before-time, --all")
    with invocation.connect() as broker:
        topic = known_topic(broker.topics([name]), name)
        since = {} if before_time is None else broker.offsets_for_time(name, before_time)
        plan = planned(topic, partitions, before_offset, since)
        unread = unread_below(broker.groups(), name, plan)
        if execute:
            starts = {each.partition: each.start for each in plan}
            broker.purge(name, starts, topic_id=topic.id)  # the one that was planned for
    said = f"Purged topic {name}." if execute else "This is only the plan; add --execute to do it."
    rows = [(each.partition, each.before, each.start, each.start - each.before) for each in plan]
    losses = [(group, count) for group, count in unread.items() if count]
    emit(
        invocation.as_json,
        {
            "topic": name,
            "executed": execute,
            "partitions": [each._asdict() for each in plan],
            "unread": [{"group": group, "messages": count} for group, count in losses],
        },
        lambda: Stack(
            table(("partition", "start offset", "new start", "messages dropped"), rows, "Nothing to drop."),
            *(["", table(("group", "dropped unread"), losses, "")] if losses else []),
            "",
            said,
        ),
    )


class Purged(NamedTuple):
    """What a purge does to a partition: its first offset before, and then."""

    partition: int
    before: int
    start: int


def planned(
    topic: TopicInfo, partitions: Collection[int], offset: int | None, since: Mapping[int, int]
) -> list[Purged]:
    """Return what changes; ``since`` has the first offsets to keep, else it is ``offset``, or the end of each log."""
    unknown = sorted({*partitions} - {part.index for part in topic.partitions})
    if unknown:
        raise Failure(
            f"topic {topic.name} has no partition {unknown[0]}; `txbroker topics describe {topic.name}` shows "
            "those there are. Nothing was changed",
            Exit.NO,
        )
    found = []
    for part in topic.partitions:
        if not partitions or part.index in partitions:
            wanted = part.high_watermark if offset is None else offset
            start, _ = nearest(part, since.get(part.index, wanted))
            if start > part.start_offset:
                found.append(Purged(part.index, part.start_offset, start))
    return found


def unread_below(groups: Iterable[GroupInfo], topic: str, plan: Iterable[Purged]) -> dict[str, int]:
    """Return how many of the messages to be dropped each group has not read."""
    starts = {each.partition: each for each in plan}
    return {
        group.name: sum(
            max(0, starts[index].start - max(position, starts[index].before))
            for name, index, position, _ in group.positions
            if name == topic and index in starts
        )
        for group in groups
    }


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

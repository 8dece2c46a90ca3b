"""``txbroker groups``: shows the members, positions and lags of consumer groups, and moves positions."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import click
from rich.console import Group as Stack

from txbroker.cli.arguments import Expiry, Parsed, expiry
from txbroker.cli.clock import TIME
from txbroker.cli.commands.topics import known_topic
from txbroker.cli.exits import Exit, Failure
from txbroker.cli.group_description import (
    description_json,
    kind_text,
    members_table,
    partitions_table,
    settings_json,
    settings_text,
)
from txbroker.cli.invocation import Group, Invocation, confirm, pass_invocation
from txbroker.cli.output import FILTERED, age_text, count_text, emit, table
from txbroker.cli.positions import nearest
from txbroker.cli.retry_options import policy_in, retry_options, said_in
from txbroker.client.core.group_settings import GroupChoices
from txbroker.client.core.results import GroupDescription, ParkedMessage
from txbroker.client.core.retry_policy import RetryPolicy
from txbroker.errors import UnknownGroup
from txbroker.wire.messages import GroupInfo, PartitionInfo, TopicInfo

if TYPE_CHECKING:
    from txbroker import Connection


@click.group(cls=Group)
def groups() -> None:
    """Show consumer groups with their members, and move them."""


@groups.command("list")
@pass_invocation
def list_groups(invocation: Invocation) -> None:
    """List all groups with their lag (messages they have not read)."""
    with invocation.connect() as broker:
        found = broker.groups()
    rows = [(group.name, ", ".join(topics_of(group)), len(group.positions), lag_of(group)) for group in found]
    emit(
        invocation.as_json,
        [group_json(group) for group in found],
        lambda: Stack(
            table(("group", "topics", "partitions", "lag"), rows, "There are no groups."),
            *([FILTERED] if found.is_filtered else []),
        ),
    )


@groups.command()
@click.argument("name")
@pass_invocation
def describe(invocation: Invocation, name: str) -> None:
    """Show the members and positions of the group NAME. Exits with 1 if it does not exist."""
    with invocation.connect() as broker:
        try:
            described = broker.describe_group(name)
        except UnknownGroup:
            raise no_group(name) from None
        offsets = broker.group_offsets(name)
        positions = GroupInfo(name, positions_in(described), described.id)
        unread = never_read(positions, broker.topics(topics_of(positions)))
    more = sum(count for _, _, count in unread)
    held = {(p.topic, p.partition): p.pending_by for p in offsets if p.pending_by}
    metadata = {(p.topic, p.partition): p.metadata for p in offsets if p.metadata}
    emit(
        invocation.as_json,
        group_json(positions)
        | description_json(described)
        | {"held": held_json(held), "is_filtered": described.is_filtered}
        | {"metadata": [{"topic": t, "partition": p, "text": text} for (t, p), text in metadata.items()]}
        | {"without_position": [{"topic": t, "partition": p, "messages": count} for t, p, count in unread]},
        lambda: Stack(
            f"Group {name}, {count_text(lag_of(positions), 'message')} behind. {kind_text(described)}",
            settings_text(described),
            *(["", members_table(described), ""] if described.kind == "members" else []),
            partitions_table(described, held, metadata),
            *(
                [
                    "",
                    f"The lag leaves out {count_text(more, 'message')} in partitions of these topics where the "
                    "group has no position yet:",
                    table(("topic", "partition", "messages"), unread, ""),
                ]
                if unread
                else []
            ),
            *(["", FILTERED] if described.is_filtered else []),
        ),
    )


def positions_in(group: GroupDescription) -> list[tuple[str, int, int, int]]:
    """Return topic, index, offset and lag of the partitions in which a group has a position."""
    return [
        (part.topic, part.partition, part.position, part.lag)
        for part in group.partitions
        if part.position is not None and part.lag is not None
    ]


def never_read(group: GroupInfo, topics: Iterable[TopicInfo]) -> list[tuple[str, int, int]]:
    """Return topic, index and messages of partitions that a group of these topics has no position in."""
    known = {position[:2] for position in group.positions}
    return [
        (topic.name, part.index, part.high_watermark - part.start_offset)
        for topic in topics
        for part in topic.partitions
        if (topic.name, part.index) not in known and part.high_watermark > part.start_offset
    ]


@dataclass(frozen=True)
class Move:
    """A planned change of a group's position. ``before`` None: it has none yet."""

    topic: str
    partition: int
    before: int | None
    after: int
    note: str = ""

    def as_json(self) -> dict[str, object]:
        """Return the move in JSON."""
        return {
            "topic": self.topic,
            "partition": self.partition,
            "before": self.before,
            "after": self.after,
            "note": self.note,
        }


@groups.command()
@click.argument("name")
@click.option(
    "--topic", "topics", multiple=True, help="Move only positions in this topic (default: all). Repeatable."
)
@click.option(
    "--partition",
    "partitions",
    multiple=True,
    type=click.IntRange(0),
    help="Move only this partition. Repeatable.",
)
@click.option("--to-offset", type=click.IntRange(0), metavar="N", help="Move to this offset.")
@click.option(
    "--to-time",
    type=TIME,
    metavar="TIME",
    help="Move to the first message appended at that time or later, as -1h.",
)
@click.option("--to-earliest", is_flag=True, help="Move to the oldest message.")
@click.option("--to-latest", is_flag=True, help="Move behind the newest message.")
@click.option(
    "--stop",
    is_flag=True,
    help="Take the partitions from all consumers of the group; its members join again.",
)
@click.option("--execute", is_flag=True, help="Do it. Without this, only the plan is shown.")
@pass_invocation
def reset(
    invocation: Invocation,
    name: str,
    topics: tuple[str, ...],
    partitions: tuple[int, ...],
    to_offset: int | None,
    to_time: int | None,
    to_earliest: bool,
    to_latest: bool,
    stop: bool,
    execute: bool,
) -> None:
    """Move the positions of the group NAME. Without --execute, only the plan is shown.

    Stop the group's consumers first. While the group has members it is not moved. A running consumer that names its
    partitions goes on from where it is, and commits over the new position.

    Or say --stop: then what consumers have under way cannot be committed any more. Members join again by themselves,
    and go on at the new positions. A consumer that names its partitions ends with GenerationFenced.
    """
    target = Target.chosen(to_offset, to_time, to_earliest, to_latest)
    with invocation.connect() as broker:
        moves = plan(broker, name, topics, partitions, target)
        members = count_members(broker, name)
        if execute:
            carry_out(broker, name, moves, stop)
    rows = [(move.topic, move.partition, move.before, move.after, move.note) for move in moves]
    said = f"Moved group {name}." if execute else plan_text(members, stop)
    emit(
        invocation.as_json,
        {"group": name, "executed": execute, "members": members, "moves": [move.as_json() for move in moves]},
        lambda: Stack(
            table(("topic", "partition", "from", "to", "note"), rows, "Nothing to move."), "", said
        ),
    )


@groups.command(short_help="Change the settings of the group NAME.")
@click.argument("name")
@retry_options
@click.option(
    "--expiry",
    "expires",
    type=Parsed("duration|never|usual", expiry),
    help="Delete the group once nobody has used it for so long; usual: as the broker's group_expiry says.",
)
@click.option(
    "--tag",
    "tags",
    multiple=True,
    help="Read only messages that have this tag, or another one said. Repeatable.",
)
@click.option("--no-tags", is_flag=True, help="Read messages whatever their tags.")
@pass_invocation
def alter(
    invocation: Invocation,
    /,
    name: str,
    expires: Expiry | None,
    tags: tuple[str, ...],
    no_tags: bool,
    **choices: Any,
) -> None:
    """Change the settings of the group NAME: how it tries messages again, when it expires, and what it reads.

    What is not said stays as it is.

    It holds from the next failure on. The group is made if it is not there.
    """
    retries = bool(said_in(choices) or choices["no_retry"])
    if tags and no_tags:
        raise click.UsageError("say --tag or --no-tags")
    if not (retries or tags or no_tags) and expires is None:
        raise click.UsageError(
            "say what is to change: --attempts, --pause, --longest, --ending, --dead-letter-topic, --no-retry, "
            "--expiry, --tag, or --no-tags"
        )
    changes: GroupChoices = {}
    if tags or no_tags:
        changes["tags"] = tags
    if expires is not None:
        changes["expiry"] = expires.seconds
    with invocation.connect() as broker:
        if retries:
            changes["retry"] = policy_in(choices, _policy(broker, name))
        broker.alter_group(name, **changes)
        altered = broker.describe_group(name)
    said = {"group": name} | settings_json(altered)
    emit(invocation.as_json, said, lambda: f"Group {name}: {settings_text(altered)}")


def _policy(broker: Connection, name: str) -> RetryPolicy | None:
    try:
        return broker.describe_group(name).retry
    except UnknownGroup:
        return None


@groups.command()
@click.argument("name")
@click.option(
    "--stop", is_flag=True, help="Also if it has members; they join again, which makes a new group."
)
@click.option("--yes", is_flag=True, help="Do not ask.")
@pass_invocation
def delete(invocation: Invocation, name: str, stop: bool, yes: bool) -> None:
    """Delete the group NAME with its positions; the messages stay.

    While the group has members it is not deleted, unless --stop ends their memberships.
    """
    with invocation.connect() as broker:
        group = known_group(broker.groups(), name)
        members = count_members(broker, name) if stop else 0
        whose = f" and {count_text(members, 'member')}" if members else ""
        confirm(f"Delete group {name} with {count_text(len(group.positions), 'position')}{whose}?", yes)
        broker.delete_group(name, group.id, stop=stop)  # the one that was shown
    emit(invocation.as_json, {"deleted": name}, lambda: f"Deleted group {name}.")


@groups.command(short_help="List what a group is to try again.")
@click.argument("name")
@pass_invocation
def parked(invocation: Invocation, name: str) -> None:
    """List the messages that the group NAME is to try again: how often it failed, when they are due, and why."""
    with invocation.connect() as broker:
        known_group(broker.groups(), name)
        found = broker.parked(name)
    columns = ("topic", "partition", "offset", "attempts", "due", "why")
    rows = [(p.topic, p.partition, p.offset, p.attempts, due_text(p), p.why) for p in found]
    emit(
        invocation.as_json,
        [each._asdict() for each in found],
        lambda: table(columns, rows, "Nothing is to be tried again."),
    )


def due_text(message: ParkedMessage) -> str:
    """Return when a message is due, or what it waits for."""
    if message.dead or message.stopped:
        return "dead" if message.dead else "stopped"
    return "now" if message.due <= 0 else f"in {age_text(int(message.due * 1e6))}"


@groups.command(short_help="Have messages tried again now.")
@click.argument("name")
@click.argument("topic")
@click.argument("partition", type=click.IntRange(0))
@click.argument("offsets", metavar="[OFFSET]...", nargs=-1, type=click.IntRange(0))
@pass_invocation
def retry(invocation: Invocation, name: str, topic: str, partition: int, offsets: tuple[int, ...]) -> None:
    """Have messages tried again now that the group NAME is to try again later: these, or all of the partition.

    Their attempts stay counted. Others stay as they are.
    """
    with invocation.connect() as broker:
        known_group(broker.groups(), name)
        waiting = [p.offset for p in broker.parked(name) if (p.topic, p.partition) == (topic, partition)]
        wanted = [offset for offset in waiting if not offsets or offset in offsets]
        broker.retry_parked(name, topic, partition, wanted)
    said = {"group": name, "topic": topic, "partition": partition, "offsets": wanted}
    emit(invocation.as_json, said, lambda: f"{count_text(len(wanted), 'message')} to be tried again now.")


@groups.command(short_help="Finish messages without handling them.")
@click.argument("name")
@click.argument("topic")
@click.argument("partition", type=click.IntRange(0))
@click.argument("offsets", metavar="OFFSET...", nargs=-1, required=True, type=click.IntRange(0))
@click.option("--yes", is_flag=True, help="Do not ask.")
@pass_invocation
def skip(
    invocation: Invocation, name: str, topic: str, partition: int, offsets: tuple[int, ...], yes: bool
) -> None:
    """Finish messages for the group NAME without handling them, whoever reads for it. They stay in the topic."""
    with invocation.connect() as broker:
        known_group(broker.groups(), name)
        confirm(f"Skip {count_text(len(offsets), 'message')} of {topic}-{partition} for group {name}?", yes)
        broker.skip(name, topic, partition, offsets)
    said = {"group": name, "topic": topic, "partition": partition, "offsets": list(offsets)}
    emit(invocation.as_json, said, lambda: f"Skipped {count_text(len(offsets), 'message')}.")


@dataclass(frozen=True)
class Target:
    """The target of a group's move: exactly one of the four."""

    offset: int | None = None
    time: int | None = None
    earliest: bool = False

    @classmethod
    def chosen(cls, offset: int | None, time: int | None, earliest: bool, latest: bool) -> Target:
        """Return the target of the options; none or more than one of them is a usage error."""
        if (offset is not None) + (time is not None) + earliest + latest != 1:
            raise click.UsageError("say exactly one of --to-offset, --to-time, --to-earliest, --to-latest")
        return cls(offset, time, earliest)

    def in_partition(self, part: PartitionInfo, at_time: int) -> tuple[int, str]:
        """Return the offset in this partition, kept within its range, and a note if that changed it."""
        if self.earliest:
            return part.start_offset, ""
        if self.time is not None:
            wanted = at_time
        else:
            wanted = part.high_watermark if self.offset is None else self.offset
        return nearest(part, wanted)


def plan(
    broker: Connection, group: str, topics: tuple[str, ...], partitions: tuple[int, ...], target: Target
) -> list[Move]:
    """Where each partition would go. Without ``topics``, those that the group has positions in."""
    before = positions_of(broker, group)
    names = list(topics) or sorted({topic for topic, _ in before})
    if not names:
        raise Failure(f"group {group!r} has no positions; say which with --topic", Exit.NO)
    moves = []
    for name in names:
        topic = known_topic(broker.topics([name]), name)
        times = {} if target.time is None else dict(broker.offsets_for_time(name, target.time))
        known = {part.index: part for part in topic.partitions}
        for index in sorted(partitions or known):
            if index not in known:
                count = count_text(len(known), "partition")
                raise Failure(f"topic {name} has no partition {index}; it has {count}, from 0 on", Exit.NO)
            part = known[index]
            after, note = target.in_partition(part, times.get(index, part.high_watermark))
            moves.append(Move(name, index, before.get((name, index)), after, note))
    return moves


def count_members(broker: Connection, group: str) -> int:
    """Return how many members a group has now."""
    try:
        return len(broker.describe_group(group).members)
    except UnknownGroup:
        return 0


def plan_text(members: int, stop: bool) -> str:
    """Return what is to be done so that a plan is carried out."""
    if not members:
        return "This is only the plan; add --execute to do it."
    there = f"This is only the plan. The group has {count_text(members, 'member')}"
    if stop:
        return (
            f"{there}; with --execute the memberships end, and who joins again goes on at the new positions."
        )
    return f"{there}: stop them, then add --execute. Or add --stop --execute, which ends their memberships."


def positions_of(broker: Connection, group: str) -> dict[tuple[str, int], int]:
    """Return a group's offsets by topic and partition; empty if it is not known."""
    found = [each for each in broker.groups() if each.name == group]
    return {(topic, index): offset for each in found for topic, index, offset, _ in each.positions}


def carry_out(broker: Connection, group: str, moves: list[Move], stop: bool) -> None:
    """Move the group, topic by topic; each topic's partitions move in one step."""
    for topic in dict.fromkeys(move.topic for move in moves):
        places = {move.partition: move.after for move in moves if move.topic == topic}
        broker.set_offsets(group, topic, places, stop=stop)


def held_json(held: Mapping[tuple[str, int], str]) -> list[dict[str, object]]:
    """Return the positions that an undecided transaction will move; consumers wait there for it."""
    return [
        {"topic": topic, "partition": index, "transaction": transaction}
        for (topic, index), transaction in held.items()
    ]


def known_group(found: list[GroupInfo], name: str) -> GroupInfo:
    """Return the group of that name; exit 1 if it does not exist."""
    for group in found:
        if group.name == name:
            return group
    raise no_group(name)


def no_group(name: str) -> Failure:
    """Return the failure of a command about a group that does not exist."""
    return Failure(f"there is no group {name!r}; `txbroker groups list` shows those there are", Exit.NO)


def topics_of(group: GroupInfo) -> list[str]:
    """Return the topics that it has positions in, sorted."""
    return sorted({topic for topic, _, _, _ in group.positions})


def lag_of(group: GroupInfo) -> int:
    """Return how many messages it has not read, over all its partitions."""
    return sum(lag for _, _, _, lag in group.positions)


def group_json(group: GroupInfo) -> dict[str, object]:
    """Return a group in JSON."""
    return {
        "name": group.name,
        "lag": lag_of(group),
        "positions": [
            {"topic": topic, "partition": index, "offset": offset, "lag": lag}
            for topic, index, offset, lag in group.positions
        ],
    }

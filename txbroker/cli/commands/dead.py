"""``txbroker dead``: shows dead letters, sends their messages again, and drops them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple

import click

from txbroker.cli.commands.tail import chosen_partitions, message_json, read_on
from txbroker.cli.commands.topics import known_topic
from txbroker.cli.exits import Exit, Failure
from txbroker.cli.invocation import Group, Invocation, confirm, pass_invocation
from txbroker.cli.output import bytes_text, count_text, emit, table, time_text, visible
from txbroker.cli.positions import nearest
from txbroker.wire import dead_letters as names

if TYPE_CHECKING:
    from txbroker import Connection, Message

MOST = 100
"""Letters that are shown without ``--limit``."""


class Origin(NamedTuple):
    """Where a dead letter comes from, as its headers say."""

    group: str
    topic: str
    partition: int
    offset: int


@click.group(cls=Group)
def dead() -> None:
    """Show dead letters, send their messages again, drop them."""


@dead.command("list", short_help="List the dead letters of a topic.")
@click.argument("topic")
@click.option("--group", help="Only those that this group gave up.")
@click.option("--limit", type=click.IntRange(1), default=MOST, help=f"Stop after so many ({MOST}).")
@pass_invocation
def list_letters(invocation: Invocation, topic: str, group: str | None, limit: int) -> None:
    """List the dead letters of TOPIC, oldest first. Each has its place in the topic of dead letters.

    TOPIC may also be a topic of dead letters itself, of which a group has said that its own go there.
    """
    found: list[Message] = []
    with invocation.connect() as broker:
        known_topic(broker.topics([topic]), topic)
        for message in _letters(broker, topic):
            if len(found) == limit:
                break
            if group is None or _text(message, names.DEAD_GROUP) == group:
                found.append(message)
    columns = ("partition", "offset", "group", "from", "attempts", "first failure", "why")
    rows = [
        (
            each.partition, each.offset, _text(each, names.DEAD_GROUP), _place(each),
            _text(each, names.DEAD_ATTEMPTS), _failed(each), _text(each, names.DEAD_WHY),
        )
        for each in found
    ]  # fmt: skip
    emit(
        invocation.as_json,
        [message_json(each) for each in found],
        lambda: table(columns, rows, "There are no dead letters."),
    )


@dead.command(short_help="Show a dead letter whole.")
@click.argument("topic")
@click.argument("partition", type=click.IntRange(0))
@click.argument("offset", type=click.IntRange(0))
@pass_invocation
def show(invocation: Invocation, topic: str, partition: int, offset: int) -> None:
    """Show a dead letter of TOPIC whole: PARTITION and OFFSET are its place in the topic of dead letters."""
    with invocation.connect() as broker:
        [message] = _chosen(broker, topic, partition, (offset,))
    rows = [
        ("key", bytes_text(message.key)),
        ("value", bytes_text(message.value)),
        *((visible(name), bytes_text(value)) for name, value in message.headers),
    ]
    emit(invocation.as_json, message_json(message), lambda: table(("", ""), rows, ""))


@dead.command(short_help="Send the messages of dead letters again.")
@click.argument("topic")
@click.argument("partition", type=click.IntRange(0))
@click.argument("offsets", metavar="OFFSET...", nargs=-1, required=True, type=click.IntRange(0))
@click.option("--to", metavar="TOPIC", help="Send copies to this topic, for all groups that read it.")
@click.option("--yes", is_flag=True, help="Do not ask.")
@pass_invocation
def resend(
    invocation: Invocation, topic: str, partition: int, offsets: tuple[int, ...], to: str | None, yes: bool
) -> None:
    """Send the messages of dead letters of TOPIC again, for the group that gave them up alone.

    They become unfinished for that group, and come when a consumer of it begins with the partition. With --to a copy of
    each is sent to another topic, or the same, where all groups see it. The letters stay.
    """
    with invocation.connect() as broker:
        letters = _chosen(broker, topic, partition, offsets)
        if to is not None:
            known_topic(broker.topics([to]), to)
            confirm(
                f"Send a copy of {count_text(len(letters), 'message')} to {to}? All groups will see it.", yes
            )
            _copy(broker, to, letters)
        else:
            for each in [_origin(letter) for letter in letters]:
                broker.resend(each.group, each.topic, each.partition, [each.offset])
    said = {"topic": topic, "partition": partition, "offsets": list(offsets), "to": to}
    whom = "for the groups that gave them up" if to is None else f"to {to}, for all groups"
    emit(invocation.as_json, said, lambda: f"Sent {count_text(len(letters), 'message')} again, {whom}.")


@dead.command(short_help="Drop the oldest dead letters of a partition.")
@click.argument("topic")
@click.argument("partition", type=click.IntRange(0))
@click.argument("offset", type=click.IntRange(0))
@click.option("--yes", is_flag=True, help="Do not ask.")
@pass_invocation
def drop(invocation: Invocation, topic: str, partition: int, offset: int, yes: bool) -> None:
    """Drop the dead letters of TOPIC in a PARTITION up to OFFSET, that one included, for good."""
    with invocation.connect() as broker:
        name = _name(topic)
        info = known_topic(broker.topics([name]), name)
        chosen_partitions(info, (partition,))
        part = info.partitions[partition]
        before = nearest(part, offset + 1)[0]
        count = max(before - part.start_offset, 0)
        confirm(f"Drop {count_text(count, 'dead letter')} of {topic}-{partition} for good?", yes)
        if count:
            broker.purge(name, {partition: before}, topic_id=info.id)  # the one that was shown
    said = {"topic": topic, "partition": partition, "dropped": count}
    emit(invocation.as_json, said, lambda: f"Dropped {count_text(count, 'dead letter')}.")


def _name(topic: str) -> str:
    """Return the name of the topic of dead letters that is meant."""
    return topic if names.is_dead_topic(topic) else names.dead_topic_of(topic)


def _place(letter: Message) -> str:
    """Return where a letter comes from, for people."""
    topic, partition, offset = (
        _text(letter, each) for each in (names.DEAD_TOPIC, names.DEAD_PARTITION, names.DEAD_OFFSET)
    )
    return f"{topic}[{partition}] {offset}"


def _letters(broker: Connection, topic: str) -> Iterator[Message]:
    name = _name(topic)
    found = broker.topics([name])
    if found:
        starts = {part.index: part.start_offset for part in found[0].partitions}
        yield from read_on(broker, name, starts, follow=False)


def _chosen(broker: Connection, topic: str, partition: int, offsets: tuple[int, ...]) -> list[Message]:
    """Return the letters at these offsets; exit 1 if one of them is not there."""
    name = _name(topic)
    info = known_topic(broker.topics([name]), name)
    chosen_partitions(info, (partition,))
    part = info.partitions[partition]
    found: list[Message] = []
    for offset in dict.fromkeys(offsets):
        if not part.start_offset <= offset < part.high_watermark:
            raise Failure(
                f"{name}[{partition}] has no message at offset {offset}; nothing was changed", Exit.NO
            )
        found.append(next(read_on(broker, name, {partition: offset}, follow=False)))
    return found


def _origin(letter: Message) -> Origin:
    """Return where a letter comes from; exit 1 if its headers do not say so."""
    try:
        return Origin(
            _said(letter, names.DEAD_GROUP),
            _said(letter, names.DEAD_TOPIC),
            int(_said(letter, names.DEAD_PARTITION)),
            int(_said(letter, names.DEAD_OFFSET)),
        )
    except ValueError:
        raise Failure(
            f"the message at {letter.topic}[{letter.partition}] offset {letter.offset} does not say which group gave "
            "it up, and where it was; nothing of it was changed. --to sends a copy",
            Exit.NO,
        ) from None


def _copy(broker: Connection, to: str, letters: list[Message]) -> None:
    """Send the messages of letters, without the headers of letters, all or none."""
    with broker.transaction() as tx:
        for each in letters:
            own = [(name, value) for name, value in each.headers if not name.startswith(names.DEAD_PREFIX)]
            tx.send(to, each.value, key=each.key, headers=own)


def _said(letter: Message, name: str) -> str:
    value = letter.header(name)
    if value is None:
        raise ValueError(name)
    return value.decode()


def _text(letter: Message, name: str) -> str:
    value = letter.header(name)
    return "–" if value is None else bytes_text(value)


def _failed(letter: Message) -> str:
    value = letter.header(names.DEAD_FAILED)
    return time_text(int(value)) if value is not None and value.isdigit() else "–"

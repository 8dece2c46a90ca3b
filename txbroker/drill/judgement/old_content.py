"""The content of a data directory is noted before a drill and compared afterwards: it must be there, unchanged."""

from __future__ import annotations

from array import array
from collections.abc import Iterator
from dataclasses import dataclass, field

from crc32c import crc32c

import txbroker
from journal.words import span
from txbroker.client.core.results import Message
from txbroker.drill.judgement.held import messages_of, partitions_of
from txbroker.drill.judgement.violation import Violation, Wrong


@dataclass
class OldContent:
    """All content before the drill: messages by their checksums, positions of groups, and transactions in doubt."""

    partitions: dict[tuple[str, int], tuple[int, array[int]]] = field(default_factory=dict)
    """By topic and index: the first offset, and from there on each message's checksum over all of it."""
    retained: set[str] = field(default_factory=set)
    """The topics whose settings remove their oldest messages."""
    positions: dict[tuple[str, str, int], int] = field(default_factory=dict)
    """The positions by group, topic and index."""
    in_doubt: set[str] = field(default_factory=set)

    @property
    def messages(self) -> int:
        """Return how many messages there are."""
        return sum(len(checksums) for _, checksums in self.partitions.values())


def note_content(connection: txbroker.Connection) -> OldContent:
    """Read all that a broker holds."""
    found = OldContent()
    for (topic, index), part in partitions_of(connection).items():
        checksums = array("I")
        for message in messages_of(connection, topic, index, part.start_offset, part.high_watermark):
            checksums.append(_checksum(message))
        found.partitions[topic, index] = part.start_offset, checksums
    for described in connection.topics():
        settings = described.settings
        if settings.retention_age is not None or settings.retention_bytes is not None:
            found.retained.add(described.name)
    for group in connection.groups():
        for topic, index, offset, _ in group.positions:
            found.positions[group.name, topic, index] = offset
    found.in_doubt = set(map(str, connection.tpc_recover()))
    return found


def _checksum(message: Message) -> int:
    """Over everything that a reader gets: time, key, value, headers."""
    kind = repr((message.timestamp, message.key, message.value is None, message.headers))
    return crc32c(message.value or b"", crc32c(kind.encode()))


def compare_content(old: OldContent, connection: txbroker.Connection) -> Iterator[Violation]:
    """Yield a violation for all old content that is gone or has changed."""
    now = partitions_of(connection)
    for (topic, index), (start, checksums) in old.partitions.items():
        part = now.get((topic, index))
        if part is None:
            yield _gone(f"{len(checksums)} messages: the partition is not there", topic, index, start)
            continue
        if part.start_offset > start and topic not in old.retained:
            text = f"the partition began at {start} and begins at {part.start_offset}, and nothing is to be dropped"
            yield _gone(text, topic, index, start)
        yield from _compare_partition(
            connection, topic, index, max(start, part.start_offset), start, checksums
        )
    positions = {
        (group.name, topic, index): offset
        for group in connection.groups()
        for topic, index, offset, _ in group.positions
    }
    for key, offset in old.positions.items():
        if positions.get(key) != offset:
            group, topic, index = key
            yield _gone(
                f"group {group} stood at {offset} and stands at {positions.get(key)}", topic, index, offset
            )
    for xid in sorted(old.in_doubt - set(map(str, connection.tpc_recover()))):
        text = "it was in doubt before the drill, is not any more, and the drill has not ended it"
        yield Violation(wrong=Wrong.OLD_CONTENT, text=text, transaction=xid)


def _compare_partition(
    connection: txbroker.Connection, topic: str, index: int, first: int, start: int, checksums: array[int]
) -> Iterator[Violation]:
    expected = first
    for message in messages_of(connection, topic, index, first, start + len(checksums)):
        if message.offset != expected:
            yield _gone(f"offset {message.offset} comes where {expected} is due", topic, index, expected)
        elif _checksum(message) != checksums[message.offset - start]:
            yield _gone("the message is not what it was before the drill", topic, index, message.offset)
        expected = message.offset + 1
    if expected < start + len(checksums):
        text = f"not there any more: {span('offset', expected, start + len(checksums) - 1)}"
        yield _gone(text, topic, index, expected)


def _gone(text: str, topic: str, index: int, offset: int) -> Violation:
    return Violation(wrong=Wrong.OLD_CONTENT, text=text, topic=topic, partition=index, offset=offset)

"""What a broker holds at the end of a drill is read through the broker, and once more from its files."""

from __future__ import annotations

import time
from array import array
from collections.abc import Iterator, Sequence

import txbroker
from journal import check
from journal.formats.frame import decode_run
from journal.interfaces import IFilesystem
from txbroker.client.core.results import Message
from txbroker.client.queues.queue_reader import MOST_PREFETCHED
from txbroker.drill.clients.reader import checksum_of
from txbroker.drill.judgement.violation import Violation, Wrong
from txbroker.wire.messages import PartitionInfo

STEP_BYTES = 1 << 20

QUEUE_WAIT = 0.1
"""Seconds to wait for the next message of a queue."""


def messages_of(
    connection: txbroker.Connection, topic: str, partition: int, start: int, end: int
) -> Iterator[Message]:
    """All messages of a partition from ``start`` up to ``end``, read as any client reads them."""
    position = start
    while position < end:
        messages = connection.read(topic, partition, position, STEP_BYTES)
        if not messages:
            return
        for message in messages:
            if message.offset < end:
                yield message
        position = messages[-1].offset + 1


def queued_messages(
    connection: txbroker.Connection, queues: Sequence[str], within: float
) -> Iterator[tuple[str, Message]]:
    """Yield all messages of queues, taken as any client takes them and not acknowledged; what comes within so many
    seconds. Those that are due later, and what is still to become a dead letter, is waited for.
    """
    deadline = time.monotonic() + within
    readers = {name: connection.queue(name, prefetch=MOST_PREFETCHED) for name in queues}
    taken = dict.fromkeys(queues, 0)
    while time.monotonic() < deadline:
        for name, reader in readers.items():
            while (message := reader.get(QUEUE_WAIT)) is not None:
                taken[name] += 1
                yield name, message
        if all(each.messages == taken[each.name] for name in queues for each in connection.queues(name)):
            return


def partitions_of(connection: txbroker.Connection) -> dict[tuple[str, int], PartitionInfo]:
    """Return every partition by topic and index, as of one moment."""
    return {(topic.name, part.index): part for topic in connection.topics() for part in topic.partitions}


def check_files(filesystem: IFilesystem, expected: dict[tuple[str, int], array[int]]) -> Iterator[Violation]:
    """Compare the segments of a stopped broker with what it served: checksums of values by topic and index.

    Everything that is damaged anywhere in the directory is told, too.
    """
    for finding in check.verify(filesystem):
        if not finding.harmless:
            text = f"{finding.path} at {finding.position}: {finding.problem}"
            yield Violation(wrong=Wrong.FILES, text=text)
    directories = {(name.topic, name.index): path for name, path in check.partitions(filesystem)}
    for (topic, partition), checksums in expected.items():
        stored = array("I")
        if (topic, partition) in directories:
            stored = _stored(filesystem, directories[topic, partition])
        if stored != checksums:
            differs = next(
                (
                    offset
                    for offset, pair in enumerate(zip(stored, checksums, strict=False))
                    if pair[0] != pair[1]
                ),
                min(len(stored), len(checksums)),
            )
            text = f"the files hold {len(stored)} messages, the broker served {len(checksums)}; they differ first here"
            yield Violation(wrong=Wrong.FILES, text=text, topic=topic, partition=partition, offset=differs)


def _stored(filesystem: IFilesystem, directory: str) -> array[int]:
    found = array("I")
    for base, path in check.segments(filesystem, directory):
        for entry in check.walk_segment(filesystem, path, base):
            if isinstance(entry, check.FrameEntry):
                found.extend(checksum_of(message.value) for message in decode_run(bytes(entry.frame)))
    return found

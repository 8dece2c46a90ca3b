"""Search for messages by key, id or tag: one partition after the other, a part of its log for each request."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from typing import Any, NamedTuple

from journal.arguments import NOTHING_READ, whole
from journal.constants import MAX_REQUEST_ENTRIES
from journal.message_headers import wanted_of
from txbroker.client.core.core import Core
from txbroker.client.core.results import Message, decoded
from txbroker.wire.messages import FetchedPartition, FindMessages, MessagesFound, PartitionInfo

Fetch = Callable[[int, int, int, float], Awaitable[tuple[FetchedPartition, memoryview]]]
"""Fetches from the partition of that number: (number, offset, most bytes, seconds to wait)."""


class Question(NamedTuple):
    """What is looked for, from the offset ``start`` on, and how many messages at most."""

    key: bytes | None
    id: bytes | None
    tag: bytes | None
    start: int
    limit: int


def checked_question(key: Any, id: Any, tag: Any, start: Any, limit: Any) -> Question:
    """Return what callers gave; raises WrongType, WrongValue, and Misuse without key, id and tag."""
    return Question(
        *wanted_of(key, id, tag),
        whole("start", start, NOTHING_READ, least=0),
        whole("limit", limit, NOTHING_READ, least=1),
    )


async def messages_found(
    core: Core, topic: str, parts: Iterable[PartitionInfo], question: Question, fetch: Fetch
) -> list[Message]:
    """Return the messages that answer a question, of these partitions as they were described."""
    found: list[Message] = []
    for part in parts:
        offset = max(question.start, part.start_offset)
        while offset < part.high_watermark and len(found) < question.limit:
            most = min(question.limit - len(found), MAX_REQUEST_ENTRIES)
            wanted = question.key, question.id, part.high_watermark, most, question.tag
            request = FindMessages(core.correlation(), part.number, offset, *wanted)
            answer = await core.request(request, MessagesFound)
            for place in answer.offsets:
                data = (await fetch(part.number, place, 1, 0.0))[1]
                found += [
                    each for each in decoded(topic, part.index, data, place, 1)[0] if each.offset == place
                ]
            offset = answer.next_offset
    return found

"""Adds many messages to a transaction in one call, for programs that have them in columns, such as Spark's tasks."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence, Set
from datetime import datetime
from itertools import repeat
from typing import Any, Final, TypeVar

from journal.arguments import LEAST_TIME, MOST_TIME, micros, wrong_type
from journal.due_time import After, At
from journal.message_headers import GivenHeaders, GivenId, GivenIds, GivenTags, marked
from txbroker import errors
from txbroker.client.producer.batch import Frames
from txbroker.client.producer.schedule_queue import scheduled
from txbroker.client.transactions.transaction import Transaction

T = TypeVar("T")

EAGER: Final = 256 << 10
"""With this many unsent bytes they are sent, because the call waits for no answer that would have them sent."""


_HALF_ADDED: Final = "the messages before it in the columns have been added, this one and those behind it not"
_NO_COLUMN: Final = (str, bytes, bytearray, memoryview, Mapping, Set)


async def send_many(
    transaction: Transaction,
    topic: str,
    values: Sequence[bytes | None],
    keys: Sequence[bytes | None] | None = None,
    headers: Sequence[GivenHeaders | None] | None = None,
    partitions: Sequence[int | None] | None = None,
    timestamps: Sequence[int | datetime | None] | None = None,
    ids: GivenIds = None,
    tags: Sequence[GivenTags] | None = None,
    *,
    by_key: bool = True,
    after: After | None = None,
    at: At | None = None,
) -> None:
    """Add messages in their order. Each column is as long as ``values``, or None.

    Where ``partitions`` has None the key chooses the partition; without ``by_key``, whole batches go to one partition
    after the other. With ``ids`` True each message gets a new id. ``tags`` has the tags of each: a str, a
    list of some, or None. With ``after`` or ``at`` all are scheduled, for the same time. Raises as
    :meth:`txbroker.client.blocking.Transaction.send` does; the messages before the refused one have been added then.
    """
    own_ids = None if ids is True else ids
    _check_columns(
        values, keys=keys, headers=headers, partitions=partitions, timestamps=timestamps, ids=own_ids, tags=tags
    )  # fmt: skip
    core, now = transaction.core, transaction.core.wall()
    due = await core.schedule_time.due(after, at, "nothing was added")
    logs = None if due is None else await transaction.producer.logs()
    route = await transaction.ready(topic)
    choose, append = route.choose, transaction.contents.append
    given: Iterable[GivenHeaders | None] = _column(headers)
    each_id: Iterable[GivenId] = repeat(True) if ids is True else _column(own_ids)
    columns = _column(keys), given, _column(partitions), _column(timestamps), each_id, _column(tags)
    for value, key, header, partition, timestamp, id, tag in zip(values, *columns, strict=False):
        if timestamp is None:
            moment = now
        elif type(timestamp) is int and LEAST_TIME <= timestamp <= MOST_TIME:
            moment = timestamp
        else:
            moment = micros("timestamp", timestamp, _HALF_ADDED)
        if id is not None or tag is not None:
            header, _ = marked(header, id, tag, _HALF_ADDED)
        queue, message = choose(key if by_key else None, partition), (value, moment, key, header)
        if due is not None and logs is not None:
            queue, message = scheduled(logs, queue, due, message)
        append(queue, *message)
        if core.output_bytes > EAGER:
            await core.drained()
            await transaction.ready(topic)


async def send_frames(
    transaction: Transaction, topic: str, split: Callable[[int], Iterable[tuple[int, Frames]]]
) -> None:
    """Add messages that are frames already: ``split`` gets the number of partitions and returns frames by partition.

    Raises as :meth:`txbroker.client.blocking.Transaction.send` does; the messages before the refused one have been
    added then.
    """
    core = transaction.core
    route = await transaction.ready(topic)
    for index, frames in split(len(route.queues)):
        queue, taken = route.choose(None, index), 0
        while taken < len(frames):
            taken = transaction.contents.append_frames(queue, frames, taken)
            if core.output_bytes > EAGER:
                await core.drained()
                await transaction.ready(topic)


def _check_columns(values: Any, **others: Any) -> None:
    _check_column("values", values)
    given = {name: column for name, column in others.items() if column is not None}
    for name, column in given.items():
        _check_column(name, column)
    if any(len(column) != len(values) for column in given.values()):
        lengths = [len(values), *(len(column) if column is not None else None for column in others.values())]
        raise errors.Misuse(f"columns of different lengths, {lengths}; nothing was added")


def _check_column(name: str, column: Any) -> None:
    if not isinstance(column, Collection) or isinstance(column, _NO_COLUMN):
        raise wrong_type(name, column, "a list with one for each message", "nothing was added")


def _column(column: Sequence[T | None] | None) -> Iterable[T | None]:
    return repeat(None) if column is None else column

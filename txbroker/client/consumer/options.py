"""The options of a consumer, checked before anything is sent."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import NamedTuple

from journal.arguments import (
    NOTHING_READ,
    listed,
    micros,
    seconds,
    text,
    texts,
    truth,
    whole,
    wrong_value,
)
from txbroker.client.core.partitioner import named_index

Start = str | int | datetime


class ConsumerOptions(NamedTuple):
    """What a consumer reads, and how. ``max_wait`` is in seconds, ``max_bytes`` and ``prefetch`` are in bytes.

    ``start`` is "committed" (the position of the group; if there is none, as "earliest"), "earliest", "latest", an
    offset, or a ``datetime`` with a time zone (the first message appended then or later). With ``follow`` the consumer
    waits for new messages at the end. With ``claim`` it claims the partitions for the group. ``out_of_range`` is where
    it goes on if retention removed the position: "earliest", "latest" or "raise".

    ``order`` is what a consumer with a group hands out while a message waits, because an undecided transaction holds it
    or it is not due yet: "partition" (nothing behind it in its partition), "key" (no later message of its key; messages
    without a key wait for none), or None (all others). A message that was handed out and is not finished holds up no
    other.
    """

    topics: tuple[str, ...]
    group: str | None = None
    partitions: tuple[int, ...] | None = None
    start: Start = "committed"
    max_wait: float = 5.0
    follow: bool = True
    prefetch: int = 8 << 20
    max_bytes: int = 1 << 20
    claim: bool = True
    out_of_range: str = "earliest"
    order: str | None = "partition"


def consumer_options(topics: str | Sequence[str], group: str | None, **choices: object) -> ConsumerOptions:
    """Check a consumer's options; raises WrongType, WrongValue."""
    named = (
        [text("topics", topics, NOTHING_READ)]
        if isinstance(topics, str)
        else texts("topics", topics, NOTHING_READ)
    )
    options = ConsumerOptions(tuple(named), group, **choices)  # type: ignore[arg-type]
    if not named:
        raise wrong_value("topics", None, "the name of a topic, or a list of some", NOTHING_READ)
    if group is not None:
        text("group", group, NOTHING_READ)
    for name in ("follow", "claim"):
        truth(name, getattr(options, name), NOTHING_READ)
    for name in ("prefetch", "max_bytes"):
        whole(name, getattr(options, name), NOTHING_READ, least=1)
    seconds("max_wait", options.max_wait, NOTHING_READ)
    if text("out_of_range", options.out_of_range, NOTHING_READ) not in ("earliest", "latest", "raise"):
        raise wrong_value(
            "out_of_range", options.out_of_range, "'earliest', 'latest' or 'raise'", NOTHING_READ
        )
    if options.order is not None and text("order", options.order, NOTHING_READ) not in ("partition", "key"):
        raise wrong_value("order", options.order, "'partition', 'key' or None", NOTHING_READ)
    if options.partitions is not None:
        indexes = tuple(map(named_index, listed("partitions", options.partitions, "int", NOTHING_READ)))
        options = options._replace(partitions=indexes)
    return options._replace(start=_checked_start(options.start))


def _checked_start(start: Start) -> Start:
    known = "'committed', 'earliest', 'latest', an offset or a datetime with a time zone"
    if isinstance(start, datetime):
        micros("start", start, NOTHING_READ)
        return start
    if isinstance(start, str):
        if start not in ("committed", "earliest", "latest"):
            raise wrong_value("start", start, known, NOTHING_READ)
        return start
    return whole("start", start, NOTHING_READ, least=0, wanted=known)

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
    wrong_type,
    wrong_value,
)
from journal.message_headers import GivenTags, message_tags
from txbroker.client.consumer.notices import Callback
from txbroker.client.core.partitioner import named_index
from txbroker.client.core.retry_policy import RetryPolicy, rules_of
from txbroker.errors import Misuse

Start = str | int | datetime
LEAST_INTERVAL, MOST_INTERVAL = 0.01, 3600.0
"""Bounds of ``commit_interval``, in seconds."""


class ConsumerOptions(NamedTuple):
    """What a consumer reads, and how. ``max_wait`` is in seconds, ``max_bytes`` and ``prefetch`` are in bytes.

    ``max_run`` is how many messages of a partition come at most before those of the others that are here, None for all
    that were read at once.

    ``start`` is "committed" (the position of the group; if there is none, as "earliest"), "earliest", "latest", an
    offset, or a ``datetime`` with a time zone (the first message appended then or later). With ``follow`` the consumer
    waits for new messages at the end. With ``claim`` it claims the partitions for the group. ``out_of_range`` is where
    it goes on if retention removed the position: "earliest", "latest" or "raise".

    ``order`` is what a consumer with a group hands out while a message waits, because an undecided transaction holds it
    or it is not due yet: "partition" (nothing behind it in its partition), "key" (no later message of its key; messages
    without a key wait for none), or None (all others). A message that was handed out and is not finished holds up no
    other.

    A consumer with a group and without ``partitions`` is a member of the group: the broker shares the partitions of the
    topics out to the members. ``start`` is then where the group begins in a partition of which it has no position yet.
    ``pattern`` names further topics by shell wildcards, also later ones. ``member`` is the name of a static member,
    whose partitions are kept for it while it is away for a short time. A member that is not heard of for
    ``session_timeout`` seconds loses its partitions, and one that does not commit what it has handed out of a partition
    within ``max_handover`` seconds after the group has asked it back, that one. ``on_revoked`` is called with a list of
    (topic, index) of partitions that the group asks back, before they are given back: nothing more of them is handed
    out, and what was can still be committed. ``on_lost`` is called with those that are another's already. With
    ``claim=False`` the consumer only reads where the group is, and any number may do so.

    ``retry`` is how the group tries messages again that ``retry()`` is called for: a :class:`RetryPolicy`, which is
    kept for the group and is that of all its consumers (GroupSettingsConflict if it has another one); True for the
    group's, or the usual one if it has none; False if the group's is none of this consumer's business.

    With ``commit_interval`` the messages that ``done()`` is called for are finished together, at most so many seconds
    later, and when a partition is given back, and when the consumer is closed; with ``auto_done`` that is also done
    with what was handed out before, by whoever asks for the next messages.

    A member whose program has had messages for ``handler_timeout`` seconds and has not come for more leaves the group:
    others get its partitions, and its next call raises HandlerTimedOut. None is for ever.

    ``tags`` are those of which a message has one if it is for the group; the broker leaves out all others, and finishes
    them for the group. They are kept for the group, and are those of all its consumers: the first sets them
    (GroupSettingsConflict if the group has others, or none and has been read). None: whatever the group's are.
    """

    topics: tuple[str, ...]
    group: str | None = None
    partitions: tuple[int, ...] | None = None
    start: Start = "committed"
    max_wait: float = 15.0
    follow: bool = True
    prefetch: int = 8 << 20
    max_bytes: int = 1 << 20
    max_run: int | None = None
    claim: bool = True
    out_of_range: str = "earliest"
    order: str | None = "partition"
    pattern: str = ""
    member: str = ""
    session_timeout: float = 45.0
    max_handover: float = 300.0
    on_revoked: Callback | None = None
    on_lost: Callback | None = None
    retry: RetryPolicy | bool = False
    commit_interval: float | None = None
    auto_done: bool = False
    handler_timeout: float | None = None
    tags: GivenTags = None

    @property
    def named(self) -> str:
        """The topics, for people."""
        return ", ".join([*self.topics, *([self.pattern] if self.pattern else [])])

    @property
    def is_member(self) -> bool:
        """Whether the consumer shares the partitions of its topics with the other consumers of its group."""
        return self.group is not None and self.partitions is None and self.claim

    @property
    def tells_begun(self) -> bool:
        """Whether the broker is told which messages are being handled, to count attempts if the consumer is lost."""
        return self.is_member and self.retry is not False


def consumer_options(
    topics: str | Sequence[str] | None, group: str | None, **choices: object
) -> ConsumerOptions:
    """Check a consumer's options; raises WrongType, WrongValue, Misuse."""
    named: list[str] = []
    if topics is not None:
        is_one = isinstance(topics, str)
        named = [text("topics", topics, NOTHING_READ)] if is_one else texts("topics", topics, NOTHING_READ)
    options = ConsumerOptions(tuple(named), group, **choices)  # type: ignore[arg-type]
    if group is not None:
        text("group", group, NOTHING_READ)
    _check_member(options)
    if not named and not options.pattern:
        raise wrong_value("topics", None, "the name of a topic, or a list of some", NOTHING_READ)
    if not isinstance(options.retry, bool):
        rules_of(options.retry, NOTHING_READ)
    if options.retry is not False and not options.group:
        raise Misuse(f"retry= is how a group tries messages again: say group=, too; {NOTHING_READ}")
    _check_finishing(options)
    options = options._replace(tags=_checked_tags(options))
    for name in ("follow", "claim", "auto_done"):
        truth(name, getattr(options, name), NOTHING_READ)
    for name in ("prefetch", "max_bytes"):
        whole(name, getattr(options, name), NOTHING_READ, least=1)
    if options.max_run is not None:
        whole("max_run", options.max_run, NOTHING_READ, least=1, wanted="an int or None")
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


def _check_finishing(options: ConsumerOptions) -> None:
    interval = options.commit_interval
    if interval is None:
        if options.auto_done:
            raise Misuse(
                f"auto_done= has messages finished at intervals: say commit_interval=, too; {NOTHING_READ}"
            )
        return
    if not options.group or not options.claim:
        raise Misuse(
            f"commit_interval= is how a group finishes messages: say group=, and not claim=False; {NOTHING_READ}"
        )
    if not LEAST_INTERVAL <= seconds("commit_interval", interval, NOTHING_READ) <= MOST_INTERVAL:
        raise wrong_value(
            "commit_interval",
            interval,
            f"{LEAST_INTERVAL:g} to {MOST_INTERVAL:g} seconds, or None",
            NOTHING_READ,
        )


def _checked_tags(options: ConsumerOptions) -> tuple[str, ...] | None:
    if options.tags is None:
        return None
    tags = message_tags(options.tags, NOTHING_READ)
    if not options.group:
        raise Misuse(f"tags= are those that a group filters by: say group=, too; {NOTHING_READ}")
    if not tags:
        raise wrong_value("tags", None, "at least one, or None for those that the group has", NOTHING_READ)
    return tags


def _check_member(options: ConsumerOptions) -> None:
    for name in ("pattern", "member"):
        text(name, getattr(options, name), NOTHING_READ)
    for name in ("pattern", "member", "on_revoked", "on_lost", "handler_timeout"):
        if getattr(options, name) and not options.is_member:
            raise Misuse(
                f"{name}= is for members of a group, to which the broker gives partitions: say group=, and neither "
                f"partitions= nor claim=False; {NOTHING_READ}"
            )
    for name in ("on_revoked", "on_lost"):
        callback: object = getattr(options, name)
        if callback is not None and not callable(callback):
            raise wrong_type(name, callback, "to be called with a list of (topic, index)", NOTHING_READ)
    if options.handler_timeout is not None and not seconds(
        "handler_timeout", options.handler_timeout, NOTHING_READ
    ):
        raise wrong_value("handler_timeout", options.handler_timeout, "more than 0, or None", NOTHING_READ)
    for name, least, most in (("session_timeout", 1.0, 3600.0), ("max_handover", 0.0, 86_400.0)):
        value = seconds(name, getattr(options, name), NOTHING_READ)
        if not least <= value <= most:
            raise wrong_value(name, value, f"{least:g} to {most:g} seconds", NOTHING_READ)


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

"""Retries: what a group's reader wants tried again becomes an unfinished offset with attempts, a due time and a reason.

The broker counts the attempts and reads its journal's clock; both are in the record. So a client can neither forge a
count nor a time, and its clock does not matter.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Final, NamedTuple

from msgspec.structs import replace

from journal.folds.group import Group
from journal.folds.groups import GroupsFold
from journal.formats.filenames import check_topic_name
from journal.records.group_entries import (
    DEAD,
    MAX_PAUSE,
    STOPPED,
    Death,
    Ending,
    Retried,
    RetryRules,
    Settled,
    Unfinished,
)
from journal.records.queue_entries import QUEUE_TOPIC_PREFIX
from txbroker.errors import AlreadyFinished, InvalidSetting, RequestRefused
from txbroker.wire.dead_letters import dead_topic_of, is_dead_topic

if TYPE_CHECKING:
    from journal.engine.engine import Engine
    from journal.log.message_store import MessageStore

DEFAULT_PAUSE: Final = 10_000_000
"""µs until a message is tried again, if neither its reader nor its group's rules say when."""
MAX_DOUBLINGS: Final = 45
"""After so many doublings a pause of 1 µs is longer than the longest."""


def check_said(settled: Iterable[Settled]) -> None:
    """Raise InvalidSetting for a request that states what only the broker does: attempts and due times."""
    if any(each.unfinished for each in settled):
        raise InvalidSetting(
            "a request states attempts and due times of offsets, which the broker counts and sets; nothing has "
            "changed. Say with `retried` what is tried again, and after which time"
        )


class Noted(NamedTuple):
    """What a record says of retried offsets: those that are unfinished, with their details, and those that are given up
    and so finished.
    """

    unfinished: list[Unfinished]
    dropped: list[int]


class Retries:
    """Makes what a record says of retried offsets. ``random`` gives random bytes, for pauses that differ."""

    def __init__(
        self, engine: Engine, groups: GroupsFold, max_reason: int, random: Callable[[int], bytes]
    ) -> None:
        self._engine = engine
        self._groups = groups
        self._max_reason = max_reason
        self._random = random
        self.rules_of: Callable[[Group, MessageStore], RetryRules | None] = _rules_of_group
        """Returns the rules by which messages of a partition are tried again for a group."""

    def noted(self, name: str, store: MessageStore, retried: Sequence[Retried]) -> Noted:
        """Return the offsets with one attempt more than the group has counted, due after their pauses; or as the rules
        of the group say, if they were tried as often as these allow.

        A reason is cut, not refused: it is the text of an error, and the message must not come back at once for its
        length.
        What is known of an offset is returned as it is if that attempt is counted already: the request is a repetition,
        whose first answer was lost. So is the last attempt of one that the group has finished, as it is by being moved
        or dropped: nothing is returned of it. Raises InvalidSetting for a pause that is not 0 to :data:`MAX_PAUSE`, and
        for a message that is to go to the dead letters and has no topic to go to.
        """
        group = self._groups.find(name)
        kept = group.settlements.get(store.number)
        known = kept.unfinished if kept is not None else {}
        rules = self.rules_of(group, store)
        if any(each.dead for each in retried):
            check_has_target(store, group)
        noted = Noted([], [])
        for each in retried:
            is_last = rules is not None and each.attempts + 1 >= rules.attempts
            if (each.dead or is_last) and is_finished(group, store, each.offset):
                continue
            details = self._noted(each, known.get(each.offset), group, store, rules)
            if details is None:
                noted.dropped.append(each.offset)
            else:
                noted.unfinished.append(details)
        return noted

    def _noted(
        self,
        each: Retried,
        known: Unfinished | None,
        group: Group,
        store: MessageStore,
        rules: RetryRules | None,
    ) -> Unfinished | None:
        """Return what is known of an offset from now on; None if it is finished without success."""
        if known is not None and (known.is_dead or each.attempts < known.attempts):
            if known.is_dead or not each.dead:
                return known
            return replace(known, due=DEAD, reason=each.reason[: self._max_reason], death=Death.REJECTED)
        now = self._engine.now()
        attempts = 1 if known is None else known.attempts + 1
        due, death = now + self._pause(each, attempts, rules), Death.REJECTED
        if each.dead:
            if is_queue(store) and rules is not None and rules.ending is Ending.DROP:
                return None  # the queue has nowhere to send it to
            due = DEAD
        elif rules is not None and attempts >= rules.attempts:
            if rules.ending is Ending.DROP:
                return None
            death = Death.DELIVERY_LIMIT
            due = DEAD if rules.ending is Ending.DEAD_LETTER and has_target(store, group) else STOPPED
        failed = (known.failed if known is not None else 0) or now + self._engine.wall_offset
        return Unfinished(each.offset, attempts, due, each.reason[: self._max_reason], failed, death)

    def _pause(self, each: Retried, attempts: int, rules: RetryRules | None) -> int:
        """Return the µs until the offset is due: as the request says, else as the rules do, between a half and the
        whole, so that what has failed together does not come again together.
        """
        pause = each.after
        if pause is None and rules is not None:
            full = min(rules.longest, rules.pause << min(attempts - 1, MAX_DOUBLINGS))
            return full // 2 + full * int.from_bytes(self._random(2)) // 0x1FFFE
        if pause is None:
            return DEFAULT_PAUSE
        if not 0 <= pause <= MAX_PAUSE:
            raise InvalidSetting(
                f"offset {each.offset} is to be tried again after {pause} µs, 0 to {MAX_PAUSE} (a year) are "
                "allowed; nothing has changed. Say another pause"
            )
        return pause

    def check_unfinished(self, name: str, store: MessageStore, settled: Iterable[Settled]) -> None:
        """Raise AlreadyFinished for an offset with attempts that the group has finished."""
        group = self._groups.find(name)
        for one in settled:
            for each in one.unfinished:
                offset = each.offset
                if each.attempts and is_finished(group, store, offset):
                    raise AlreadyFinished(
                        f"offset {offset} of {store.topic}-{store.index} cannot be tried again for group {name!r}, "
                        "which has finished it (with done, or with a commit of a position behind it); nothing has "
                        "changed. Retry a message before it is finished"
                    )


def _rules_of_group(group: Group, store: MessageStore) -> RetryRules | None:  # noqa: ARG001
    return group.settings.retry


def is_queue(store: MessageStore) -> bool:
    """Return whether a partition has the messages of a queue."""
    return store.topic.startswith(QUEUE_TOPIC_PREFIX)


def is_finished(group: Group, store: MessageStore, offset: int) -> bool:
    """Return whether a group has finished an offset."""
    position, kept = group.position(store.number) or 0, group.settlements.get(store.number)
    return offset < position or (kept is not None and offset in kept.finished)


def target_of(topic: str, group: Group) -> str:
    """Return the name of the topic that takes the dead letters that a group makes of a topic."""
    rules = group.settings.retry
    return rules.target if rules is not None and rules.target else dead_topic_of(topic)


def check_has_target(store: MessageStore, group: Group) -> None:
    """Raise InvalidSetting, InvalidName if no topic can take the dead letters that a group makes of that partition."""
    if is_queue(store):
        return  # its exchange, if it has one
    if is_dead_topic(store.topic):
        raise InvalidSetting(
            f"topic {store.topic!r} has dead letters, and its own have no topic to go to; nothing has changed. Retry "
            "the message, or finish it"
        )
    check_topic_name(target_of(store.topic, group))


def has_target(store: MessageStore, group: Group) -> bool:
    """Return whether a topic can take the dead letters that a group makes of that partition."""
    try:
        check_has_target(store, group)
    except RequestRefused:
        return False
    return not store.internal or is_queue(store)

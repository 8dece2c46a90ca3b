"""The limits and times by which members are judged. Times are µs; the broker's settings have them."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, Protocol

from journal.formats.offset_set_bytes import decode_offsets
from journal.records.group_entries import GroupPositions, Settled
from txbroker.errors import InvalidFrame, InvalidSetting, LimitExceeded
from txbroker.groups.settlement_judge import check_extent
from txbroker.wire.messages import MAX_BEGUN, MAX_MEMBER_TOPICS, MAX_RELEASED, BegunMessages, JoinGroup
from txbroker.wire.refusals import check_id, check_name, check_not_reserved

SECOND: Final = 1_000_000
SESSION_TIMEOUTS: Final = (SECOND, 3600 * SECOND)
HANDOVERS: Final = (0, 24 * 3600 * SECOND)
MAX_PATTERN: Final = 255
MAX_OWNED: Final = 100_000
"""Most partitions that a member says it has: a single member has all of the group."""


class MemberSettings(Protocol):
    """The part of the broker's settings that members need."""

    @property
    def max_members(self) -> int:
        """Most members of all groups."""

    @property
    def assignment_delay(self) -> int:
        """How long an assignment waits for further members that join."""

    @property
    def reconnect_grace(self) -> int:
        """How long a member without a connection stays."""

    @property
    def rejoin_timeout(self) -> int:
        """How long the partitions of a static member that was lost are kept for it."""


def check_join(command: JoinGroup) -> None:
    """Raise InvalidName, InvalidSetting or LimitExceeded for a join that cannot be."""
    check_name("group", command.group)
    check_not_reserved(command.group)
    check_id("group", command.group, command.id)
    if command.name:
        check_name("member", command.name)
    where = f"of a member of group {command.group!r}"
    if len(command.nonce) != 16:
        raise InvalidSetting(
            f"a nonce {where} of {len(command.nonce)} bytes, it must be 16; nothing has changed"
        )
    if not command.topics and not command.pattern:
        raise InvalidSetting(
            f"no topics {where}, and no pattern; nothing has changed. Name what it is to read"
        )
    if len(command.topics) > MAX_MEMBER_TOPICS:
        raise LimitExceeded(
            f"{len(command.topics)} topics {where}, the limit is {MAX_MEMBER_TOPICS}; nothing has changed. "
            "Use a pattern"
        )
    if len(command.pattern) > MAX_PATTERN:
        raise LimitExceeded(
            f"a pattern {where} of {len(command.pattern)} characters, the limit is {MAX_PATTERN}; nothing has changed"
        )
    for topic in command.topics:
        check_name("topic", topic)
    check_owned(command.group, len(command.owned))
    for name, bounds in (("session_timeout", SESSION_TIMEOUTS), ("max_handover", HANDOVERS)):
        value = getattr(command, name)
        if not bounds[0] <= value <= bounds[1]:
            raise InvalidSetting(
                f"{name} {where} is {value} µs, it must be {bounds[0]} to {bounds[1]}; nothing has changed"
            )
    start = command.start
    if not (start is None or start in ("earliest", "latest") or (isinstance(start, int) and start >= 0)):
        raise InvalidSetting(
            f"start {where} is {start!r}, it must be 'earliest', 'latest', an offset or nothing; nothing has changed"
        )


def check_begun(group: str, begun: Iterable[BegunMessages]) -> None:
    """Raise LimitExceeded for more messages than a member may say that it handles."""
    count = sum([len(each.offsets) for each in begun])
    if count > MAX_BEGUN:
        raise LimitExceeded(
            f"{count} messages that a member of group {group!r} handles, {MAX_BEGUN} are allowed; nothing has changed. "
            "Name the first of them"
        )


def check_finished(group: str, finished: list[Settled]) -> None:
    """Raise LimitExceeded for more than a request settles, InvalidSetting for anything but finished offsets,
    InvalidFrame for what is no set of offsets.
    """
    check_extent([GroupPositions(group, b"", [], finished)])
    if len(finished) > MAX_RELEASED:
        raise LimitExceeded(
            f"a member of group {group!r} says what it has finished in {len(finished)} partitions, {MAX_RELEASED} are "
            "allowed; nothing has changed. Give the others back later"
        )
    if any(each.unfinished or each.retried for each in finished):
        raise InvalidSetting(
            f"a member of group {group!r} says of offsets that they are to be tried again, which only a commit says; "
            "nothing has changed"
        )
    if len({each.partition for each in finished}) < len(finished):
        raise InvalidSetting(
            f"a member of group {group!r} says twice what it has finished in a partition; nothing has changed. Say it "
            "once"
        )
    for each in finished:
        try:
            decode_offsets(each.finished, each.base)
        except InvalidFrame as error:
            raise InvalidFrame(
                f"what a member of group {group!r} has finished in partition {each.partition}: {error}; nothing has "
                "changed"
            ) from error


def check_owned(group: str, count: int) -> None:
    """Raise LimitExceeded for more partitions than a member may say that it has."""
    if count > MAX_OWNED:
        raise LimitExceeded(
            f"{count} partitions of a member of group {group!r}, the limit is {MAX_OWNED}; nothing has changed"
        )

"""The messages that a member of a group is handling, as the broker is told: if the member is lost, these were attempts.

Each request says all of them, so the last one counts. It goes out before the handler is called: one that ends its
process at once is told of, too. If very many are handled at the same time, one request at a time is under way, and the
next one says what has begun and ended meanwhile; else all of them would be said again for each.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from txbroker.client.core.core import Core
from txbroker.client.core.results import Message
from txbroker.wire.messages import MAX_BEGUN, BeginMessages, BegunMessages, Done, Joined

MOST_UNDER_WAY: Final = 64
"""How many messages the requests that are not answered may name together, if there is more than one."""


class Begun:
    """What is being handled. ``member`` returns who the member is, None while the broker does not know it."""

    def __init__(self, core: Core, group: str, member: Callable[[], Joined | None]) -> None:
        self._core = core
        self._group = group
        self._member = member
        self._works: dict[object, tuple[int, Sequence[Message], bool]] = {}
        self._under_way = 0
        """How many messages the unanswered requests have named, and one more for each."""
        self._is_stale = False
        self._has_told = False

    def __bool__(self) -> bool:
        return bool(self._works)

    def add(self, work: object, partition: int, messages: Sequence[Message], together: bool) -> None:
        """Note what a work handles: these messages of the partition with that number, ``together`` with each other or
        with those of other works, or only one. :meth:`tell` says so to the broker.
        """
        self._works[work] = partition, messages, together

    def remove(self, work: object) -> None:
        """Note that a work has ended. The broker need not be told if its messages are finished, or reported as failed.
        It may be called again.
        """
        self._works.pop(work, None)

    def tell(self) -> None:
        """Tell the broker what is being handled now, or when it has answered what it was told before."""
        member = self._member()
        if member is None or not (self._works or self._has_told):
            return  # it is told when this is a member; or there is nothing to tell, and never was
        begun = self._parts()
        size = 1 + sum(len(each.offsets) for each in begun)
        if self._under_way and self._under_way + size > MOST_UNDER_WAY:
            self._is_stale = True
            return
        self._is_stale, self._has_told = False, True
        core = self._core
        request = BeginMessages(core.correlation(), self._group, member.member, member.secret, begun)
        self._under_way += size
        core.is_urgent = True
        core.request(request, Done).then(lambda: self._told(size))

    def _told(self, size: int) -> None:
        """Go on with what has begun since. A refusal says that the member is lost, which it is told when it attends."""
        self._under_way -= size
        if self._is_stale:
            self.tell()

    def _parts(self) -> list[BegunMessages]:
        found: list[BegunMessages] = []
        left = MAX_BEGUN
        works = list(self._works.values())  # in one step: other threads begin and end
        for partition, messages, together in works:
            if not left:
                break
            offsets = [(each.offset, each.attempts) for each in messages[:left]]
            left -= len(offsets)
            found.append(BegunMessages(partition, messages[0].generation, offsets, together))
        return found

"""Groups that nobody has used for long are deleted, if their settings or the broker's say so.

When a group was used last is a part of its state: the time of its last record. Members and readers that find nothing
to do make no record, so while there are some, the group is said again to be in use, some times in its time of expiry.
So it is known after a restart, too.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from itertools import islice
from typing import TYPE_CHECKING, Final

from twisted.logger import Logger

from journal.folds.group import Group
from journal.folds.groups import GroupsFold
from journal.formats.group_entries import STOPPED
from journal.formats.record import GroupAltered, GroupDeleted

if TYPE_CHECKING:
    from journal.engine.engine import Engine

AT_ONCE: Final = 5_000
"""How many groups are looked at in a turn: 2 ms."""
PART: Final = 8
"""A group in use is said to be so again after this part of its time of expiry."""


class IdleGroups:
    """Deletes groups that nobody uses. ``expiry`` is for those whose settings do not say when, None for never. Nothing
    is deleted before ``grace`` µs have passed since the start, in which members come back.

    ``count_members`` returns how many members a group has, ``read`` the groups for which claimed partitions were read
    since it was called last.
    """

    log = Logger()

    def __init__(
        self,
        engine: Engine,
        groups: GroupsFold,
        expiry: int | None,
        grace: int,
        count_members: Callable[[str], int],
        read: Callable[[], Collection[str]],
    ) -> None:
        self._engine = engine
        self._groups = groups
        self._expiry = expiry
        self._begins = engine.now() + grace
        self._count_members = count_members
        self._read = read
        self._names: Iterator[str] = iter(())
        self._used: set[str] = set()
        """Groups that were used since they were looked at last: read for, or with members at that time."""

    def look(self, now: int) -> None:
        """Look at the next groups. Every ten seconds or so, while no large commit is being applied."""
        self._used.update(self._read())
        if self._engine.full:
            return  # what is in use cannot be said to be
        some = list(islice(self._names, AT_ONCE))
        if not some:
            self._names = iter(list(self._groups.groups))
            self._used &= self._groups.groups.keys()
            some = list(islice(self._names, AT_ONCE))
        for name in some:
            group = self._groups.groups.get(name)
            expiry = 0 if group is None else self._expiry_of(group)
            is_used = name in self._used
            self._used.discard(name)
            if group is not None and expiry:
                self._look_at(name, group, expiry, now, is_used)

    def _expiry_of(self, group: Group) -> int:
        own = group.settings.expiry
        return (self._expiry or 0) if own is None else own

    def _look_at(self, name: str, group: Group, expiry: int, now: int, is_used: bool) -> None:
        age = now - group.used
        if self._count_members(name):
            self._used.add(name)
            is_used = True
        if age < expiry // PART:
            return
        if is_used or self._waits_for_something(name, group, now):
            self._engine.accept(GroupAltered(name, group.settings, self._engine.now()))
        elif age >= expiry + expiry // PART and now >= self._begins:
            self.log.info(
                "group {name!r} is deleted: nobody has used it for {seconds} s, which is its expiry",
                name=name, seconds=expiry // 1_000_000,
            )  # fmt: skip
            self._engine.accept(GroupDeleted(name, self._engine.now()))

    def _waits_for_something(self, name: str, group: Group, now: int) -> bool:
        """Whether a prepared transaction or a dead letter under way holds something, or a message is not due yet."""
        return bool(self._groups.holders(name)) or any(
            each.is_dead or now < each.due < STOPPED
            for kept in group.settlements.values()
            for each in kept.unfinished.values()
        )

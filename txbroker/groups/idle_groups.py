"""Groups that nobody has used for long are deleted, if their settings or the broker's say so.

When a group was used last is a part of its state: the time of its last record. Members and readers that find nothing
to do make no record, so while there are some, the group is said again to be in use, some times in its time of expiry.
So it is known after a restart, too.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from typing import TYPE_CHECKING, Final

from twisted.logger import Logger

from journal.folds.group import Group
from journal.folds.groups import GroupsFold
from journal.records.group_entries import STOPPED
from journal.records.record import GroupAltered, GroupDeleted

if TYPE_CHECKING:
    from journal.engine.engine import Engine

AT_ONCE: Final = 20_000
"""How much is done in a turn, in units of 0.1 µs: 2 ms."""
GROUP, RECORD = 4, 180
"""What it takes to look at a group, and to make a record; a message with details is one unit."""
PART: Final = 8
"""A group in use is said to be so again after this part of its time of expiry."""


class IdleGroups:
    """Deletes groups that nobody uses. ``expiry`` is for those whose settings do not say when, None for never. Nothing
    is deleted before ``grace`` µs have passed since the start, in which members come back.

    ``count_members`` returns how many members a group has, ``read`` the groups for which claimed partitions were read
    since it was called last; ``on_deleted`` is called with the name of one that is deleted.
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
        on_deleted: Callable[[str], object],
    ) -> None:
        self._engine = engine
        self._groups = groups
        self._expiry = expiry
        self._begins = engine.now() + grace
        self._count_members = count_members
        self._read = read
        self._on_deleted = on_deleted
        self._left = 0
        self._names: Iterator[str] = iter(())
        self._used: set[str] = set()
        """Groups that were used since they were looked at last: read for, or with members at that time."""

    def look(self, now: int) -> None:
        """Look at the next groups, as many as fit into a turn. Every second or so, while no large commit is applied."""
        self._used.update(self._read())
        if self._engine.full:
            return  # what is in use cannot be said to be
        self._left = AT_ONCE
        name = next(self._names, None)
        if name is None:
            self._names = iter(list(self._groups.groups))
            self._used &= self._groups.groups.keys()
            name = next(self._names, None)
        while name is not None:
            self._left -= GROUP
            group = self._groups.groups.get(name)
            expiry = 0 if group is None else self._expiry_of(group)
            is_used = name in self._used
            self._used.discard(name)
            if group is not None and expiry:
                self._look_at(name, group, expiry, now, is_used)
            name = next(self._names, None) if self._left > 0 else None

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
        if is_used or self._groups.holders(name):
            self._touch(name, group)
        elif age >= expiry + expiry // PART and now >= self._begins:
            if self._waits_for_something(group, now):
                self._touch(name, group)
            else:
                self._delete(name, expiry)

    def _touch(self, name: str, group: Group) -> None:
        """Say that a group is in use."""
        self._left -= RECORD
        self._engine.accept(GroupAltered(name, group.settings, self._engine.now()))

    def _delete(self, name: str, expiry: int) -> None:
        self._left -= RECORD
        self.log.info(
            "group {name!r} is deleted: nobody has used it for {seconds} s, which is its expiry",
            name=name, seconds=expiry // 1_000_000,
        )  # fmt: skip
        self._engine.accept(GroupDeleted(name, self._engine.now()))
        self._on_deleted(name)

    def _waits_for_something(self, group: Group, now: int) -> bool:
        """Whether a message is not due yet, or is about to go to the dead letters."""
        for kept in group.settlements.values():
            self._left -= len(kept.unfinished)
            if any(each.is_dead or now < each.due < STOPPED for each in kept.unfinished.values()):
                return True
        return False

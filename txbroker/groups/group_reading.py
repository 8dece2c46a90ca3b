"""The readers of groups in fetches: checked, and woken when something has changed for them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, Final, Protocol

from journal.constants import MAX_REQUEST_MESSAGES
from journal.folds.groups import GroupsFold
from journal.formats.offset_set_bytes import MAX_SPAN
from journal.records.group_entries import MAX_FINISHED_BYTES
from txbroker.errors import InvalidFrame, InvalidSetting, LimitExceeded
from txbroker.groups.group_position import GroupPosition
from txbroker.wire.messages import Fetch, Reader

if TYPE_CHECKING:
    from journal.engine.engine import Engine

MOST_BEHIND: Final = MAX_SPAN - MAX_REQUEST_MESSAGES
"""How far the base of missing offsets may be below the offset that is asked for."""


class GroupFetch(Protocol):
    """The part of a fetch that its readers need."""

    @property
    def for_groups(self) -> Mapping[int, GroupPosition]:
        """Those of its positions that are read for groups, by their places in it."""


Waiting = dict[tuple[str, int], dict[GroupFetch, None]]
"""Fetches that wait, by group and partition."""


class GroupReading:
    """The fetches that are read for groups, and which of them a change in a group concerns."""

    def __init__(
        self,
        engine: Engine,
        max_ahead: int,
        groups: GroupsFold,
        look_again: Callable[[Any], None],
    ) -> None:
        self._engine = engine
        self._max_ahead = max_ahead
        self._groups = groups
        self._look_again = look_again
        self._claimed: Waiting = {}
        self._missing: Waiting = {}
        self._read: set[str] = set()

    # -- requests ---------------------------------------------------------------------------------

    def positions_of(self, command: Fetch) -> dict[int, GroupPosition]:
        """Return the positions of a fetch that are read for groups, by their places in it; raises for a wrong one."""
        found: dict[int, GroupPosition] = {}
        size = sum([len(each[1]) for reader in command.readers for each in reader.missing])
        if size > MAX_FINISHED_BYTES:
            raise LimitExceeded(
                f"a fetch with {size} bytes of missing offsets, {MAX_FINISHED_BYTES} are allowed; ask for fewer at a "
                "time"
            )
        for reader in command.readers:
            self._add(found, command.positions, reader)
        return found

    def _add(
        self, found: dict[int, GroupPosition], positions: list[tuple[int, int, int]], reader: Reader
    ) -> None:
        first, end = reader.first, reader.first + len(reader.generations)
        missing = {each[0]: each for each in reader.missing}
        if not 0 <= first <= end <= len(positions) or len(missing) < len(reader.missing):
            raise InvalidSetting(
                f"a reader for group {reader.group!r} has positions {first} to {end} of {len(positions)}, and missing "
                "offsets once for a partition; ask for positions that are in the fetch"
            )
        if any(reader.generations) and reader.group in self._groups.groups:
            self._read.add(reader.group)
        for place, generation in enumerate(reader.generations, first):
            if place in found:
                raise InvalidSetting(f"position {place} of a fetch has two readers; give it one")
            wanted = missing.pop(positions[place][0], None)
            found[place] = self._position(reader.group, generation, positions[place], wanted)
        if missing:
            raise InvalidSetting(
                f"a reader for group {reader.group!r} misses offsets of partition {min(missing)}, which it does not "
                "read; ask for it, too"
            )

    def _position(
        self,
        group: str,
        generation: int,
        position: tuple[int, int, int],
        missing: tuple[int, bytes, int] | None,
    ) -> GroupPosition:
        partition, offset, _ = position
        if missing is not None and not 0 <= offset - missing[2] <= MOST_BEHIND:
            raise LimitExceeded(
                f"a reader of partition {partition} for group {group!r} is at offset {offset} and misses some from "
                f"{missing[2]} on, which is not 0 to {MOST_BEHIND} below; wait for these first"
            )
        ahead = self._max_ahead
        try:
            return GroupPosition(self._engine, self._groups, group, generation, position, missing, ahead)
        except InvalidFrame as error:
            raise InvalidFrame(
                f"what a reader of partition {partition} for group {group!r} misses: {error}"
            ) from error

    def read(self) -> set[str]:
        """As :meth:`Fetching.read_groups`."""
        found = self._read | {group for group, _ in self._claimed}
        self._read = set()
        return found

    # -- waking -----------------------------------------------------------------------------------

    def wait(self, fetch: GroupFetch) -> None:
        """Note what a waiting fetch is to be woken for."""
        for each in fetch.for_groups.values():
            if each.is_claimed:
                self._claimed.setdefault((each.group, each.partition), {})[fetch] = None
            if each.has_missing or each.lags:
                self._missing.setdefault((each.group, each.partition), {})[fetch] = None
        self._listen()

    def stop(self, fetch: GroupFetch) -> None:
        """Forget a fetch."""
        for each in fetch.for_groups.values():
            key = each.group, each.partition
            for waiting in (self._claimed, self._missing):
                fetches = waiting.get(key)
                if fetches is not None:
                    fetches.pop(fetch, None)
                    if not fetches:
                        del waiting[key]
        self._listen()

    def _listen(self) -> None:
        """Have the fold tell what changes while a fetch waits for that: each commit would cost 5 % more otherwise."""
        self._groups.on_claimed = self._on_claimed if self._claimed else None
        self._groups.on_settled = self._on_settled if self._missing else None

    def _on_claimed(self, group: str, partitions: Iterable[int]) -> None:
        self._wake(self._claimed, group, partitions)

    def _on_settled(self, group: str, partitions: Iterable[int]) -> None:
        self._wake(self._missing, group, partitions)

    def _wake(self, waiting: Waiting, group: str, partitions: Iterable[int]) -> None:
        """Have the fetches that wait for this looked at again once the change is forced."""
        for partition in partitions:
            for fetch in waiting.get((group, partition), ()):
                self._engine.when_forced(self._look_again, fetch)

    def is_unforced(self, fetch: GroupFetch) -> bool:
        """Return whether a crash could still undo what an answer to this fetch tells of its groups."""
        forced, groups = self._engine.forced_lsn, self._groups
        return groups.changed_lsn > forced or any(
            groups.find(each.group).changed_lsn > forced for each in fetch.for_groups.values()
        )

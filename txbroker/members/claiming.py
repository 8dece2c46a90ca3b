"""Claims for members: the records that make a partition a member's, and where the group begins in it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Final

from msgspec.structs import replace

from journal.folds.groups import GroupsFold
from journal.formats.group_entries import ClaimKind, Settled
from journal.formats.record import PartitionsClaimed
from txbroker.groups.lost_attempts import LostWork
from txbroker.members.group_table import GroupTable
from txbroker.members.member import Member

if TYPE_CHECKING:
    from journal.engine.engine import Engine

MAX_CLAIMED: Final = 250
"""Most partitions that are claimed in a turn: 1 ms."""

CheckRoom = Callable[[str, bytes, Sequence[int]], object]
Counted = Callable[[str, int, Sequence[LostWork]], Settled | None]


class Claiming:
    """Makes claims. ``check_room`` raises if a group may not have these partitions, because of a limit or the disk.
    ``counted`` returns what a claim says of messages that a lost member had begun.
    """

    def __init__(self, engine: Engine, groups: GroupsFold, check_room: CheckRoom, counted: Counted) -> None:
        self._engine = engine
        self._groups = groups
        self._stores = engine.catalog.stores
        self._check_room = check_room
        self._counted = counted

    def known_topics(self, group: str) -> set[str]:
        """Return the topics of which the group has read partitions."""
        stores = self._stores
        return {stores[number].topic for number in self._groups.find(group).partitions() if number in stores}

    def claim(self, table: GroupTable, group: str, member: Member, numbers: Iterable[int]) -> None:
        """Claim partitions for a member; those that are not there any more are left out.

        Raises LimitExceeded, and StorageUnavailable on a full disk; then nothing has changed.
        """
        there = [number for number in numbers if number in self._stores]
        if there:
            self._claim(table, group, member, there)

    def _claim(self, table: GroupTable, group: str, member: Member, numbers: list[int]) -> None:
        assert len(numbers) <= MAX_CLAIMED
        self._check_room(group, table.group_id, numbers)
        generation = self._groups.last_generation + 1
        said = [self._begin(table, group, member, number, generation) for number in numbers]
        said += [self._lost(table, group, number, generation) for number in numbers if number in table.begun]
        made = b"" if group in self._groups.groups else table.group_id
        kind = ClaimKind.STATIC_MEMBER if member.name else ClaimKind.MEMBER
        claims = [(number, generation) for number in numbers]
        self._engine.accept(
            PartitionsClaimed(
                group, member.name or member.client, claims, self._engine.now(), made,
                [each for each in said if each is not None], kind,
            )
        )  # fmt: skip
        for number in numbers:
            table.own(member, number, generation)

    def _lost(self, table: GroupTable, group: str, number: int, generation: int) -> Settled | None:
        """Return what becomes of messages that a lost member had begun."""
        found = self._counted(group, number, table.begun[number])
        return None if found is None else replace(found, generation=generation)

    def _begin(
        self, table: GroupTable, group: str, member: Member, number: int, generation: int
    ) -> Settled | None:
        """Return where the group begins in a partition in which it has no position.

        A partition that came to a topic after the group had begun to read it begins at its start. Nothing is said
        while a prepared transaction holds the first position.
        """
        known = self._groups.find(group)
        if known.position(number) is not None or self._groups.held(group, number) is not None:
            return None
        store = self._stores[number]
        is_later = number not in known and store.topic not in table.new_topics
        match "earliest" if is_later else member.start:
            case None:
                return None
            case "latest":
                offset = store.high_watermark
            case int() as wanted:
                offset = min(max(wanted, store.start_offset), store.high_watermark)
            case _:
                offset = store.start_offset
        return Settled(number, generation, offset)

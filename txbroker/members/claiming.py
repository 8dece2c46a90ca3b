"""Claims for members: the records that make a partition a member's, and where the group begins in it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Final, Protocol

from msgspec.structs import replace
from twisted.logger import Logger

from journal.folds.groups import GroupsFold
from journal.records.group_entries import ClaimKind, PartitionOffset, Settled
from journal.records.record import PartitionsClaimed
from txbroker.errors import RequestRefused, TxBrokerError
from txbroker.groups.claim_settlement import ClaimSettlement
from txbroker.members.group_table import GroupTable
from txbroker.members.member import Member

if TYPE_CHECKING:
    from journal.engine.engine import Engine

MAX_CLAIMED: Final = 250
"""Most partitions that are claimed in a turn: 1 ms."""


class Judge(Protocol):
    """What judges claims and what they settle."""

    at_claims: ClaimSettlement

    def check_room(self, name: str, group_id: bytes, partitions: Iterable[int]) -> None:
        """Raise if a group may not have these partitions, because of a limit or the disk."""

    def settle(
        self, name: str, group_id: bytes, offsets: list[PartitionOffset], settled: Sequence[Settled]
    ) -> None:
        """Settle offsets for a group, outside of a claim."""


class Claiming:
    """Makes claims, as ``judge`` allows."""

    log = Logger()

    def __init__(self, engine: Engine, groups: GroupsFold, judge: Judge) -> None:
        self._engine = engine
        self._groups = groups
        self._stores = engine.catalog.stores
        self._judge = judge

    def known_topics(self, group: str) -> set[str]:
        """Return the topics of which the group has read partitions."""
        stores = self._stores
        return {stores[number].topic for number in self._groups.find(group).partitions() if number in stores}

    def check_room_for(self, table: GroupTable, group: str, names: frozenset[str]) -> None:
        """Raise if the group may not have the partitions of the topics that are named. That was checked if a member
        reads them: for 10,000 partitions it takes 1 ms.
        """
        if any(names <= member.topics for member in table.members.values()):
            return
        topics = self._engine.catalog.topics
        there = [topics[name] for name in names if name in topics]
        numbers = [store.number for topic in there for store in topic.partitions]
        self._judge.check_room(group, table.group_id, numbers)

    def claim(
        self, table: GroupTable, group: str, member: Member, numbers: Iterable[int], again_at: int
    ) -> None:
        """Claim partitions for a member; those that are not there any more are left out. If a limit or a full disk
        refuses them, nothing has changed, and they are looked at again at that time.
        """
        there = [number for number in numbers if number in self._stores]
        if not there:
            return
        try:
            self._claim(table, group, member, there)
        except TxBrokerError as error:
            if self._engine.failed:
                raise
            self.log.warn(
                "group {group}: {count} partitions wait for their claims: {error}",
                group=group, count=len(there), error=error,
            )  # fmt: skip
            table.refuse(there, again_at)

    def settle_unclaimed(self, group: str, table: GroupTable) -> None:
        """Settle what was finished in partitions that nobody else has got in this turn: all by one record, or, if some
        of it may not be settled, each by itself. It comes before anybody is told, who is to be told what is forced.
        """
        finished, table.finished = list(table.finished.values()), {}
        if not finished:
            return
        try:
            self._judge.settle(group, table.group_id, [], finished)
        except RequestRefused:
            for each in finished:
                self._settle_alone(group, table, each)

    def _settle_alone(self, group: str, table: GroupTable, wanted: Settled) -> None:
        settled = self._judge.at_claims.finished(group, wanted)
        if settled is not None:
            self._judge.settle(group, table.group_id, [], [settled])

    def _claim(self, table: GroupTable, group: str, member: Member, numbers: list[int]) -> None:
        assert len(numbers) <= MAX_CLAIMED
        self._judge.check_room(group, table.group_id, numbers)
        generation = self._groups.last_generation + 1
        said = [self._finished(table, group, number, generation) for number in numbers]
        for place, number in enumerate(numbers):
            said[place] = said[place] or self._begin(table, group, member, number, generation)
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
        found = self._judge.at_claims.attempts(group, number, table.begun[number])
        return None if found is None else replace(found, generation=generation)

    def _finished(self, table: GroupTable, group: str, number: int, generation: int) -> Settled | None:
        """Return what the member that gives the partition back has finished in it; None if it says nothing."""
        wanted = table.finished.pop(number, None)
        found = None if wanted is None else self._judge.at_claims.finished(group, wanted)
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

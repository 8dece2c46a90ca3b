"""The description of a group for people: its members, and who has which partition."""

from __future__ import annotations

from collections.abc import Generator
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from journal.folds.group import Group
from journal.folds.groups import GroupsFold
from journal.log.read_plan import append_time_of
from journal.records.access_entries import Resource
from journal.records.group_entries import ClaimKind
from txbroker.broker.fetches.stepwise_answers import Steps, Stepwise, Work
from txbroker.broker.groups.consumer_groups import IN_A_STEP, Consuming
from txbroker.broker.sessions.rights import Rights, described, may_describe_topic
from txbroker.broker.sessions.session import Session
from txbroker.members.coordinator import Coordinator
from txbroker.members.group_table import GroupTable, Kept
from txbroker.members.member import Member
from txbroker.wire.codec import ArrayPieces
from txbroker.wire.messages import DescribeGroup, GroupMembers, MemberInfo, MemberPartition
from txbroker.wire.refusals import check_name, encode_bounded

if TYPE_CHECKING:
    from journal.engine.engine import Engine

FREE: Final = Kept(0)


class GroupDescription:
    """The meaning of DescribeGroup."""

    def __init__(
        self,
        engine: Engine,
        consuming: Consuming,
        groups: GroupsFold,
        coordinator: Coordinator,
        stepwise: Stepwise,
    ) -> None:
        self._engine = engine
        self._transaction_text = consuming.describe
        self._groups = groups
        self._coordinator = coordinator
        self._stepwise = stepwise
        self._stores = engine.catalog.stores

    def describe(self, session: Session, command: DescribeGroup, data: memoryview) -> None:  # noqa: ARG002
        """Return a group's members and partitions, of topics that may be described; empty lists for a group that is not
        there.
        """
        check_name("group", command.group)
        self._stepwise.answer(session, command, self._described(command, session.rights))

    def _described(self, command: DescribeGroup, rights: Rights | None) -> Steps:
        group = self._groups.find(command.group)
        table = self._coordinator.tables.get(command.group) or GroupTable(b"")
        members, partitions = ArrayPieces(), ArrayPieces()
        there = list(table.members.values())
        for first in range(0, len(there), IN_A_STEP):
            members.add([self._member(each, rights) for each in there[first : first + IN_A_STEP]])
            yield None
        known = group.partitions() | self._groups.holders(command.group).keys() | table.target.keys()
        numbers = sorted(known)
        for first in range(0, len(numbers), IN_A_STEP):
            some = [number for number in numbers[first : first + IN_A_STEP] if self._is_shown(number, rights)]
            waiting = yield from self._waiting(group, some)
            some = [number for number in some if number in self._stores]
            partitions.add(
                [self._partition(command.group, group, table, number, waiting.get(number)) for number in some]
            )
            yield None
        kind = ""
        if table.members or group.claims:
            kind = "consumers" if group.may_be_claimed(ClaimKind.CONSUMER) and group.claims else "members"
        return encode_bounded(
            GroupMembers(
                command.correlation, kind, members.joined(), partitions.joined(), group.id, group.settings,
                rights is not None,
            )
        )  # fmt: skip

    def _is_shown(self, number: int, rights: Rights | None) -> bool:
        store = self._stores.get(number)
        return store is not None and may_describe_topic(store.topic, rights)

    def _waiting(self, group: Group, numbers: list[int]) -> Generator[Work | None, Any, dict[int, int]]:
        """Return how long ago the message at the group's position was appended, by partition; of those on the disk one
        frame is read.
        """
        found: dict[int, int] = {}
        for number in numbers:
            store, position = self._stores.get(number), group.position(number)
            if store is None or position is None or position >= store.high_watermark:
                continue
            planned = store.plan_append_time(max(position, store.start_offset))
            appended = planned if isinstance(planned, int) else (yield partial(append_time_of, planned))
            if appended:
                found[number] = max(0, self._engine.now() + self._engine.wall_offset - appended)
        return found

    def _member(self, member: Member, rights: Rights | None) -> MemberInfo:
        peer = member.peer if member.session is not None else ""
        silent = max(0, self._engine.now() - member.heard)
        return MemberInfo(
            member.number, member.client, member.name, peer, silent,
            sorted(described(Resource.TOPIC, member.topics, rights)), member.pattern,
        )  # fmt: skip

    def _partition(
        self, name: str, group: Group, table: GroupTable, number: int, waiting: int | None
    ) -> MemberPartition:
        store, position, owner = self._stores[number], group.position(number), table.owners.get(number)
        holder = self._groups.holder(name, number)
        kept = table.kept.get(number, FREE)
        return MemberPartition(
            store.topic, store.index, position,
            None if position is None else store.high_watermark - position,
            group.generation(number), owner.number if owner else 0, owner is not None and number in owner.asked,
            "" if holder is None else self._transaction_text(holder), max(0, kept.until - self._engine.now()),
            kept.name, waiting,
        )  # fmt: skip

"""Consumer groups: positions, claims, and what undecided transactions hold of them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from journal.record import GroupDeleted, OffsetsCommitted, PartitionOffset, PartitionsClaimed
from journal.transaction import TransactionNumber
from txbroker.commands import (
    Claimed,
    ClaimPartitions,
    CommitOffsets,
    DeleteGroup,
    Done,
    FetchOffsets,
    GroupInfo,
    GroupOffset,
    GroupOffsets,
    Groups,
    ListGroups,
)
from txbroker.errors import (
    InvalidSetting,
    LimitExceeded,
    OffsetOutOfRange,
    OffsetPending,
    UnknownGroup,
)
from txbroker.groups import Group, GroupsFold
from txbroker.refusals import check_name
from txbroker.sending import disk_full, unknown_partition
from txbroker.session import Session
from txbroker.settings import BrokerSettings

if TYPE_CHECKING:
    from journal.engine import Engine


class Consuming:
    """What the commands of groups mean."""

    def __init__(self, engine: Engine, settings: BrokerSettings, groups: GroupsFold) -> None:
        self._engine = engine
        self._settings = settings
        self._groups = groups
        self._stores = engine.catalog.stores
        self.staged = groups.staged

    # -- judging, also for transactions -------------------------------------------------------------

    def judge(self, name: str, offsets: Sequence[PartitionOffset]) -> None:
        """Raise what forbids a group to take these positions."""
        if not offsets:
            raise InvalidSetting(f"no offsets for group {name!r}; nothing has changed")
        self._check_room(name, [offset.partition for offset in offsets])
        for offset in offsets:
            store = self._stores.get(offset.partition)
            if store is None:
                raise unknown_partition(offset.partition)
            if not 0 <= offset.offset <= store.high_watermark:
                raise OffsetOutOfRange(
                    f"offset {offset.offset} of {store.topic}-{store.index} for group {name!r} is not within "
                    f"0 to {store.high_watermark}, the end of what can be read; nothing has changed",
                    0,
                    store.high_watermark,
                )
            if len(offset.metadata) > self._settings.max_offset_metadata:
                raise LimitExceeded(
                    f"metadata of {len(offset.metadata)} characters, the limit is "
                    f"{self._settings.max_offset_metadata} (max_offset_metadata); nothing has changed"
                )
            self._groups.check_generation(name, offset)

    def check_free(self, name: str, offset: PartitionOffset) -> None:
        """Raise ``GenerationFenced`` or ``OffsetPending`` unless the group may be moved there now."""
        self._groups.check_generation(name, offset)
        holder = self._groups.holder(name, offset.partition)
        if holder is not None:
            raise OffsetPending(
                f"the position of group {name!r} in partition {offset.partition} is held by the prepared "
                f"transaction {self.describe(holder)}; nothing has changed. Commit it or roll it back first"
            )

    def _check_room(self, name: str, partitions: Iterable[int]) -> None:
        """Raise for a bad name, and for a new group or new positions over a limit or on a full disk."""
        known = self._groups.groups.get(name)
        if known is None:
            check_name("group", name)
            if len(self._groups.groups) >= self._settings.max_groups:
                raise LimitExceeded(
                    f"there are {len(self._groups.groups)} groups, the limit is {self._settings.max_groups} "
                    "(max_groups); nothing has changed. Delete one"
                )
        fresh = {number for number in partitions if known is None or number not in known}
        if not fresh:
            return
        if self._engine.full:
            raise disk_full()
        total = self._groups.pairs + len(fresh)
        if total > self._settings.max_group_positions:
            raise LimitExceeded(
                f"{total} positions of groups in partitions, the limit is {self._settings.max_group_positions} "
                "(max_group_positions); nothing has changed. Delete a group"
            )

    def describe(self, number: TransactionNumber) -> str:
        """A transaction's number and xid, for people."""
        known = self._engine.transactions.live.get(number)
        return f"{number} (xid {known.xid})" if known is not None and known.xid is not None else str(number)

    # -- commands ---------------------------------------------------------------------------------

    def commit_offsets(self, session: Session, command: CommitOffsets, data: memoryview) -> Done:  # noqa: ARG002
        """Move a group's positions."""
        self.judge(command.group, command.offsets)
        for offset in command.offsets:
            self.check_free(command.group, offset)
        self._engine.accept(OffsetsCommitted(command.group, command.offsets, self._engine.now()))
        return Done(command.correlation)

    def fetch_offsets(
        self,
        session: Session,  # noqa: ARG002
        command: FetchOffsets,
        data: memoryview,  # noqa: ARG002
    ) -> GroupOffsets:
        """A group's positions, and who holds which."""
        check_name("group", command.group)
        group = self._groups.find(command.group)
        holders = self._groups.holders(command.group)
        wanted = command.partitions
        if wanted is None:
            wanted = sorted(group.partitions() | holders.keys())
        for number in wanted:
            if number not in self._stores:
                raise unknown_partition(number)
        offsets = [self._position(group, number, holders.get(number)) for number in wanted]
        return GroupOffsets(command.correlation, offsets)

    def _position(self, group: Group, partition: int, holder: TransactionNumber | None) -> GroupOffset:
        offset, metadata = group.positions.get(partition, (None, ""))
        pending = "" if holder is None else self.describe(holder)
        return GroupOffset(partition, offset, group.generation(partition), metadata, pending)

    def claim(self, session: Session, command: ClaimPartitions, data: memoryview) -> Claimed:  # noqa: ARG002
        """Take partitions for a member. One that a transaction holds can be claimed: its offset says pending."""
        check_name("member", command.member)
        partitions = list(dict.fromkeys(command.partitions))
        if not partitions:
            raise InvalidSetting(f"no partitions to claim for group {command.group!r}; nothing has changed")
        self._check_room(command.group, partitions)
        for number in partitions:
            if number not in self._stores:
                raise unknown_partition(number)
        generation = self._groups.last_generation + 1
        claims = [(number, generation) for number in partitions]
        self._engine.accept(PartitionsClaimed(command.group, command.member, claims, self._engine.now()))
        return Claimed(command.correlation, claims)

    def list_groups(self, session: Session, command: ListGroups, data: memoryview) -> Groups:  # noqa: ARG002
        """Every group with its lag."""
        names = sorted(self._groups.groups)
        return Groups(command.correlation, [GroupInfo(name, self._lags(name)) for name in names])

    def _lags(self, name: str) -> list[tuple[str, int, int, int]]:
        stores = self._stores
        positions = [
            (stores[number].topic, stores[number].index, offset, stores[number].high_watermark - offset)
            for number, (offset, _) in self._groups.groups[name].positions.items()
        ]
        return sorted(positions)

    def delete(self, session: Session, command: DeleteGroup, data: memoryview) -> Done:  # noqa: ARG002
        """Delete a group unless an undecided transaction will move it."""
        if command.group not in self._groups.groups:
            raise UnknownGroup(f"there is no group {command.group!r}; nothing has changed")
        if holder := next(iter(self._groups.holders(command.group).values()), None):
            raise OffsetPending(
                f"group {command.group!r} is held by the prepared transaction {self.describe(holder)}; "
                "nothing has changed. Commit it or roll it back first"
            )
        self._engine.accept(GroupDeleted(command.group, self._engine.now()))
        return Done(command.correlation)

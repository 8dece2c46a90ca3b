"""The fold of consumer groups: what each has finished in which partition, its claims, and what transactions settle.

A group's state in a partition is its position, below which everything is finished, and a
:class:`~journal.folds.settlement.Settlement` where there is more to say. What a transaction settles is staged when
added, and applied when it commits. From prepare to outcome nobody else may touch it (:mod:`journal.folds.holds`). A
generation is one number for the whole broker and only grows, so a consumer of a deleted and remade group stays fenced.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, KeysView, Sequence
from typing import Any

import msgspec
from msgspec.structs import replace
from zope.interface import implementer

from journal.errors import GenerationFenced
from journal.folds.group import Claim, Group, GroupCopy, GroupRow, check_row, copied, durable_groups, restored
from journal.folds.holds import Held, Pair, Reach, by_pair, reach_of
from journal.folds.partition_ranges import PartitionRanges, RangeRow
from journal.folds.settlement import check_extent
from journal.formats.checkpoint_rows import Count, Fact, RowReader
from journal.formats.offset_set_bytes import decode_offsets
from journal.interfaces import ICommitFold
from journal.records.group_entries import GroupPositions, GroupSettings, PartitionOffset, Settled
from journal.records.queue_entries import QUEUE_GROUP, QUEUE_GROUP_ID
from journal.records.record import (
    GroupAltered,
    GroupDeleted,
    OffsetsCommitted,
    PartitionsClaimed,
    Started,
    TopicAltered,
    TopicCreated,
    TopicDeleted,
    TransactionCommitted,
    TransactionOffsetsAdded,
    TransactionPrepared,
    TransactionRolledBack,
)
from journal.records.transient import durable_positions
from journal.transaction_states import TransactionNumber
from journal.transactions.pending_offset import PendingOffset


class HeadRow(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """The first row of a checkpoint: how many groups follow; then come the transactions' offsets."""

    last_generation: int
    ranges: list[RangeRow]
    groups: Count


class StagedRow(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """What an undecided transaction settles, in the order in which it was added."""

    session: int
    serial: int
    prepared: bool
    positions: list[GroupPositions]


_NOBODY = Group(b"")
_NEVER_EXPIRES = GroupSettings(expiry=0)
_NO_HOLDS: dict[int, Held] = {}


@implementer(ICommitFold)
class GroupsFold:
    """Every group, and what undecided transactions settle."""

    name = "groups"
    handles: tuple[type, ...] = (
        Started,
        TopicCreated,
        TopicAltered,
        TopicDeleted,
        OffsetsCommitted,
        PartitionsClaimed,
        GroupAltered,
        GroupDeleted,
        TransactionOffsetsAdded,
        TransactionPrepared,
        TransactionCommitted,
        TransactionRolledBack,
    )

    def __init__(self) -> None:
        self.groups: dict[str, Group] = {}
        self.last_generation = 0
        self.pairs = 0
        """How many pairs of a group and a partition there are."""
        self.changed_lsn = 0
        """The LSN of the last record that claimed partitions, deleted a group, or ended the holds of a transaction."""
        self.on_settled: Callable[[str, Iterable[int]], None] | None = None
        """Called with a group and partitions when a record has changed what is finished or held there."""
        self.on_queues: Callable[[Iterable[int], int], object] | None = None
        """Called with partitions of queues when a record has changed what is finished or held there, and with the
        session of the transaction whose record it is, 0 for none.
        """
        self.on_claimed: Callable[[str, Iterable[int]], None] | None = None
        """Called with a group and partitions when a record has changed whose they are."""
        self.on_dead: Callable[[str, int, int], None] | None = None
        """Called with a group, a partition and an offset that a record says is to go to the dead-letter topic."""
        self._lsn = self._session = 0
        self._staged: dict[TransactionNumber, list[GroupPositions]] = {}
        self._held: dict[str, dict[int, Held]] = {}
        self._prepared: dict[TransactionNumber, None] = {}
        self._ranges = PartitionRanges()

    # -- judging ----------------------------------------------------------------------------------

    def find(self, name: str) -> Group:
        """Return the group; an empty one that is not kept if there is none."""
        return self.groups.get(name, _NOBODY)

    def check_generation(self, group: str, offset: PartitionOffset | Settled) -> None:
        """Raise :class:`GenerationFenced` unless the offset comes from the consumer that has the partition now."""
        current = self.find(group).generation(offset.partition)
        if offset.generation == current:
            return
        if current:
            member = self.find(group).claims[offset.partition].member
            now = f"generation {current} ({member!r}) has claimed it"
        else:
            now = "no generation has claimed it (the group may have been deleted)"
        raise GenerationFenced(
            f"partition {offset.partition} for group {group!r} from generation {offset.generation}: {now}; "
            "no offset has moved. Stop reading, or claim the partition"
        )

    def conflict(
        self, positions: Sequence[GroupPositions], number: TransactionNumber | None = None
    ) -> PendingOffset | None:
        """Return an offset that these touch and a prepared transaction holds; see :class:`ICommitFold`."""
        if not self._held:
            return None
        if number is not None:
            positions = [*self.staged(number), *positions]
        for (name, partition), reach in self._reaches(positions).items():
            if found := self._touched(name, partition, reach):
                return found
        return None

    def _touched(self, name: str, partition: int, reach: Reach) -> PendingOffset | None:
        held = self.held(name, partition)
        if held is None:
            return None
        if reach.below and held.below:  # both move the position, which stands for what the mover holds below
            assert held.mover is not None
            return PendingOffset(name, partition, self.find(name).position(partition) or 0, held.mover)
        offset = held.touched(reach)
        if offset is None:
            return None
        return PendingOffset(name, partition, offset, self._holder_of(held, name, partition, offset))

    def _holder_of(self, held: Held, name: str, partition: int, offset: int) -> TransactionNumber:
        """Return the transaction that holds that offset."""
        for number in held.candidates(offset):
            reach = self._reaches(self._staged[number]).get((name, partition))
            if reach is not None and offset in reach.offsets:
                return number
        assert held.mover is not None
        return held.mover

    def held(self, group: str, partition: int) -> Held | None:
        """Return what prepared transactions hold of the partition for the group; None if nothing."""
        return self._held.get(group, _NO_HOLDS).get(partition)

    def holder(self, group: str, partition: int) -> TransactionNumber | None:
        """Return the transaction that was prepared first of those that hold offsets there, if there is one."""
        held = self.held(group, partition)
        return None if held is None else next(iter(held.holders))

    def holders(self, group: str) -> dict[int, TransactionNumber]:
        """Return the same for each partition of which offsets are held for the group."""
        return {partition: next(iter(held.holders)) for partition, held in self._held.get(group, {}).items()}

    def staged(self, number: TransactionNumber) -> list[GroupPositions]:
        """Return what an undecided transaction settles, in the order in which it was added."""
        return self._staged.get(number, [])

    def concerned(self) -> KeysView[TransactionNumber]:
        """Return the transactions whose commit moves offsets; see :class:`ICommitFold`."""
        return self._staged.keys()

    # -- folding ----------------------------------------------------------------------------------

    def apply(self, lsn: int, record: Any, data: bytes | memoryview) -> None:  # noqa: ARG002
        """Apply one record to the state."""
        self._lsn = lsn
        _APPLY[type(record)](self, record)

    def _started(self, record: Started) -> None:  # noqa: ARG002
        """Drop what active transactions staged, which ended with the start before; prepared ones continue."""
        self._staged = {n: positions for n, positions in self._staged.items() if n in self._prepared}

    def _topic_deleted(self, record: TopicDeleted) -> None:
        gone = self._ranges.delete(record)
        for group in self.groups.values():
            for partition in gone:  # one group may have thousands: only those that go are looked at
                self.pairs -= partition in group
                group.positions.pop(partition, None)
                group.claims.pop(partition, None)
                group.settlements.pop(partition, None)
        for name, held in list(self._held.items()):
            for partition in [each for each in held if each in gone]:
                self._let_go(name, partition)
        for number, positions in self._staged.items():
            self._staged[number] = _without(positions, gone)

    def _count(self) -> None:
        self.pairs = sum(len(group.partitions()) for group in self.groups.values())

    def _offsets_committed(self, record: OffsetsCommitted) -> None:
        if record.settled:
            check_extent(record.settled)
        if self._held:
            self._assert_free([GroupPositions(record.group, record.id, record.offsets, record.settled)])
        self._move(record.group, record.id, record.offsets, record.settled, record.at)

    def _group(self, name: str, group_id: bytes) -> Group:
        """Return the group; a new one with that id if there is none."""
        group = self.groups.get(name)
        if group is None:
            group = self.groups[name] = Group(QUEUE_GROUP_ID if name == QUEUE_GROUP else group_id)
        return group

    def _move(
        self,
        name: str,
        group_id: bytes,
        offsets: Iterable[PartitionOffset],
        settled: Sequence[Settled],
        at: int,
    ) -> None:
        """Commit positions, then settle offsets."""
        group = self._group(name, group_id)
        group.used = at
        positions, claims, settlements = group.positions, group.claims, group.settlements
        for offset in offsets:
            partition = offset.partition
            if partition not in positions and partition not in claims:  # as Group does, without the call
                self.pairs += 1
            if settlements:
                group.move(offset)
            else:
                positions[partition] = (offset.offset, offset.metadata)
        if settled:
            self._settle(name, group, settled)
        group.changed_lsn = self._lsn
        if self.on_settled is not None:
            self.on_settled(name, [each.partition for each in offsets])
            self.on_settled(name, [each.partition for each in settled])
        if self.on_queues is not None and name == QUEUE_GROUP:
            self.on_queues([each.partition for each in settled], self._session)

    def _tell_claimed(self, name: str, partitions: Iterable[int]) -> None:
        self.changed_lsn = self._lsn
        if self.on_claimed is not None:
            self.on_claimed(name, partitions)
        if self.on_settled is not None:
            self.on_settled(name, partitions)

    def _settle(self, name: str, group: Group, settled: Sequence[Settled]) -> None:
        for each in settled:
            self.pairs += each.partition not in group
            group.settle(each)
            if self.on_dead is not None:
                for unfinished in each.unfinished:
                    if unfinished.is_dead:
                        self.on_dead(name, each.partition, unfinished.offset)

    def _claimed(self, record: PartitionsClaimed) -> None:
        check_extent(record.settled)
        if self._held and record.settled:
            self._assert_free([GroupPositions(record.group, record.id, [], record.settled)])
        group = self._group(record.group, record.id)
        assert group.may_be_claimed(record.kind), f"{record} mixes claims for members with others"
        for partition, generation in record.claims:
            assert generation > group.generation(partition), f"{record} goes back"
            self.pairs += partition not in group
            group.claims[partition] = Claim(generation, record.member, record.kind)
            self.last_generation = max(self.last_generation, generation)
        group.used = record.at
        self._settle(record.group, group, record.settled)
        self._tell_claimed(record.group, [partition for partition, _ in record.claims])

    def _altered(self, record: GroupAltered) -> None:
        assert record.id or record.group in self.groups, f"{record} has no id for a group that it makes"
        group = self._group(record.group, record.id)
        group.settings, group.used = record.settings, record.at
        group.changed_lsn = self._lsn

    def _deleted(self, record: GroupDeleted) -> None:
        assert record.group not in self._held, f"transactions hold offsets of group {record.group!r}"
        partitions = self.groups.pop(record.group).partitions()
        self.pairs -= len(partitions)
        self._tell_claimed(record.group, partitions)

    def _added(self, record: TransactionOffsetsAdded) -> None:
        check_extent(record.settled)
        for each in record.settled:
            decode_offsets(each.finished, each.base)  # raises for what could not be applied later
        entries = self._staged.setdefault(TransactionNumber(record.session, record.serial), [])
        entries.append(GroupPositions(record.group, record.id, record.offsets, record.settled))

    def _prepare(self, record: TransactionPrepared) -> None:
        if not record.positions and not self._staged:
            return  # most transactions move no offsets
        number = TransactionNumber(record.session, record.serial)
        if record.positions:
            check_extent(_settled_in(record.positions))
            self._staged.setdefault(number, []).extend(record.positions)
        if number not in self._staged:
            return
        if self._held:
            self._assert_free(self._staged[number])
        self._hold(number)

    def _hold(self, number: TransactionNumber) -> None:
        """Let a prepared transaction hold what it has staged."""
        self._prepared[number] = None
        for (name, partition), reach in self._reaches(self._staged[number]).items():
            if reach.below or reach.offsets:
                self._held.setdefault(name, {}).setdefault(partition, Held()).take(number, reach)
            if self.on_queues is not None and name == QUEUE_GROUP:
                self.on_queues([partition], number.session)

    def _commit(self, record: TransactionCommitted) -> None:
        positions: Sequence[GroupPositions] = record.positions if record.settles else ()
        if positions and (settled := _settled_in(positions)):
            check_extent(settled)
        if self._staged:
            positions = [*self._release(TransactionNumber(record.session, record.serial)), *positions]
        if positions and self._held:
            self._assert_free(positions)
        self._session = record.session
        for each in positions:
            self._move(each.group, each.id, each.offsets, each.settled, record.at)
        self._session = 0

    def _assert_free(self, positions: Sequence[GroupPositions]) -> None:
        """Assert what was judged before the record was made: no other transaction holds any of it."""
        pending = self.conflict(positions)
        assert pending is None, (
            f"it settles offset {pending.offset} of group {pending.group!r} in partition number "
            f"{pending.partition}, and transaction {pending.holder} holds it"
        )

    def _roll_back(self, record: TransactionRolledBack) -> None:
        self._release(TransactionNumber(record.session, record.serial))

    def _release(self, number: TransactionNumber) -> Sequence[GroupPositions]:
        positions = self._staged.pop(number, [])
        if number in self._prepared:
            del self._prepared[number]
            for (name, partition), reach in self._reaches(positions).items():
                held = self.held(name, partition)
                if held is not None:
                    held.release(number, reach)
                    if not held.holders:
                        self._let_go(name, partition)
                self.changed_lsn = self._lsn
                if self.on_settled is not None:
                    self.on_settled(name, [partition])
                if self.on_queues is not None and name == QUEUE_GROUP:
                    self.on_queues([partition], number.session)
        return positions

    def _let_go(self, name: str, partition: int) -> None:
        del self._held[name][partition]
        if not self._held[name]:
            del self._held[name]

    def _reaches(self, positions: Iterable[GroupPositions]) -> dict[Pair, Reach]:
        """Return what these entries of one transaction touch, by group and partition."""
        return {
            (name, partition): reach_of(self.find(name).position(partition), *entries)
            for (name, partition), entries in by_pair(positions).items()
        }

    def _topic_created(self, record: TopicCreated) -> None:
        self._ranges.create(record)
        if record.queue is not None:
            group = self._group(QUEUE_GROUP, QUEUE_GROUP_ID)
            group.settings, group.used = _NEVER_EXPIRES, record.at
            for number in range(record.first_partition, record.first_partition + record.partitions):
                group.positions[number] = (0, "")
            self.pairs += record.partitions

    def _topic_altered(self, record: TopicAltered) -> None:
        self._ranges.alter(record)

    # -- checkpoints ------------------------------------------------------------------------------

    def snapshot(self) -> Iterator[Any]:
        """Return the counts, then one row per group, then one per transaction; taken at once.

        Sets of finished offsets are copied by reference, and encoded when their rows are drawn.
        """
        groups = durable_groups(self.groups)
        rows: list[Any] = [HeadRow(self.last_generation, self._ranges.rows(), len(groups))]
        rows += [copied(name, group) for name, group in groups.items()]
        active = [number for number in self._staged if number not in self._prepared]
        for number in [*self._prepared, *active]:
            rows.append(StagedRow(*number, number in self._prepared, durable_positions(self._staged[number])))
        return (each.as_row() if isinstance(each, GroupCopy) else each for each in rows)

    @staticmethod
    def read(rows: RowReader) -> None:
        """Read the rows of a checkpoint."""
        for _ in range(rows.take(HeadRow).groups):
            rows.take(GroupRow, check_row)
        while rows.left:
            rows.take(StagedRow, _check_staged)

    def facts(self) -> Iterator[tuple[Fact, object]]:
        """Yield the facts of each group, and what each undecided transaction settles."""
        yield Fact("the last generation"), self.last_generation
        for name, group in durable_groups(self.groups).items():
            yield Fact(f"the id of group {name!r}"), group.id.hex()
            yield Fact(f"the settings of group {name!r}"), group.settings
            yield Fact(f"when group {name!r} was used last"), group.used
            for what, values in (
                ("position (offset, metadata)", group.positions),
                ("claim (generation, member, kind)", group.claims),
                ("finished offsets", {p: each.finished for p, each in group.settlements.items()}),
                ("details of unfinished offsets", {p: each.unfinished for p, each in group.settlements.items()}),
            ):  # fmt: skip
                for partition, value in values.items():
                    yield (
                        Fact(f"the {what} of group {name!r} in partition number {partition}", partition),
                        value,
                    )
        for number, positions in self._staged.items():
            if kept := durable_positions(positions):
                held = "prepared" if number in self._prepared else "active"
                yield Fact(f"what transaction {number} moves"), (held, kept)

    def restore(self, rows: Iterable[Any]) -> None:
        """Replace the state by the rows of a :meth:`snapshot`."""
        self.__init__()  # type: ignore[misc]
        head, *others = rows
        self.last_generation, self._ranges = head.last_generation, PartitionRanges(head.ranges)
        for row in others[: head.groups]:
            self.groups[row.name] = restored(row)
        self._count()
        for row in others[head.groups :]:
            number = TransactionNumber(row.session, row.serial)
            self._staged[number] = list(row.positions)
            if row.prepared:
                self._hold(number)


def _settled_in(positions: Iterable[GroupPositions]) -> list[Settled]:
    return [settled for each in positions if each.settled for settled in each.settled]


def _without(positions: Iterable[GroupPositions], gone: frozenset[int]) -> list[GroupPositions]:
    """Return the entries for other partitions than those that are gone."""
    left = [
        replace(
            each,
            offsets=[offset for offset in each.offsets if offset.partition not in gone],
            settled=[settled for settled in each.settled if settled.partition not in gone],
        )
        for each in positions
    ]
    return [each for each in left if each.offsets or each.settled]


def _check_staged(row: StagedRow) -> None:
    """Raise :class:`InvalidFrame` for a set of offsets that is no encoded one."""
    for positions in row.positions:
        for each in positions.settled:
            decode_offsets(each.finished, each.base)


_APPLY: dict[type, Any] = {
    Started: GroupsFold._started,
    TopicCreated: GroupsFold._topic_created,
    TopicAltered: GroupsFold._topic_altered,
    TopicDeleted: GroupsFold._topic_deleted,
    OffsetsCommitted: GroupsFold._offsets_committed,
    PartitionsClaimed: GroupsFold._claimed,
    GroupAltered: GroupsFold._altered,
    GroupDeleted: GroupsFold._deleted,
    TransactionOffsetsAdded: GroupsFold._added,
    TransactionPrepared: GroupsFold._prepare,
    TransactionCommitted: GroupsFold._commit,
    TransactionRolledBack: GroupsFold._roll_back,
}
assert set(_APPLY) == set(GroupsFold.handles)

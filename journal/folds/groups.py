"""The fold of consumer groups: their positions, the claims of partitions, and the positions that transactions hold.

Offsets inside a transaction are staged when added, hold their (group, partition) from prepare to outcome, and move the
group when the transaction commits. A generation is one number for the whole broker and only grows, so a consumer of a
deleted and remade group stays fenced.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, KeysView, Mapping, Sequence
from typing import Any, NamedTuple

import msgspec
from zope.interface import implementer

from journal.errors import GenerationFenced
from journal.folds.partition_ranges import PartitionRanges, RangeRow
from journal.formats.checkpoint_rows import Count, Fact, RowReader
from journal.formats.record import (
    GroupDeleted,
    OffsetsCommitted,
    PartitionOffset,
    PartitionsClaimed,
    Started,
    TopicCreated,
    TopicDeleted,
    TransactionCommitted,
    TransactionOffsetsAdded,
    TransactionPrepared,
    TransactionRolledBack,
)
from journal.interfaces import ICommitFold
from journal.transaction_states import TransactionNumber


class Staged(NamedTuple):
    """An offset that a transaction carries; ``id`` is the group's id if the commit makes the group."""

    group: str
    id: bytes
    offset: PartitionOffset


class Group:
    """A group: (offset, metadata) and (generation, member) by partition. ``id`` distinguishes it from others of
    its name.
    """

    __slots__ = ("claims", "id", "positions")

    def __init__(self, group_id: bytes) -> None:
        self.id = group_id
        self.positions: dict[int, tuple[int, str]] = {}
        self.claims: dict[int, tuple[int, str]] = {}

    def __contains__(self, partition: int) -> bool:
        return partition in self.positions or partition in self.claims

    def generation(self, partition: int) -> int:
        """Return the generation that may commit there; 0 if no consumer has claimed it."""
        claim = self.claims.get(partition)
        return claim[0] if claim else 0

    def partitions(self) -> set[int]:
        """Return every partition that the group has a position in or has claimed."""
        return {*self.positions, *self.claims}


class HeadRow(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """The first row of a checkpoint: how many groups follow; then come the transactions' offsets."""

    last_generation: int
    ranges: list[RangeRow]
    groups: Count


class GroupRow(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """A :class:`Group` in a checkpoint: (partition, offset, metadata) and (partition, generation, member)."""

    name: str
    id: bytes
    positions: list[tuple[int, int, str]]
    claims: list[tuple[int, int, str]]


class StagedRow(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """The offsets of an undecided transaction: (group, id for a new one, partition, offset, generation, metadata)."""

    session: int
    serial: int
    prepared: bool
    offsets: list[tuple[str, bytes, int, int, int, str]]


_NOBODY = Group(b"")
_NONE: Mapping[int, TransactionNumber] = {}


@implementer(ICommitFold)
class GroupsFold:
    """Every group, and the offsets that undecided transactions carry."""

    name = "groups"
    handles: tuple[type, ...] = (
        Started,
        TopicCreated,
        TopicDeleted,
        OffsetsCommitted,
        PartitionsClaimed,
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
        self._staged: dict[TransactionNumber, list[Staged]] = {}
        self._held: dict[str, dict[int, TransactionNumber]] = {}
        self._prepared: set[TransactionNumber] = set()
        self._ranges = PartitionRanges()

    # -- judging ----------------------------------------------------------------------------------

    def find(self, name: str) -> Group:
        """Return the group; an empty one that is not kept if there is none."""
        return self.groups.get(name, _NOBODY)

    def check_generation(self, group: str, offset: PartitionOffset) -> None:
        """Raise :class:`GenerationFenced` unless the offset comes from the consumer that has the partition now."""
        current = self.find(group).generation(offset.partition)
        if offset.generation == current:
            return
        if current:
            member = self.find(group).claims[offset.partition][1]
            now = f"generation {current} ({member!r}) has claimed it"
        else:
            now = "no generation has claimed it (the group may have been deleted)"
        raise GenerationFenced(
            f"partition {offset.partition} for group {group!r} from generation {offset.generation}: {now}; "
            "no offset has moved. Stop reading, or claim the partition"
        )

    def holder(self, group: str, partition: int) -> TransactionNumber | None:
        """Return the prepared transaction that will move the group there, if there is one."""
        return self.holders(group).get(partition)

    def holders(self, group: str) -> Mapping[int, TransactionNumber]:
        """Return all holders of a group, by partition."""
        return self._held.get(group, _NONE)

    def staged(self, number: TransactionNumber) -> list[Staged]:
        """Return the offsets of an undecided transaction, in the order in which they were added."""
        return self._staged.get(number, [])

    def concerned(self) -> KeysView[TransactionNumber]:
        """Return the transactions whose commit moves offsets; see :class:`ICommitFold`."""
        return self._staged.keys()

    # -- folding ----------------------------------------------------------------------------------

    def apply(self, lsn: int, record: Any, data: bytes | memoryview) -> None:  # noqa: ARG002
        """Apply one record to the state."""
        _APPLY[type(record)](self, record)

    def _started(self, record: Started) -> None:  # noqa: ARG002
        """Drop the offsets of active transactions, which ended with the start before; prepared ones continue."""
        self._staged = {n: offsets for n, offsets in self._staged.items() if n in self._prepared}

    def _topic_deleted(self, record: TopicDeleted) -> None:
        gone = self._ranges.delete(record)
        for group in self.groups.values():
            if any(partition in gone for partition in group.partitions()):
                self.pairs -= len(group.partitions())
                group.positions = {p: value for p, value in group.positions.items() if p not in gone}
                group.claims = {p: value for p, value in group.claims.items() if p not in gone}
                self.pairs += len(group.partitions())
        for held in self._held.values():
            for partition in [each for each in held if each in gone]:
                del held[partition]
        for number, offsets in self._staged.items():
            self._staged[number] = [each for each in offsets if each.offset.partition not in gone]

    def _count(self) -> None:
        self.pairs = sum(len(group.partitions()) for group in self.groups.values())

    def _offsets_committed(self, record: OffsetsCommitted) -> None:
        self._move(record.group, record.id, record.offsets)

    def _group(self, name: str, group_id: bytes) -> Group:
        """Return the group; a new one with that id if there is none."""
        group = self.groups.get(name)
        if group is None:
            group = self.groups[name] = Group(group_id)
        return group

    def _move(self, name: str, group_id: bytes, offsets: Iterable[PartitionOffset]) -> None:
        group = self._group(name, group_id)
        for offset in offsets:
            self.pairs += offset.partition not in group
            group.positions[offset.partition] = (offset.offset, offset.metadata)

    def _claimed(self, record: PartitionsClaimed) -> None:
        group = self._group(record.group, record.id)
        for partition, generation in record.claims:
            assert generation > group.generation(partition), f"{record} goes back"
            self.pairs += partition not in group
            group.claims[partition] = (generation, record.member)
            self.last_generation = max(self.last_generation, generation)

    def _deleted(self, record: GroupDeleted) -> None:
        self.pairs -= len(self.groups.pop(record.group).partitions())

    def _added(self, record: TransactionOffsetsAdded) -> None:
        entries = self._staged.setdefault(TransactionNumber(record.session, record.serial), [])
        entries.extend(Staged(record.group, record.id, offset) for offset in record.offsets)

    def _prepare(self, record: TransactionPrepared) -> None:
        if not record.positions and not self._staged:
            return  # most transactions move no offsets
        number = TransactionNumber(record.session, record.serial)
        for each in record.positions:
            entries = self._staged.setdefault(number, [])
            entries.extend(Staged(each.group, each.id, offset) for offset in each.offsets)
        if number not in self._staged:
            return
        self._prepared.add(number)
        for group, _, offset in self._staged[number]:
            self._check_free(number, group, offset)
            self._held.setdefault(group, {})[offset.partition] = number

    def _commit(self, record: TransactionCommitted) -> None:
        if self._staged:
            for group, group_id, offset in self._release(TransactionNumber(record.session, record.serial)):
                self._move(group, group_id, (offset,))
        for each in record.positions:
            number = TransactionNumber(record.session, record.serial)
            for offset in each.offsets:
                self._check_free(number, each.group, offset)
            self._move(each.group, each.id, each.offsets)

    def _check_free(self, number: TransactionNumber, group: str, offset: PartitionOffset) -> None:
        """Assert what was judged before the record was made: no other transaction holds the position."""
        holder = self.holder(group, offset.partition)
        assert holder is None or holder == number, (
            f"transaction {number} moves group {group!r} in partition number {offset.partition}, and "
            f"transaction {holder} holds it"
        )

    def _roll_back(self, record: TransactionRolledBack) -> None:
        self._release(TransactionNumber(record.session, record.serial))

    def _release(self, number: TransactionNumber) -> Sequence[Staged]:
        offsets = self._staged.pop(number, [])
        if number in self._prepared:
            self._prepared.remove(number)
            for group, _, offset in offsets:
                held = self._held.get(group, {})
                held.pop(offset.partition, None)
                if not held:
                    self._held.pop(group, None)
        return offsets

    def _topic_created(self, record: TopicCreated) -> None:
        self._ranges.create(record)

    def snapshot(self) -> Iterator[Any]:
        """Return the counts, then one row per group, then one per transaction; taken at once."""
        rows: list[Any] = [HeadRow(self.last_generation, self._ranges.rows(), len(self.groups))]
        for name, group in self.groups.items():
            positions = [(partition, *value) for partition, value in group.positions.items()]
            claims = [(partition, *value) for partition, value in group.claims.items()]
            rows.append(GroupRow(name, group.id, positions, claims))
        for number, offsets in self._staged.items():
            entries = [
                (group, group_id, o.partition, o.offset, o.generation, o.metadata)
                for group, group_id, o in offsets
            ]
            rows.append(StagedRow(*number, number in self._prepared, entries))
        return iter(rows)

    @staticmethod
    def read(rows: RowReader) -> None:
        """Read the rows of a checkpoint."""
        for _ in range(rows.take(HeadRow).groups):
            rows.take(GroupRow)
        rows.rest(StagedRow)

    def facts(self) -> Iterator[tuple[Fact, object]]:
        """Yield the facts of each group, and the offsets that each undecided transaction carries."""
        yield Fact("the last generation"), self.last_generation
        for name, group in self.groups.items():
            yield Fact(f"the id of group {name!r}"), group.id.hex()
            for what, values in (
                ("position (offset, metadata)", group.positions),
                ("claim (generation, member)", group.claims),
            ):
                for partition, value in values.items():
                    yield (
                        Fact(f"the {what} of group {name!r} in partition number {partition}", partition),
                        value,
                    )
        for number, offsets in self._staged.items():
            if offsets:
                held = "prepared" if number in self._prepared else "active"
                yield Fact(f"what transaction {number} moves"), (held, offsets)

    def restore(self, rows: Iterable[Any]) -> None:
        """Replace the state by the rows of a :meth:`snapshot`."""
        self.__init__()  # type: ignore[misc]
        head, *others = rows
        self.last_generation, self._ranges = head.last_generation, PartitionRanges(head.ranges)
        for row in others[: head.groups]:
            group = self.groups[row.name] = Group(row.id)
            group.positions = {partition: (offset, metadata) for partition, offset, metadata in row.positions}
            group.claims = {partition: (generation, member) for partition, generation, member in row.claims}
        self._count()
        for row in others[head.groups :]:
            number = TransactionNumber(row.session, row.serial)
            self._staged[number] = [
                Staged(group, group_id, PartitionOffset(*offset)) for group, group_id, *offset in row.offsets
            ]
            if row.prepared:
                self._prepared.add(number)
                for name, _, staged in self._staged[number]:
                    self._held.setdefault(name, {})[staged.partition] = number


_APPLY: dict[type, Any] = {
    Started: GroupsFold._started,
    TopicCreated: GroupsFold._topic_created,
    TopicDeleted: GroupsFold._topic_deleted,
    OffsetsCommitted: GroupsFold._offsets_committed,
    PartitionsClaimed: GroupsFold._claimed,
    GroupDeleted: GroupsFold._deleted,
    TransactionOffsetsAdded: GroupsFold._added,
    TransactionPrepared: GroupsFold._prepare,
    TransactionCommitted: GroupsFold._commit,
    TransactionRolledBack: GroupsFold._roll_back,
}
assert set(_APPLY) == set(GroupsFold.handles)

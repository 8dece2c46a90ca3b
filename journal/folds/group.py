"""A consumer group, in memory and in a checkpoint."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NamedTuple

import msgspec
from msgspec.structs import replace

from journal.errors import InvalidFrame
from journal.folds.settlement import Settlement
from journal.formats.offset_set_bytes import MAX_AHEAD, decode_pieces, encode_pieces
from journal.log.compaction import Unread
from journal.offset_set import OffsetSet
from journal.records.group_entries import (
    NO_SETTINGS,
    ClaimKind,
    GroupSettings,
    PartitionOffset,
    Settled,
    Unfinished,
)
from journal.records.queue_entries import QUEUE_GROUP
from journal.records.transient import is_transient


class Claim(NamedTuple):
    """A partition's claim: the generation that may commit there, whose it is, and how it was claimed."""

    generation: int
    member: str
    kind: ClaimKind = ClaimKind.CONSUMER


class Group:
    """A group: (offset, metadata), claims and what else is settled, by partition. ``id`` distinguishes it from others
    of its name.
    """

    __slots__ = ("changed_lsn", "claims", "id", "positions", "settings", "settlements", "used")

    def __init__(self, group_id: bytes) -> None:
        self.id = group_id
        self.changed_lsn = 0
        """The LSN of the last record that moved, settled or altered something; 0 if it is in a checkpoint."""
        self.positions: dict[int, tuple[int, str]] = {}
        self.claims: dict[int, Claim] = {}
        self.settlements: dict[int, Settlement] = {}
        """Of partitions with a position, and with more to say than that."""
        self.settings = NO_SETTINGS
        self.used = 0
        """The journal time of the last record that made, altered, moved, settled or claimed something of it."""

    def __contains__(self, partition: int) -> bool:
        return partition in self.positions or partition in self.claims

    def generation(self, partition: int) -> int:
        """Return the generation that may commit there; 0 if no consumer has claimed it."""
        claim = self.claims.get(partition)
        return claim.generation if claim else 0

    def may_be_claimed(self, kind: ClaimKind) -> bool:
        """Return whether claims of that kind go with those that are there, of which any stands for all."""
        claim = next(iter(self.claims.values()), None)
        return claim is None or claim.kind.is_for_member == kind.is_for_member

    def partitions(self) -> set[int]:
        """Return every partition that the group has a position in or has claimed."""
        return {*self.positions, *self.claims}

    def position(self, partition: int) -> int | None:
        """Return the lowest unfinished offset; None if the group has finished nothing there and begun nowhere."""
        place = self.positions.get(partition)
        return None if place is None else place[0]

    def move(self, offset: PartitionOffset) -> None:
        """Commit a position: everything below it is finished. One that goes back drops all that is known above it."""
        partition, position = offset.partition, offset.offset
        settlement = self.settlements.get(partition)
        if settlement is not None:
            if position < self.positions[partition][0]:
                del self.settlements[partition]
            else:
                position = settlement.finish_below(position)
                self._keep(partition, settlement)
        self.positions[partition] = (position, offset.metadata)

    def settle(self, settled: Settled) -> None:
        """Finish offsets, and note what is said of unfinished ones."""
        partition = settled.partition
        position, metadata = self.positions.get(partition, (settled.base, ""))
        settlement = self.settlements.get(partition) or Settlement()
        self.positions[partition] = (settlement.settle(position, settled), metadata)
        self._keep(partition, settlement)

    def _keep(self, partition: int, settlement: Settlement) -> None:
        if settlement:
            self.settlements[partition] = settlement
        else:
            self.settlements.pop(partition, None)


class SettlementRow(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """A :class:`Settlement` in a checkpoint; ``finished`` is relative to the group's position in that partition, in
    pieces.
    """

    partition: int
    finished: list[bytes]
    unfinished: list[Unfinished]


def unread_of(group: Group, partition: int) -> Unread:
    """Return what the group has finished in a partition: of a queue's log nobody reads it any more."""
    kept = group.settlements.get(partition)
    return Unread(group.position(partition) or 0, kept.finished if kept is not None else OffsetSet())


class GroupRow(msgspec.Struct, array_like=True, frozen=True, gc=False):
    """A :class:`Group` in a checkpoint: (partition, offset, metadata), (partition, generation, member, kind),
    settlements, settings, and when it was used last (journal time).
    """

    name: str
    id: bytes
    positions: list[tuple[int, int, str]]
    claims: list[tuple[int, int, str, ClaimKind]]
    settlements: list[SettlementRow] = []
    settings: GroupSettings = NO_SETTINGS
    used: int = 0


class GroupCopy(NamedTuple):
    """A group at the moment of a snapshot. Its row is made when it is drawn, off the
    engine's thread.
    """

    row: GroupRow
    settlements: list[tuple[int, int, Settlement]]
    """(partition, position, a copy)."""

    def as_row(self) -> GroupRow:
        """Return the row for the checkpoint."""
        settlements = [
            SettlementRow(partition, encode_pieces(kept.finished, position), list(kept.unfinished.values()))
            for partition, position, kept in self.settlements
        ]
        return replace(self.row, settlements=settlements)


def durable_groups(groups: Mapping[str, Group]) -> dict[str, Group]:
    """Return the groups by name without what they have in transient queues, as a replay would make them.

    The group of queues is there with the first durable queue. When it was used does not matter: it stays for ever.
    """
    queues = groups.get(QUEUE_GROUP)
    if queues is None:
        return dict(groups)
    kept = Group(queues.id)
    kept.positions = {each: at for each, at in queues.positions.items() if not is_transient(each)}
    kept.settlements = {each: at for each, at in queues.settlements.items() if not is_transient(each)}
    kept.settings = queues.settings
    others = {name: each for name, each in groups.items() if name != QUEUE_GROUP}
    return {QUEUE_GROUP: kept, **others} if kept.positions else others


def copied(name: str, group: Group) -> GroupRow | GroupCopy:
    """Return what a snapshot keeps of a group. Sets of finished offsets are copied by reference."""
    positions = [(partition, *value) for partition, value in group.positions.items()]
    claims = [(partition, *value) for partition, value in group.claims.items()]
    row = GroupRow(name, group.id, positions, claims, settings=group.settings, used=group.used)
    if not group.settlements:
        return row
    return GroupCopy(row, [(p, group.positions[p][0], each.copy()) for p, each in group.settlements.items()])


def restored(row: GroupRow) -> Group:
    """Return the group of a row."""
    group = Group(row.id)
    group.positions = {partition: (offset, metadata) for partition, offset, metadata in row.positions}
    group.claims = {each[0]: Claim(*each[1:]) for each in row.claims}
    group.settlements = dict(_settlements(row))
    group.settings, group.used = row.settings, row.used
    return group


def _settlements(row: GroupRow) -> Iterator[tuple[int, Settlement]]:
    """Yield the settlements of a row by partition; raises :class:`InvalidFrame` for a set that is no encoded one."""
    positions = {partition: offset for partition, offset, _ in row.positions}
    for each in row.settlements:
        position = positions.get(each.partition, 0)
        finished = decode_pieces(each.finished, position)
        for unfinished in each.unfinished:
            if unfinished.offset - position >= MAX_AHEAD:
                raise InvalidFrame(
                    f"group {row.name!r} in partition number {each.partition} has details of offset "
                    f"{unfinished.offset}, far above its position"
                )
        yield each.partition, Settlement(finished, {one.offset: one for one in each.unfinished})


def check_row(row: GroupRow) -> None:
    """Raise :class:`InvalidFrame` for claims and settlements that no group has."""
    if len({kind.is_for_member for *_, kind in row.claims}) > 1:
        raise InvalidFrame(f"group {row.name!r} has partitions that are claimed for members, and others")
    positions = {partition: offset for partition, offset, _ in row.positions}
    for partition, kept in _settlements(row):
        position = positions.get(partition)
        at = f"group {row.name!r} in partition number {partition}"
        if position is None:
            raise InvalidFrame(f"{at} has settled offsets and no position")
        if position in kept.finished:
            raise InvalidFrame(f"{at} has finished offset {position}, its position")
        for offset in kept.unfinished:
            if offset < position or offset in kept.finished:
                raise InvalidFrame(f"{at} has details of offset {offset}, which is finished")

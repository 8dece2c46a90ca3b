"""What groups are to try again later, for operators: shown, and tried again now or finished by hand."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import islice
from typing import TYPE_CHECKING, Any

from msgspec.structs import replace

from journal.folds.group import Group
from journal.folds.groups import GroupsFold
from journal.formats.offset_set_bytes import MAX_SPAN, encode_offsets
from journal.offset_set import OffsetSet
from journal.records.group_entries import DEAD, PartitionOffset, Settled, Unfinished
from txbroker.errors import InvalidSetting, LimitExceeded, UnknownGroup
from txbroker.groups.retries import check_has_target, is_finished
from txbroker.wire.messages import (
    MAX_PARKED_LISTED,
    Done,
    ListParked,
    Parked,
    ParkedOffset,
    Release,
    ReleaseParked,
    Request,
)
from txbroker.wire.refusals import check_name, check_not_reserved, unknown_partition

if TYPE_CHECKING:
    from journal.engine.engine import Engine
    from journal.log.message_store import MessageStore

Settle = Callable[[str, bytes, list[PartitionOffset], Sequence[Settled]], None]
"""Settles offsets for a group, outside a transaction."""


class ParkedOffsets:
    """The meaning of ListParked and ReleaseParked."""

    def __init__(self, engine: Engine, groups: GroupsFold, settle: Settle) -> None:
        self._engine = engine
        self._stores = engine.catalog.stores
        self._groups = groups
        self._settle = settle
        self.handlers: dict[type[Request], Any] = {ListParked: self.list, ReleaseParked: self.release}
        """The commands, each with its meaning."""

    def list(self, session: object, command: ListParked, data: memoryview) -> Parked:  # noqa: ARG002
        """Return what a group is to try again in a partition."""
        check_name("group", command.group)
        if command.partition not in self._stores:
            raise unknown_partition(command.partition)
        group = self._groups.find(command.group)
        kept = group.settlements.get(command.partition)
        if kept is None:
            return Parked(command.correlation, [], False, group.id)
        now, first = self._engine.now(), max(command.first, 0)
        found = list(islice(kept.details_within(first, max(kept.end, first)), MAX_PARKED_LISTED + 1))
        told = [
            ParkedOffset(
                each.offset,
                each.attempts,
                0 if each.is_dead or each.is_stopped else max(each.due - now, 0),
                each.reason,
                each.is_dead,
                each.is_stopped,
            )
            for each in found[:MAX_PARKED_LISTED]
        ]
        return Parked(command.correlation, told, len(found) > MAX_PARKED_LISTED, group.id)

    def release(self, session: object, command: ReleaseParked, data: memoryview) -> Done:  # noqa: ARG002
        """Have offsets tried again now, finish them, give them up, or make them unfinished."""
        check_not_reserved(command.group)
        group = self._known(command)
        position = self._position(command, group)
        store = self._stores[command.partition]
        if command.what is Release.SKIP:
            settled = _finishing(command, group, position)
        else:
            settled = Settled(command.partition, 0, position, unfinished=_released(command, group, store))
        if settled.finished or settled.unfinished:
            settled = replace(settled, generation=group.generation(command.partition))
            self._settle(command.group, group.id, [], [settled])
        return Done(command.correlation)

    def _known(self, command: ReleaseParked) -> Group:
        """Return the group; raises UnknownGroup, UnknownPartition, LimitExceeded."""
        group = self._groups.groups.get(command.group)
        if group is None or group.id != command.id:
            raise UnknownGroup(
                f"there is no group {command.group!r} of that id: it has been deleted; nothing has changed. Ask for "
                "the groups again"
            )
        if command.partition not in self._stores:
            raise unknown_partition(command.partition)
        if len(command.offsets) > MAX_PARKED_LISTED:
            raise LimitExceeded(
                f"{len(command.offsets)} offsets are to be released, {MAX_PARKED_LISTED} are allowed; nothing has "
                "changed. Release them in several requests"
            )
        return group

    def _position(self, command: ReleaseParked, group: Group) -> int:
        position = group.position(command.partition)
        if position is None:
            store = self._stores[command.partition]
            raise InvalidSetting(
                f"group {command.group!r} has no position in {store.topic}-{store.index}, so nothing waits there; "
                "nothing has changed"
            )
        highest = max(command.offsets, default=0)
        if highest - position >= MAX_SPAN:
            raise LimitExceeded(
                f"offset {highest} is {highest - position} above the group's position; nothing has changed. Finish the "
                "lowest first"
            )
        return position


def _finishing(command: ReleaseParked, group: Group, position: int) -> Settled:
    kept = group.settlements.get(command.partition)
    finished = OffsetSet()
    for offset in command.offsets:
        if offset >= position and (kept is None or offset not in kept.finished):
            finished.add(offset)
    return Settled(command.partition, 0, position, encode_offsets(finished, position))


def _released(command: ReleaseParked, group: Group, store: MessageStore) -> list[Unfinished]:
    if command.what is Release.AGAIN:
        offsets = dict.fromkeys(command.offsets)
        return [Unfinished(offset) for offset in offsets if offset >= 0 and is_finished(group, store, offset)]
    if command.what is Release.DEAD_LETTER:
        check_has_target(store, group)
        return _due(command, group, DEAD)
    return _due(command, group, 0)


def _due(command: ReleaseParked, group: Group, due: int) -> list[Unfinished]:
    """Return what is known of the offsets that are to be tried again, with that due time where it is another."""
    kept = group.settlements.get(command.partition)
    known = {} if kept is None else kept.unfinished
    return [
        replace(known[offset], due=due)
        for offset in dict.fromkeys(command.offsets)
        if offset in known and known[offset].due != due
    ]

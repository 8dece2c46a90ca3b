"""The filters of groups by tags: what does not match is finished for the group, by records as those of clients.

What cannot be finished now, because a prepared transaction holds it or it is too far above the lowest unfinished
offset, is kept here, and finished when that has changed. After a start, and if it is too much to be kept, it is found
again: the log is examined from the group's position on. A partition's next owner begins there anyway.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Final, NamedTuple

from journal.folds.groups import GroupsFold
from journal.formats.offset_set_bytes import encode_offsets
from journal.offset_set import OffsetSet
from journal.records.group_entries import PartitionOffset, Settled
from txbroker.errors import TxBrokerError
from txbroker.groups.group_position import GroupPosition

if TYPE_CHECKING:
    from journal.engine.engine import Engine

MOST_OFFSETS: Final = 65_536
"""Most offsets among which one record finishes some."""
MOST_RUNS: Final = 4000
"""Most runs of offsets that one record finishes: as many as a client's request."""
MOST_KEPT: Final = 1 << 20
"""After so many offsets of a partition no more are kept that cannot be finished: 128 KiB."""
SPARE: Final = 1000
"""How many places or groups are noted beside twice as many as there are, before the stale ones are looked for."""

Settle = Callable[[str, bytes, list[PartitionOffset], Sequence[Settled]], None]


class _Place(NamedTuple):
    """What was examined for a group in a partition under a generation: everything that is not finished below ``end``.

    Of that ``kept`` does not match and is to be finished. ``tried`` says when that could not be done: what had changed
    last in the group, and in any. The reader began at ``first``. When the group has other ``tags`` by now, what is kept
    may be for it, and is examined again.
    """

    generation: int
    tags: list[str]
    first: int
    end: int
    kept: OffsetSet
    tried: tuple[int, int] | None = None


class TagFiltering:
    """Finishes what does not match. ``settle`` judges what is to be recorded, and accepts it."""

    def __init__(self, engine: Engine, groups: GroupsFold, max_ahead: int) -> None:
        self._engine = engine
        self._groups = groups
        self._max_ahead = max_ahead
        self._places: dict[tuple[str, int], _Place] = {}
        self._first_generation = groups.last_generation
        self._filtered_since: dict[str, int] = {}
        self._is_finishing = False
        self.settle: Settle | None = None

    def begins(self, group: str) -> None:
        """Note that a group has a filter from now on."""
        groups = self._groups.groups
        if len(self._filtered_since) > 2 * len(groups) + SPARE:
            self._filtered_since = {
                name: each for name, each in self._filtered_since.items() if name in groups
            }
        self._filtered_since[group] = self._groups.last_generation

    def behind(self, position: GroupPosition) -> tuple[int, int] | None:
        """Return from where to where a reader's partition is to be examined again, below its offset; None if nothing
        is.
        """
        place = self._place(position)
        is_behind = place.end < position.offset and len(place.kept) < MOST_KEPT
        return (place.end, position.offset) if is_behind else None

    def lags(self, position: GroupPosition) -> bool:
        """Return whether something below the reader's offset does not match, and may be unfinished."""
        place = self._place(position)
        return place.end < position.offset or bool(place.kept)

    def catch_up(self, group: str, partitions: Iterable[int]) -> None:
        """Finish what is kept of these partitions, as far as that may be now."""
        for partition in partitions if self._places and not self._is_finishing else ():
            place = self._places.get((group, partition))
            if place is not None and place.kept and place.generation == self._generation(group, partition):
                position = GroupPosition(
                    self._engine, self._groups, group, place.generation, (partition, place.end, 0), None, 0
                )
                if place.tried != self._state(position) and self._place(position).kept:
                    self.finish(position, place.end, place.end, OffsetSet())

    def finish(self, position: GroupPosition, begin: int, end: int, unmatched: OffsetSet) -> None:
        """Finish the offsets that do not match, as far as that may be now, if the reader has a claim.

        Everything from ``begin`` to below ``end`` was examined.
        """
        if not position.is_claimed or not self._is_first_known(position):
            return
        place = self._place(position)
        left = position.unfinished(unmatched)
        left.update(position.unfinished(place.kept))
        free = position.free(left) if self._has_begun(position) else OffsetSet()
        while free and not self._engine.busy:
            some = _some(free, position.lowest() + self._max_ahead)
            if not some or not self._settled(position, some):
                break
            left.difference_update(some)
            free.difference_update(some)
        if begin > place.end or len(place.kept) >= MOST_KEPT:
            end = place.end
            left = left.within(0, end)
        tried = self._state(position) if left and not self._engine.busy else None
        self._note(position, place._replace(end=max(place.end, end), kept=left, tried=tried))

    def _is_first_known(self, position: GroupPosition) -> bool:
        """Return whether the group has a position, or the first fetch of the reader's claim was seen here.

        A reader that had a claim before there was a filter may have messages that were handed out already, and says
        itself where it has begun, when it finishes the first.
        """
        group = self._groups.find(position.group)
        if position.generation != group.generation(position.partition):
            return False
        since = self._filtered_since.get(position.group, self._first_generation)
        return group.position(position.partition) is not None or position.generation > since

    def _has_begun(self, position: GroupPosition) -> bool:
        """Return whether the group has a position; if it has none, it gets one: where its reader has begun.

        That may be refused now, because the engine is busy or a prepared transaction holds the partition, and is tried
        again at a later fetch.
        """
        if self._groups.find(position.group).position(position.partition) is not None:
            return True
        return not self._engine.busy and self._settled(position, OffsetSet())

    def _settled(self, position: GroupPosition, offsets: OffsetSet) -> bool:
        """Finish some offsets by one record; return whether that may be."""
        group = self._groups.find(position.group)
        base = group.position(position.partition)
        base = self._place(position).first if base is None else base
        settled = Settled(position.partition, position.generation, base, encode_offsets(offsets, base))
        assert self.settle is not None
        self._is_finishing = True
        try:
            self.settle(position.group, group.id, [], [settled])
        except TxBrokerError:
            if self._engine.failed:
                raise
            return False  # the answer tells the reader if the partition is another's, or gone
        finally:
            self._is_finishing = False
        return True

    def _place(self, position: GroupPosition) -> _Place:
        """Return what is noted; without that, as after a start, everything from the group's position on is examined."""
        place = self._places.get((position.group, position.partition))
        first, at = position.offset, self._groups.find(position.group).position(position.partition)
        if place is None or place.generation != position.generation or not self._is_first_known(position):
            begin = first if at is None else min(at, first)
            return _Place(position.generation, position.tags, first, begin, OffsetSet())
        if at is None and first < place.first:
            return _Place(position.generation, position.tags, first, first, OffsetSet())
        if place.tags != position.tags:
            end = place.kept.first if place.kept else place.end
            place = place._replace(tags=position.tags, end=end, kept=OffsetSet(), tried=None)
        begin = place.first if at is None else min(at, first)
        return place if begin <= place.end else place._replace(end=begin)

    def _note(self, position: GroupPosition, place: _Place) -> None:
        if len(self._places) > 2 * self._groups.pairs + SPARE:
            self._places = {
                (group, partition): place
                for (group, partition), place in self._places.items()
                if self._generation(group, partition) == place.generation
            }
        self._places[position.group, position.partition] = place

    def _generation(self, group: str, partition: int) -> int:
        return self._groups.find(group).generation(partition)

    def _state(self, position: GroupPosition) -> tuple[int, int]:
        return self._groups.find(position.group).changed_lsn, self._groups.changed_lsn


def _some(offsets: OffsetSet, limit: int) -> OffsetSet:
    """Return the first offsets below ``limit``, as many as one record finishes."""
    first = offsets.first
    end = max(first, min(limit, first + MOST_OFFSETS))
    some = offsets.within(first, end)
    while some.count_runs() > MOST_RUNS:
        end = (first + end) // 2
        some = offsets.within(first, end)
    return some

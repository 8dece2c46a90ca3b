"""A position of a fetch that is read for a group: what the group has finished, and what waits there."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from journal.constants import MAX_REQUEST_MESSAGES
from journal.folds.groups import GroupsFold
from journal.formats.offset_set_bytes import MAX_SPAN, decode_offsets, encode_offsets
from journal.offset_set import OffsetSet
from journal.records.group_entries import STOPPED, PartitionOffset

if TYPE_CHECKING:
    from journal.engine.engine import Engine

_NOTHING = OffsetSet()


class Told(NamedTuple):
    """What an answer tells of a position: sets of offsets, encoded, and (offset, attempts)."""

    finished: bytes
    waiting: bytes
    attempts: list[tuple[int, int]]


class GroupPosition:
    """One position of a fetch that is read for a group. ``base`` is what the sets in its answer are relative to."""

    __slots__ = (
        "_engine", "_generation", "_groups", "_max_ahead", "_missing", "base", "group", "lags", "offset", "partition",
    )  # fmt: skip

    def __init__(
        self,
        engine: Engine,
        groups: GroupsFold,
        group: str,
        generation: int,
        position: tuple[int, int, int],
        missing: tuple[int, bytes, int] | None,
        max_ahead: int,
    ) -> None:
        self._engine = engine
        self._max_ahead = max_ahead
        self._groups = groups
        self.group = group
        self.partition, self.offset, _ = position
        self._generation = PartitionOffset(self.partition, 0, generation)
        self._missing = _NOTHING if missing is None else decode_offsets(missing[1], missing[2])
        self.base = self.offset if missing is None else min(self.offset, missing[2])
        self.lags = False
        """Whether something that its reader has passed is to be finished when the group's state has changed."""

    @property
    def is_claimed(self) -> bool:
        """Whether it has a generation, so that another claim ends it."""
        return self._generation.generation > 0

    @property
    def has_missing(self) -> bool:
        """Whether its reader wants to know when offsets do not wait any more."""
        return bool(self._missing)

    @property
    def generation(self) -> int:
        """The generation of the claim that it is read under, 0 for none."""
        return self._generation.generation

    @property
    def tags(self) -> list[str]:
        """The tags of which a message has one if it is for the group; empty if all are."""
        return self._groups.find(self.group).settings.tags

    def check(self) -> None:
        """Raise ``GenerationFenced`` if the partition was claimed anew since."""
        if self.is_claimed:
            self._groups.check_generation(self.group, self._generation)

    def readable(self, end: int) -> int:
        """Return the end of what one answer may have: a reader goes ``max_ahead`` beyond what it misses, and a set
        has a bounded span. The last frame may be a wrapper that begins below it.
        """
        ahead = self._missing.first + self._max_ahead if self._missing else end
        return max(self.offset, min(end, ahead, self.base + MAX_SPAN - MAX_REQUEST_MESSAGES))

    def first_unfinished(self, end: int) -> int:
        """Return the first offset below ``end`` that the group has not finished, or ``end``."""
        if end == self.offset:
            return end
        return min(self._finished(self.offset, end).missing_from(self.offset), end)

    def lowest(self) -> int:
        """Return the lowest offset that is unfinished, or may become so when a prepared transaction ends."""
        position = self._groups.find(self.group).position(self.partition)
        lowest = self.offset if position is None else position
        held = self._groups.held(self.group, self.partition)
        return lowest if held is None or not held.offsets else min(lowest, held.offsets.first)

    def detailed(self, first: int, end: int) -> OffsetSet:
        """Return the offsets from ``first`` to below ``end`` of which the group has more to say than that they are
        unfinished.
        """
        found = OffsetSet()
        settlement = self._groups.find(self.group).settlements.get(self.partition)
        if settlement is not None and settlement.unfinished:
            for each in settlement.details_within(first, end):
                found.add(each.offset)
        return found

    def unfinished(self, offsets: OffsetSet) -> OffsetSet:
        """Return those of some offsets that the group has not finished, and has no more to say of."""
        found = offsets.copy()
        if found:
            first, end = found.first, found.end
            found.difference_update(self._finished(first, end))
            found.difference_update(self.detailed(first, end))
        return found

    def free(self, offsets: OffsetSet) -> OffsetSet:
        """Return those of some offsets that no prepared transaction holds."""
        found = offsets.copy()
        held = self._groups.held(self.group, self.partition)
        if held is not None:
            found.discard_below(held.below)
            found.difference_update(held.offsets)
        return found

    def news(self) -> bool:
        """Return whether something of ``missing`` does not wait any more."""
        if not self._missing:
            return False
        first, end = self._missing.first, self._missing.end
        waiting = self._waiting(first, end)
        waiting.difference_update(self._finished(first, end))
        return len(self._missing.shared(waiting)) < len(self._missing)

    def told(self, end: int, unmatched: OffsetSet | None = None) -> Told:
        """Return what is finished, and what waits: of the offsets that are answered, up to ``end``, and of what is
        missing. Attempts are those of the offsets that are answered and do not wait. What is ``unmatched`` is nothing
        for the reader, as what is finished is.
        """
        if end == self.offset and not self._missing:
            return Told(b"", b"", [])
        finished, waiting = self._finished(self.offset, end), self._waiting(self.offset, end)
        if unmatched is not None:
            passed = unmatched.within(self.offset, end)
            passed.difference_update(waiting)
            finished.update(passed)
        if self._missing:
            first, behind = self._missing.first, self._missing.end
            finished.update(self._missing.shared(self._finished(first, behind)))
            waiting.update(self._missing.shared(self._waiting(first, behind)))
        waiting.difference_update(finished)
        attempts = self._attempts(self.offset, end, waiting)
        return Told(encode_offsets(finished, self.base), encode_offsets(waiting, self.base), attempts)

    def still(self) -> bytes:
        """Return as waiting all that is missing: for an answer that has no room for more."""
        return encode_offsets(self._missing, self.base)

    def next_due(self) -> int:
        """Return the journal time at which something of ``missing`` is due next; 0 if nothing will be by itself."""
        settlement = self._groups.find(self.group).settlements.get(self.partition)
        if settlement is None or not self._missing:
            return 0
        now, missing = self._engine.now(), self._missing
        kept = settlement.details_within(missing.first, missing.end)
        return min(
            [each.due for each in kept if now < each.due < STOPPED and each.offset in missing], default=0
        )

    def _finished(self, first: int, end: int) -> OffsetSet:
        """Return what the group has finished, or retention has removed, from ``first`` to below ``end``, as a new
        set.
        """
        group = self._groups.find(self.group)
        settlement = group.settlements.get(self.partition)
        finished = OffsetSet() if settlement is None else settlement.finished.within(first, end)
        store = self._engine.catalog.stores.get(self.partition)
        start = 0 if store is None else store.start_offset
        finished.add_range(first, min(max(group.position(self.partition) or 0, start), end))
        return finished

    def _attempts(self, first: int, end: int, waiting: OffsetSet) -> list[tuple[int, int]]:
        """Return (offset, attempts) of what has failed before, or was begun in a batch by a member that was lost, and
        does not wait, from ``first`` to below ``end``.
        """
        settlement = self._groups.find(self.group).settlements.get(self.partition)
        if settlement is None or not settlement.unfinished:
            return []
        return [
            (each.offset, each.attempts)
            for each in settlement.details_within(first, end)
            if each.offset not in waiting
        ]

    def _waiting(self, first: int, end: int) -> OffsetSet:
        """Return what is held, or not due yet, from ``first`` to below ``end``, in a new set."""
        held = self._groups.held(self.group, self.partition)
        waiting = OffsetSet() if held is None else held.offsets.within(first, end)
        if held is not None:
            waiting.add_range(first, min(held.below, end))
        settlement = self._groups.find(self.group).settlements.get(self.partition)
        if settlement is not None and settlement.unfinished:
            now = self._engine.now()
            for details in settlement.details_within(first, end):
                if details.due > now:
                    waiting.add(details.offset)
        return waiting

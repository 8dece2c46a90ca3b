"""The judge of what groups settle offset by offset, in plain commits and in transactions, before it is recorded."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Protocol

from msgspec.structs import replace

from journal.constants import MAX_REQUEST_ENTRIES
from journal.folds.groups import GroupsFold
from journal.folds.holds import by_pair
from journal.formats.offset_set_bytes import (
    MAX_AHEAD,
    count_walked_runs,
    decode_offsets,
    encode_offsets,
)
from journal.log.message_store import MessageStore
from journal.offset_set import OffsetSet
from journal.records.group_entries import MAX_FINISHED_BYTES, MAX_SETTLED, GroupPositions, Settled, finishing
from journal.records.queue_entries import QUEUE_TOPIC_PREFIX
from journal.transaction_states import TransactionNumber
from txbroker.errors import (
    InvalidFrame,
    InvalidSetting,
    LimitExceeded,
    OffsetOutOfRange,
    TooFarAhead,
    TooManyParked,
)
from txbroker.groups.retries import Retries
from txbroker.wire.refusals import unknown_partition

if TYPE_CHECKING:
    from journal.engine.engine import Engine


class SettlementLimits(Protocol):
    """The part of the broker's settings that bounds what groups settle."""

    @property
    def max_ahead(self) -> int:
        """How far above its lowest unfinished offset a group finishes some."""

    @property
    def max_parked(self) -> int:
        """Of how many offsets a group keeps details in a partition."""

    @property
    def max_offset_metadata(self) -> int:
        """Most characters of a reason."""


class SettlementJudge:
    """Judges settled offsets by the logs, by the limits, and by what the group has finished."""

    def __init__(
        self,
        engine: Engine,
        settings: SettlementLimits,
        groups: GroupsFold,
        random: Callable[[int], bytes],
    ) -> None:
        self._stores = engine.catalog.stores
        self._settings = settings
        self._groups = groups
        self.retries = Retries(engine, groups, settings.max_offset_metadata, random)

    # -- what a client says -------------------------------------------------------------------------

    def recorded(self, positions: Sequence[GroupPositions]) -> list[GroupPositions]:
        """Return what a record says of this request; raises for what no group can settle, whatever its state is.

        The base of each becomes the lowest offset that is unfinished: the group's position; the start of the log if
        that is above, and nothing below is held; the given base if the group has no position. Of a queue each
        set has a base of its own. The bounds are those of one record, so they are of all groups together.
        """
        check_extent(positions)
        found = [
            replace(each, settled=[part for one in each.settled for part in self._recorded(each.group, one)])
            if each.settled
            else each
            for each in positions
        ]
        check_extent(found)
        return found

    def _recorded(self, name: str, wanted: Settled) -> list[Settled]:
        store = self._stores.get(wanted.partition)
        if store is None:
            raise unknown_partition(wanted.partition)
        self._groups.check_generation(name, wanted)
        try:
            finished = decode_offsets(wanted.finished, wanted.base)
        except InvalidFrame as error:
            raise InvalidFrame(
                f"what group {name!r} has finished in {place(store)}: {error}; nothing has changed"
            ) from error
        if wanted.retried:
            noted = self.retries.noted(name, store, wanted.retried)
            for offset in noted.dropped:
                finished.add(offset)
            wanted = replace(wanted, unfinished=[*wanted.unfinished, *noted.unfinished], retried=[])
        self._check_unfinished(name, store, wanted, finished)
        self._check_range(name, store, wanted, finished)
        base, start = self._base(name, store, wanted.base)
        finished.discard_below(base)
        self._check_distance(name, store, self._open_after(name, store, base, [finished]), finished.end - 1)
        is_queue = store.topic.startswith(QUEUE_TOPIC_PREFIX)
        if not (is_queue and finished):
            return [replace(wanted, base=base, finished=encode_offsets(finished, base), start=start)]
        # What a queue finishes may be far above its position, which it always has: the bytes are those of the request.
        parts = finishing(wanted.partition, finished, wanted.generation, start)
        return [replace(parts[0], unfinished=wanted.unfinished), *parts[1:]]

    def _check_unfinished(self, name: str, store: MessageStore, wanted: Settled, finished: OffsetSet) -> None:
        offsets = {each.offset for each in wanted.unfinished}
        both = next((offset for offset in offsets if offset in finished), None)
        if both is not None or len(offsets) < len(wanted.unfinished):
            what = "an offset comes twice" if both is None else f"offset {both} is finished and unfinished"
            raise InvalidSetting(
                f"{what} in what group {name!r} settles in {place(store)}; nothing has changed. Say one thing of each"
            )
        longest = max([len(each.reason) for each in wanted.unfinished], default=0)
        if longest > self._settings.max_offset_metadata:
            raise LimitExceeded(
                f"a reason of {longest} characters, the limit is {self._settings.max_offset_metadata} "
                "(max_offset_metadata); nothing has changed. Give a shorter one"
            )

    def _check_range(self, name: str, store: MessageStore, wanted: Settled, finished: OffsetSet) -> None:
        """Raise for an offset beyond the log's end, and for an unfinished one that retention has removed.

        Finished ones may be below the log's start: that changes nothing.
        """
        unfinished = [each.offset for each in wanted.unfinished]
        end = max([finished.end, *(offset + 1 for offset in unfinished)])
        lowest = min(unfinished, default=store.start_offset)
        behind = f"offset {store.high_watermark}, the end of what can be read"
        if end > store.high_watermark:
            what, where = f"offset {end - 1}", f"is not below {behind}"
        elif wanted.base > store.high_watermark:
            what, where = f"base {wanted.base}", f"is above {behind}"
        elif lowest < store.start_offset:
            what, where = f"offset {lowest}", f"is gone: the log starts at {store.start_offset}"
        else:
            return
        raise OffsetOutOfRange(
            f"{what} of {place(store)}, which group {name!r} settles, {where}; nothing has changed",
            store.start_offset,
            store.high_watermark,
        )

    def _base(self, name: str, store: MessageStore, wanted: int) -> tuple[int, int]:
        """Return the lowest unfinished offset, and the start of the log if the position is to become that."""
        position, start = self._groups.find(name).position(store.number), store.start_offset
        if position is None:
            return max(wanted, start), 0
        held = self._groups.held(name, store.number)
        if start <= position or (held is not None and held.reaches_below(start)):
            return position, 0
        return start, start

    # -- what records would do ----------------------------------------------------------------------

    def check(self, positions: Iterable[GroupPositions], number: TransactionNumber | None = None) -> None:
        """Raise if these, with what that transaction has staged, may not be settled as things are now."""
        if number is not None:
            positions = [*self._groups.staged(number), *positions]
        if not any(each.settled for each in positions):
            return
        for (name, partition), (offsets, settled) in by_pair(positions).items():
            store = self._stores.get(partition)
            if settled and store is not None:
                if offsets:
                    raise InvalidSetting(
                        f"group {name!r} moves its position in {place(store)} and settles single offsets there, in one "
                        "step; nothing has changed. Do one of the two"
                    )
                self._check_state(name, store, settled)

    def _check_state(self, name: str, store: MessageStore, settled: Sequence[Settled]) -> None:
        position = self._groups.find(name).position(store.number)
        if position is None:
            position = settled[0].base
        self.retries.check_unfinished(name, store, settled)
        self._check_ahead(name, store, max(position, settled[0].start), settled)
        self._check_parked(name, store, settled)

    def _check_ahead(self, name: str, store: MessageStore, position: int, settled: Sequence[Settled]) -> None:
        """Raise for offsets that are too far above the lowest unfinished one, of all that are or may become so."""
        held, kept = (
            self._groups.held(name, store.number),
            self._groups.find(name).settlements.get(store.number),
        )
        opened = [each.offset for one in settled for each in one.unfinished]
        finished = [decode_offsets(each.finished, each.base) for each in settled]
        lowest = min([self._open_after(name, store, position, finished), *opened])
        highest = max([*(each.end - 1 for each in finished), *opened], default=position)
        if held is not None and held.offsets:
            lowest = min(lowest, held.offsets.first)
        if lowest < position and opened:
            ends = [position, kept.end if kept else 0, held.offsets.end if held else 0]
            highest = max(highest, max(ends) - 1)
        self._check_distance(name, store, lowest, highest)

    def _open_after(
        self, name: str, store: MessageStore, position: int, finished: Sequence[OffsetSet]
    ) -> int:
        """Return the lowest offset that is unfinished if these are finished, too: of what is finished without a gap
        from the position on nothing is kept.
        """
        kept = self._groups.find(name).settlements.get(store.number)
        found = OffsetSet() if kept is None else kept.finished.copy()
        for each in finished:
            found.update(each)
        return found.missing_from(position)

    def _check_distance(self, name: str, store: MessageStore, lowest: int, highest: int) -> None:
        most = MAX_AHEAD - 1 if store.topic.startswith(QUEUE_TOPIC_PREFIX) else self._settings.max_ahead
        if highest - lowest > most:
            raise TooFarAhead(
                f"offset {highest} of {place(store)} is {highest - lowest} above offset {lowest}, the lowest "
                f"that would be unfinished for group {name!r}, now or when a prepared transaction ends; the limit is "
                f"{most} (max_ahead); nothing has changed. Finish the lowest first"
            )

    def _check_parked(self, name: str, store: MessageStore, settled: Sequence[Settled]) -> None:
        held, kept = (
            self._groups.held(name, store.number),
            self._groups.find(name).settlements.get(store.number),
        )
        known = kept.unfinished if kept else {}
        said = (each.offset for one in settled for each in one.unfinished if each.has_details)
        fresh = {offset for offset in said if offset not in known}
        if not fresh:
            return
        if held is not None:
            for first, end in held.details.runs():
                fresh.update(offset for offset in range(first, end) if offset not in known)
        count = len(known) + len(fresh)
        if count > self._settings.max_parked:
            raise TooManyParked(
                f"{count} offsets of {place(store)} would have attempts, a due time or a reason for group {name!r}; "
                f"the limit is {self._settings.max_parked} (max_parked); nothing has changed. Finish some of them first"
            )


def check_extent(positions: Iterable[GroupPositions]) -> None:
    """Raise for more than one record settles, and for more than is judged in one turn: before a set is decoded."""
    settled = [one for each in positions for one in each.settled]
    if len(settled) > MAX_SETTLED:
        raise LimitExceeded(
            f"the request settles {len(settled)} partitions, {MAX_SETTLED} are allowed; nothing has changed. Settle "
            "them in several requests"
        )
    size = sum([len(each.finished) for each in settled])
    if size > MAX_FINISHED_BYTES:
        raise LimitExceeded(
            f"the finished offsets of the request take {size} bytes, {MAX_FINISHED_BYTES} are allowed; nothing has "
            "changed. Settle them in several requests"
        )
    parts = sum(
        [1 + len(each.unfinished) + len(each.retried) + count_walked_runs(each.finished) for each in settled]
    )
    if parts > MAX_REQUEST_ENTRIES:
        raise LimitExceeded(
            f"the request settles {parts} partitions, unfinished offsets and runs of finished ones, "
            f"{MAX_REQUEST_ENTRIES} are allowed; nothing has changed. Settle them in several requests"
        )


def place(store: MessageStore) -> str:
    """Return a partition's topic and index, for people."""
    return f"{store.topic}-{store.index}"

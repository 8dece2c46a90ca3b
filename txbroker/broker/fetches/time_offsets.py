"""Offsets by time: the first message of each partition at or after a moment of the wall clock."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Final

from journal.log.time_lookup import TimeLookup
from txbroker.broker.fetches.fetch_attempt import unreadable
from txbroker.broker.fetches.stepwise_answers import Steps, Stepwise
from txbroker.broker.sessions.session import Session
from txbroker.errors import CorruptData, InvalidSetting, TxBrokerError
from txbroker.wire.codec import encode
from txbroker.wire.messages import Offsets, OffsetsForTime
from txbroker.wire.refusals import check_entries, unknown_partition

if TYPE_CHECKING:
    from journal.engine.engine import Engine
    from journal.log.message_store import MessageStore

AT_A_TIME: Final = 32
"""How many partitions are looked up on the disk at once, so that other reads come in between."""

IN_A_STEP: Final = 256
"""How many partitions are looked up in memory in one step: 0.2 ms."""

Found = int | TxBrokerError
Lookup = tuple["MessageStore", TimeLookup]


class TimeOffsets:
    """The meaning of OffsetsForTime. Lookups that need the disk run on the reader pool."""

    def __init__(self, engine: Engine, stepwise: Stepwise) -> None:
        self._engine = engine
        self._stores = engine.catalog.stores
        self._stepwise = stepwise

    def find(self, session: Session, command: OffsetsForTime, data: memoryview) -> None:  # noqa: ARG002
        """Answer with the first offset of each partition at or after a time of the wall clock."""
        numbers = command.partitions
        check_entries("partitions", len(numbers))
        if len(set(numbers)) < len(numbers):
            twice = next(number for place, number in enumerate(numbers) if number in numbers[:place])
            raise InvalidSetting(
                f"partition {twice} is named twice, each can be looked up once; nothing was read. Name it once"
            )
        self._stepwise.answer(session, command, self._steps(command))

    def _steps(self, command: OffsetsForTime) -> Steps:
        at = command.wall - self._engine.wall_offset
        offsets: dict[int, int] = {}
        lookups: list[Lookup] = []
        for place, number in enumerate(command.partitions):
            store = self._store(number)
            found = store.plan_time(at)
            if isinstance(found, int):
                offsets[number] = found
            else:
                offsets[number] = -1  # its place
                lookups.append((store, found))
            if place % IN_A_STEP == IN_A_STEP - 1:
                yield None
        for first in range(0, len(lookups), AT_A_TIME):
            some = lookups[first : first + AT_A_TIME]
            results: list[Found] = yield partial(_look_up, [lookup for _, lookup in some])
            for (store, lookup), result in zip(some, results, strict=True):
                offsets[store.number] = self._within(store, lookup, result)
        return encode(Offsets(command.correlation, list(offsets.items())))

    def _store(self, number: int) -> MessageStore:
        store = self._stores.get(number)
        if store is None:
            raise unknown_partition(number)
        return store

    def _within(self, store: MessageStore, lookup: TimeLookup, found: Found) -> int:
        """Return the offset as the log is now: its topic may have been deleted, or retention have removed the
        segment.
        """
        self._store(store.number)
        if not isinstance(found, TxBrokerError):
            return store.within(found)
        if lookup.segment.end_offset <= store.start_offset:
            return store.start_offset
        raise found


def _look_up(lookups: Sequence[TimeLookup]) -> list[Found]:
    """Run lookups on a thread of the pool; the reactor judges their errors."""
    found: list[Found] = []
    for lookup in lookups:
        try:
            found.append(lookup.run())
        except CorruptData as error:
            found.append(error)
        except OSError as error:
            found.append(unreadable(error))
    return found

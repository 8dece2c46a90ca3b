"""What the broker itself settles in queues: attempts that it counts, messages that it ends."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from journal.offset_set import OffsetSet
from journal.records.group_entries import GroupPositions, Retried, Settled, Unfinished, finishing
from journal.records.queue_entries import QUEUE_GROUP
from journal.records.record import OffsetsCommitted
from txbroker.broker.groups.consumer_groups import Consuming
from txbroker.queues.queue_deliveries import LevelDeliveries

if TYPE_CHECKING:
    from journal.engine.engine import Engine


class Settler:
    """Settles offsets of queues by records."""

    def __init__(self, engine: Engine, consuming: Consuming) -> None:
        self._engine, self._consuming = engine, consuming

    def finish(self, state: LevelDeliveries, offsets: OffsetSet) -> None:
        """Finish messages; raises as :meth:`settle`."""
        self._settle(finishing(state.store.number, offsets))

    def settle(
        self,
        state: LevelDeliveries,
        unfinished: Sequence[Unfinished] = (),
        retried: Sequence[Retried] = (),
    ) -> Sequence[Settled]:
        """Say something of offsets that are not finished; return what the record says.

        Raises TooManyParked and other :class:`RequestRefused`, before anything has changed.
        """
        number = state.store.number
        return self._settle(
            [Settled(number, 0, state.position, b"", list(unfinished), retried=list(retried))]
        )

    def _settle(self, wanted: list[Settled]) -> Sequence[Settled]:
        recorded = self._consuming.recorded([GroupPositions(QUEUE_GROUP, b"", [], wanted)])
        self._consuming.check_settled(recorded)
        self._engine.transactions.check_unheld(recorded)
        settled = recorded[0].settled
        self._engine.accept(OffsetsCommitted(QUEUE_GROUP, [], self._engine.now(), b"", settled))
        return settled

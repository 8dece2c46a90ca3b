"""What the broker itself settles in queues: attempts that it counts, messages that it ends."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from journal.formats.offset_set_bytes import encode_offsets
from journal.offset_set import OffsetSet
from journal.records.group_entries import GroupPositions, Retried, Settled, Unfinished
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
        self.settle(state, encode_offsets(offsets, state.position))

    def settle(
        self,
        state: LevelDeliveries,
        finished: bytes = b"",
        unfinished: Sequence[Unfinished] = (),
        retried: Sequence[Retried] = (),
    ) -> Sequence[Settled]:
        """Settle offsets, those ``finished`` relative to the position of the queue; return what the record says.

        Raises TooManyParked and other :class:`RequestRefused`, before anything has changed.
        """
        wanted = Settled(
            state.store.number, 0, state.position, finished, list(unfinished), retried=list(retried)
        )
        recorded = self._consuming.recorded([GroupPositions(QUEUE_GROUP, b"", [], [wanted])])
        self._consuming.check_settled(recorded)
        self._engine.transactions.check_unheld(recorded)
        settled = recorded[0].settled
        self._engine.accept(OffsetsCommitted(QUEUE_GROUP, [], self._engine.now(), b"", settled))
        return settled

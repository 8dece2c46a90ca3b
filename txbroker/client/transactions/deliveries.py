"""Numbered deliveries of an outbox: commits in one phase, of messages that lie in a database already.

Unlike other transactions they need not be asked about after a loss: a delivery that is sent again with the same number
is known by it (docs/decisions/0048-outbox-streams.md).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, cast

from journal.transaction_states import TransactionNumber
from txbroker.client.core.call import Call
from txbroker.client.core.core import Core
from txbroker.client.core.options import Lost
from txbroker.client.transactions.serials import Serials
from txbroker.wire.messages import Answer, Commit, Committed, Delivery

_PLACEHOLDER: Final = Commit(0)


class DeliveryCall(Call[Committed]):
    """A delivery and its future answer. ``number`` is that of its transaction in the session.

    ``on_end`` is called when it is settled, perhaps twice after an interrupt: a callback without a closure, because
    there is one of these for each block.
    """

    __slots__ = ("_on_end", "_serials", "delivery", "number")

    def __init__(
        self,
        delivery: Delivery,
        data: bytes,
        deadline: float,
        serials: Serials,
        on_end: Callable[[DeliveryCall], object] | None,
    ) -> None:
        super().__init__(_PLACEHOLDER, Committed, data, deadline)
        self.rule = Lost.ASK
        self.number: TransactionNumber | None = None
        self.delivery = delivery
        self._serials = serials
        self._on_end = on_end

    def answered(self, head: Answer, data: memoryview) -> None:
        """Note that it is stored, or was before."""
        self.data, self._value, self.done = data, cast(Committed, head), True
        self._settled()

    def _settled(self) -> None:
        if self.number is not None:
            self._serials.ended(self.number)
        if self._on_end is not None:
            self._on_end(self)
        super()._settled()


def deliver(
    core: Core,
    serials: Serials,
    delivery: Delivery,
    runs: list[tuple[int, int]],
    data: bytes,
    on_end: Callable[[DeliveryCall], object] | None = None,
) -> DeliveryCall:
    """Send a delivery; only while there is a session.

    ``runs`` has the partitions' numbers and how many bytes of ``data`` each gets. The call fails with AnswerLost if the
    connection dies, with StreamFenced, StreamOutOfOrder, or what any commit is refused with.
    """
    call = DeliveryCall(delivery, data, core.clock() + core.options.timeout, serials, on_end)
    number = call.number = TransactionNumber(core.session, serials.begin(call))
    call.request = Commit(core.correlation(), *number, seen=serials.seen, runs=runs, delivery=delivery)
    core.submit(cast("Call[Answer]", call))
    return call

"""Numbered deliveries of an outbox: commits in one phase, of messages that lie in a database already.

Unlike other transactions they need not be asked about after a loss: a delivery that is sent again with the same number
is known by it (docs/decisions/0048-outbox-streams.md).
"""

from __future__ import annotations

from functools import partial

from journal.transaction_states import TransactionNumber
from txbroker.client.core.call import Call
from txbroker.client.core.core import Core
from txbroker.client.core.options import Lost
from txbroker.client.transactions.serials import Serials
from txbroker.wire.messages import Commit, Committed, Delivery


class _Numbered:
    """The number of a delivery in its session."""

    def __init__(self) -> None:
        self.number: TransactionNumber | None = None


def deliver(
    core: Core, serials: Serials, delivery: Delivery, runs: list[tuple[int, int]], data: bytes
) -> Call[Committed]:
    """Send a delivery; only while there is a session.

    ``runs`` has the partitions' numbers and how many bytes of ``data`` each gets. The call fails with AnswerLost if the
    connection dies, with StreamFenced, StreamOutOfOrder, or what any commit is refused with.
    """
    numbered = _Numbered()
    serial = serials.begin(numbered)
    numbered.number = number = TransactionNumber(core.session, serial)
    request = Commit(core.correlation(), *number, seen=serials.seen, runs=runs, delivery=delivery)
    call = core.request(request, Committed, data, rule=Lost.ASK)
    call.then(partial(serials.ended, number))
    return call

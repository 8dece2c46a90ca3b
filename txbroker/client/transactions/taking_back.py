"""Takes scheduled messages back with a transaction: the request that decides it carries their ids."""

from __future__ import annotations

from journal.scheduled_id import ScheduledId
from txbroker.client.operations.scheduled import check_waits
from txbroker.client.transactions.transaction import Transaction


async def take_back(transaction: Transaction, id: ScheduledId | str) -> None:
    """Take a scheduled message back with the transaction; raises unless it waits now, and changes nothing then.

    The transaction belongs to a session from then on: the broker takes only ids that it was asked about before.
    """
    given = ScheduledId.of(id)
    transaction.check_open()
    if not transaction.contents.has_begun:
        await transaction.begin()
    await check_waits(transaction.core, given)
    transaction.check_open()
    transaction.contents.take_back(given)

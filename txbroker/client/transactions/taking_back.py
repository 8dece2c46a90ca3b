"""Takes scheduled messages back with a transaction: the request that decides it carries their ids."""

from __future__ import annotations

from journal.scheduled_id import ScheduledId
from txbroker.client.operations.scheduled import check_named, check_waits, waiting_named
from txbroker.client.transactions.transaction import Transaction


async def take_back(
    transaction: Transaction, id: ScheduledId | str | None, message_id: str | bytes | None = None
) -> list[ScheduledId]:
    """Take a scheduled message back with the transaction, or all that wait with that id of their sender; return which.

    Raises unless it waits now, and changes nothing then. The transaction belongs to a session from then on: the broker
    takes only ids that it was asked about before.
    """
    wanted = check_named(id, message_id)
    found = [] if id is None else [ScheduledId.of(id)]
    transaction.check_open()
    if not transaction.contents.has_begun:
        await transaction.begin()
    if wanted is None:
        await check_waits(transaction.core, *found)
    else:
        found = await waiting_named(transaction.core, wanted)
    transaction.check_open()
    transaction.contents.take_back(found)
    return found

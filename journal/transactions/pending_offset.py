"""An offset of a group that a prepared transaction holds, so that nobody else may settle it."""

from __future__ import annotations

from typing import NamedTuple

from journal.errors import OffsetPending
from journal.transaction_states import TransactionNumber
from journal.xid import Xid


class PendingOffset(NamedTuple):
    """The lowest offset that a request touches and a prepared transaction, the ``holder``, holds."""

    group: str
    partition: int
    offset: int
    holder: TransactionNumber

    def error(self, xid: Xid | None) -> OffsetPending:
        """Return the error for the request; ``xid`` is the holder's."""
        return OffsetPending(
            f"offset {self.offset} of partition {self.partition} for group {self.group!r} is held by the prepared "
            f"transaction {self.holder} (xid {xid}); nothing has changed. Commit it or roll it back first"
        )

"""Numbers of transactions that the broker makes by itself, outside of any client's session."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from journal.transaction_states import TransactionNumber

if TYPE_CHECKING:
    from journal.engine.engine import Engine


class OwnNumbers:
    """The numbers of one kind of them. ``new_session`` gives a number for a session that nobody has."""

    def __init__(self, engine: Engine, new_session: Callable[[], int]) -> None:
        self._outcomes, self._new_session = engine.transactions.outcomes, new_session
        self._last = TransactionNumber(0, 0)

    def following(self) -> TransactionNumber:
        """Return the number of the next transaction, of the session of the last one while its outcomes are kept."""
        session, serial = self._last
        if not session or session < self._outcomes.session_mark:
            session, serial = self._new_session(), 0
        return TransactionNumber(session, serial + 1)

    def used(self, number: TransactionNumber) -> None:
        """Note that a transaction of that number is there."""
        self._last = number

"""Numbers of a session's transactions, and up to which all outcomes have been seen."""

from __future__ import annotations

from typing import TYPE_CHECKING

from journal.transaction import TransactionNumber
from txbroker.client.core import Core

if TYPE_CHECKING:
    from txbroker.client.transactions import Transaction


class Serials:
    """Numbers of a session's transactions, and up to which all outcomes have been seen."""

    def __init__(self, core: Core) -> None:
        self._core = core
        self._session = 0
        self._last = 0
        self._open: dict[int, Transaction] = {}

    def begin(self, transaction: Transaction) -> int:
        """The next serial of the present session."""
        if self._session != self._core.session:
            self._session, self._last, self._open = self._core.session, 0, {}
        self._last += 1
        self._open[self._last] = transaction
        return self._last

    def flush_before(self, serial: int) -> None:
        """Have those with lower serials begin at the broker: it takes new ones in the order of their serials only."""
        for number, transaction in list(self._open.items()):
            if number >= serial:
                break
            transaction.flush_first()

    def ended(self, number: TransactionNumber) -> None:
        """The outcome of this one has been seen."""
        if number.session == self._session:
            self._open.pop(number.serial, None)

    @property
    def seen(self) -> int:
        """The highest serial such that all outcomes up to it have been seen."""
        return next(iter(self._open)) - 1 if self._open else self._last

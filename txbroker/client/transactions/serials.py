"""The numbers of a session's transactions, and the one up to which all outcomes have been seen."""

from __future__ import annotations

from typing import Final, Protocol

from journal.transaction_states import State, TransactionNumber
from txbroker import errors
from txbroker.client.core.core import Core
from txbroker.wire.messages import AskOutcome, Outcome

KEPT: Final = 300.0
"""Seconds for which the outcome of a transaction that its program has left can be asked for, once it is decided."""

_FORGOTTEN = (errors.OutcomeForgotten, errors.UnknownTransaction)


class Numbered(Protocol):
    """The part of a transaction that concerns its number."""

    @property
    def number(self) -> TransactionNumber | None:
        """The transaction's number, once a request with it is about to be sent."""


class _Left:
    """A transaction that its program has left: when to check it next, and whether it is known to be decided."""

    __slots__ = ("due", "is_decided")

    def __init__(self, due: float) -> None:
        self.due = due
        self.is_decided = False


class Serials:
    """The numbers of a session's transactions, and the one up to which all outcomes have been seen."""

    def __init__(self, core: Core) -> None:
        self._core = core
        self._session = 0
        self._last = 0
        self._open: dict[int, Numbered] = {}
        self._left: dict[int, _Left] = {}

    def begin(self, transaction: Numbered) -> int:
        """Return the next serial of the present session, for a request that is sent at once.

        The broker takes new serials only in their order.
        """
        if self._session != self._core.session:
            self._session, self._last, self._open, self._left = self._core.session, 0, {}, {}
        self._last += 1
        self._open[self._last] = transaction
        return self._last

    def ended(self, number: TransactionNumber) -> None:
        """Note that the outcome of a transaction has been seen."""
        if number.session == self._session:
            self._open.pop(number.serial, None)
            self._left.pop(number.serial, None)

    def left(self, number: TransactionNumber) -> None:
        """Note that the program has left a transaction, and may never ask for its outcome, so others do not wait for
        it.

        Once it is decided, the broker keeps the outcome for :data:`KEPT` seconds at least.
        """
        if number.session == self._session and number.serial in self._open:
            self._left[number.serial] = _Left(self._core.clock() + KEPT)

    @property
    def seen(self) -> int:
        """The highest serial such that all outcomes up to it have been seen, or need not be kept."""
        while self._open:
            serial, transaction = next(iter(self._open.items()))
            if transaction.number != (self._session, serial):
                # An interrupt came before a request with this serial was sent. The transaction may have another one.
                del self._open[serial]
                continue
            if serial not in self._left or not self._may_pass(serial, self._left[serial]):
                return serial - 1
            del self._open[serial], self._left[serial]
        return self._last

    def _may_pass(self, serial: int, left: _Left) -> bool:
        """Return whether its outcome need not be kept. Asks for it when that is due; a decided one is kept as
        long again.
        """
        core = self._core
        if core.clock() < left.due:
            return False
        if left.is_decided:
            return True
        left.due = core.clock() + KEPT
        call = core.request(AskOutcome(core.correlation(), self._session, serial), Outcome)

        def answered() -> None:
            if call.error is None:
                left.is_decided = call.result().state in (State.COMMITTED, State.ROLLED_BACK)
            else:
                left.is_decided = isinstance(call.error, _FORGOTTEN)

        call.then(answered)
        return False

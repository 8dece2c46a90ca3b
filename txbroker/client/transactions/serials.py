"""Numbers of a session's transactions, and up to which all outcomes have been seen."""

from __future__ import annotations

from typing import Final, Protocol

from journal.transaction import State, TransactionNumber
from txbroker import errors
from txbroker.client.core.core import Core
from txbroker.wire.messages import AskOutcome, Outcome

KEPT: Final = 300.0
"""Seconds for which the outcome of a transaction that its program has left can be asked for, once it is decided."""

_FORGOTTEN = (errors.OutcomeForgotten, errors.UnknownTransaction)


class Numbered(Protocol):
    """A transaction, as far as its number is concerned."""

    @property
    def number(self) -> TransactionNumber | None:
        """Its number, once it has begun."""

    def flush_first(self) -> None:
        """Send what there is, or give the number back: a later one is about to begin at the broker."""


class _Left:
    """A transaction whose program has left it: when it is looked at next, and whether it is known to be decided."""

    __slots__ = ("due", "is_decided")

    def __init__(self, due: float) -> None:
        self.due = due
        self.is_decided = False


class Serials:
    """Numbers of a session's transactions, and up to which all outcomes have been seen."""

    def __init__(self, core: Core) -> None:
        self._core = core
        self._session = 0
        self._last = 0
        self._open: dict[int, Numbered] = {}
        self._left: dict[int, _Left] = {}

    def begin(self, transaction: Numbered) -> int:
        """The next serial of the present session."""
        if self._session != self._core.session:
            self._session, self._last, self._open, self._left = self._core.session, 0, {}, {}
        self._last += 1
        self._open[self._last] = transaction
        return self._last

    def flush_before(self, serial: int) -> None:
        """Have those with lower serials begin at the broker: it takes new ones in the order of their serials only."""
        for number, transaction in list(self._open.items()):
            if number >= serial:
                break
            if transaction.number != (self._session, number):
                # It was interrupted before it had its number, and may have another one since.
                del self._open[number]
            else:
                transaction.flush_first()

    def ended(self, number: TransactionNumber) -> None:
        """The outcome of this one has been seen."""
        if number.session == self._session:
            self._open.pop(number.serial, None)
            self._left.pop(number.serial, None)

    def left(self, number: TransactionNumber) -> None:
        """The program is done with this one, and the outcome may never be asked for: it is not waited for for ever.

        Once it is decided, the broker tells how for :data:`KEPT` seconds at least.
        """
        if number.session == self._session and number.serial in self._open:
            self._left[number.serial] = _Left(self._core.clock() + KEPT)

    @property
    def seen(self) -> int:
        """The highest serial such that all outcomes up to it have been seen, or need not be kept for anybody."""
        while self._open:
            serial = next(iter(self._open))
            if serial not in self._left or not self._may_pass(serial, self._left[serial]):
                return serial - 1
            del self._open[serial], self._left[serial]
        return self._last

    def _may_pass(self, serial: int, left: _Left) -> bool:
        """Ask how it ended when that is due; once it has, it is kept for as long again."""
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

"""The orphan policy, which is opt-in: what happens to transactions that stay prepared for too long."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Final

from twisted.logger import Logger

from journal.transaction_states import Cause, State, TransactionNumber
from journal.transactions.state import Transaction
from txbroker.broker.sessions.settings import SECOND, BrokerSettings, OrphanAction
from txbroker.errors import CorruptData, RestoredTransaction
from txbroker.wire.messages import Policy

if TYPE_CHECKING:
    from journal.engine.engine import Engine

AT_ONCE: Final = 100
"""Most transactions that the policy ends in one turn."""

SAID_AT_ONCE: Final = 10
"""Most alerts in one turn that name their transaction: a hundred thousand would flood the log."""


class Orphans:
    """The policy at work. Without ``orphan_age`` it does nothing, ever.

    ``alerted`` are those left to people since this start, each with the reason if nothing else can be done.
    """

    log = Logger()

    def __init__(self, engine: Engine, settings: BrokerSettings) -> None:
        self._engine = engine
        self._age = settings.orphan_age
        self._action = settings.orphan_action
        self.alerted: dict[TransactionNumber, str] = {}
        self.ended = 0
        """How many the policy has ended since this start."""

    def treat(self, now: int) -> bool:
        """Treat the due ones by the policy; return False if a large commit keeps the engine busy now."""
        if self._age is None:
            return True
        prepared = self._engine.transactions.prepared
        for number in self.alerted.keys() - prepared.keys():
            del self.alerted[number]
        due = self._due(now - self._age)
        for place, transaction in enumerate(due):
            if self._action is OrphanAction.ALERT:
                self._alert(transaction, place)
                continue
            self._end(transaction)
            if self._engine.busy:
                return False
        if self._action is OrphanAction.ALERT and len(due) > SAID_AT_ONCE:
            self.log.warn(
                "and {more} more; 'txbroker transactions list --in-doubt' has all",
                more=len(due) - SAID_AT_ONCE,
            )
        return True

    def _due(self, before: int) -> list[Transaction]:
        due: list[Transaction] = []
        most = sys.maxsize if self._action is OrphanAction.ALERT else AT_ONCE
        for number, transaction in self._engine.transactions.prepared.items():
            if transaction.prepared_at >= before or len(due) == most:
                break
            if number not in self.alerted:
                due.append(transaction)
        return due

    def _alert(self, transaction: Transaction, place: int) -> None:
        self.alerted[transaction.number] = ""
        if place < SAID_AT_ONCE:
            self.log.warn(
                "transaction {number} (xid {xid}) of {owner} has been prepared for more than {age:g} s (orphan_age) "
                "and waits for a decision: 'txbroker transactions show {number}'",
                number=transaction.number, xid=transaction.xid, owner=transaction.owner, age=self._seconds,
            )  # fmt: skip

    def _end(self, transaction: Transaction) -> None:
        """End one; if its frames are damaged, or it is restored, it is left to people, and delays no other."""
        number, transactions = transaction.number, self._engine.transactions
        why = f"prepared for more than {self._seconds:g} s (orphan_age)"
        try:
            if self._action is OrphanAction.ROLL_BACK:
                outcome = transactions.rollback(number, Cause.ORPHAN_POLICY, why=why)
            else:
                outcome = transactions.commit(number, Cause.ORPHAN_POLICY, why=why)
        except (CorruptData, RestoredTransaction) as error:
            if self._engine.failed:
                raise
            self.alerted[number] = str(error)
            self.log.error(
                "the orphan policy cannot {action} transaction {number} (xid {xid}) of {owner}: {error}",
                action=self._action.value, number=number, xid=transaction.xid, owner=transaction.owner, error=error,
            )  # fmt: skip
            return
        assert outcome is not None, "it is prepared"
        self.ended += 1
        self.log.warn(
            "transaction {number} (xid {xid}) of {owner}, prepared, was {outcome}",
            number=number, xid=transaction.xid, owner=transaction.owner,
            outcome=outcome.describe(),
        )  # fmt: skip

    @property
    def _seconds(self) -> float:
        return (self._age or 0) / SECOND

    def policy(self, transaction: Transaction, now: int) -> Policy | None:
        """Return what happens to the transaction by itself, and when; None: nothing."""
        if self._age is None or transaction.state is not State.PREPARED:
            return None
        obstacle = self.alerted.get(transaction.number)
        due_in = transaction.prepared_at + self._age - now
        return Policy(self._action.value, max(due_in, 0), obstacle is not None, obstacle or "")

    def gauges(self, now: int) -> dict[str, int | float | str]:
        """For the status: how old the oldest is, how many are orphans now, how many were ended since this start."""
        prepared = self._engine.transactions.prepared
        oldest = next(iter(prepared.values()), None)
        return {
            "oldest_in_doubt_age": 0 if oldest is None else now - oldest.prepared_at,
            "transactions_orphaned": 0 if self._age is None else self._count(now - self._age),
            "orphans_ended": self.ended,
        }

    def _count(self, before: int) -> int:
        count = 0
        for transaction in self._engine.transactions.prepared.values():
            if transaction.prepared_at >= before:
                break
            count += 1
        return count

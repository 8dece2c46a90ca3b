"""Refusals of what is asked of transactions that have ended, or were restored from a backup."""

from __future__ import annotations

from typing import NoReturn

from journal.errors import (
    HeuristicallyCommitted,
    HeuristicallyRolledBack,
    RestoredTransaction,
    TransactionCommitted,
    TransactionRolledBack,
)
from journal.log.start_history import Starts
from journal.parties import parts_of_actor
from journal.records.outcome import Outcome
from journal.transaction_states import Cause, Input, State
from journal.transactions.state import Transaction


def refuse_ended(outcome: Outcome) -> NoReturn:
    """Raise the error that tells how a transaction has ended, by whom and why."""
    committed = outcome.state is State.COMMITTED
    if not outcome.heuristic:
        error = TransactionCommitted if committed else TransactionRolledBack
        raise error(f"transaction {outcome.number} was {outcome.describe()}; nothing was changed")
    by, principal = parts_of_actor(outcome.by)
    error_class = HeuristicallyCommitted if committed else HeuristicallyRolledBack
    raise error_class(
        f"transaction {outcome.number} was {outcome.describe()}. That was decided here while it was in "
        "doubt, not by its coordinator; nothing was changed. If the coordinator has decided otherwise, what else "
        "took part disagrees with this broker and must be made to agree by hand",
        by or "the orphan policy",
        outcome.why,
        outcome.wall,
        principal,
    )


def judge_restored(transaction: Transaction, starts: Starts, asked: Input, cause: Cause) -> None:
    """Raise :class:`RestoredTransaction` if it was prepared before the data were restored, and nobody may end it so.

    Its coordinator may have decided, had it carried out and forgotten it after the backup: that it knows nothing of it
    does not mean rollback. No policy decides it either way. A copy takes no commit, because its original is told.
    """
    number = transaction.number
    if not starts.is_restored(number.session) or transaction.state is not State.PREPARED:
        return
    if cause is Cause.OPERATOR:
        return
    if asked is Input.COMMIT and cause is Cause.CLIENT and not starts.as_copy:
        return
    ways = "'txbroker transactions list --restored' lists it; end it with 'txbroker transactions commit' or 'rollback'"
    if starts.as_copy:
        raise RestoredTransaction(
            f"transaction {number} (xid {transaction.xid}) is of the data that this broker's are a copy of: its "
            f"{asked.value} is for the original, and was not carried out here. It stays prepared, and nothing was "
            f"changed. If you need it ended in the copy too: {ways}"
        )
    raise RestoredTransaction(
        f"transaction {number} (xid {transaction.xid}) was prepared before the data were restored from a backup, and "
        "may have been committed since in what is lost: so that its coordinator knows nothing of it does not mean that "
        "it was rolled back. It stays prepared, and nothing was changed. A commit is taken; a rollback only from a "
        f"person who has looked what else took part: {ways}"
    )

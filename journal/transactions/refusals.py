"""Refusals of what is asked of transactions that have ended."""

from __future__ import annotations

from typing import NoReturn

from journal.errors import (
    HeuristicallyCommitted,
    HeuristicallyRolledBack,
    TransactionCommitted,
    TransactionRolledBack,
)
from journal.parties import parts_of_actor
from journal.records.outcome import Outcome
from journal.transaction_states import State


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

"""Which transactions somebody wants to see: chosen by state, xid and how they ended, a page at a time."""

from __future__ import annotations

import heapq
from collections.abc import Iterable, Sequence
from itertools import chain
from typing import NamedTuple

from journal.outcomes import Outcome
from journal.transaction import State, Xid
from journal.transaction_state import Transaction
from journal.transaction_table import TransactionTable

_UNDECIDED = (State.ACTIVE, State.ROLLBACK_ONLY, State.PREPARED)
_ENDED = frozenset((State.COMMITTED, State.ROLLED_BACK))


class Wanted(NamedTuple):
    """Which ones. ``states`` empty: the undecided ones, or all forced ones if ``forced``.

    ``format_id`` and ``global_prefix`` choose by xid: its format, and how its global id begins.
    """

    states: Sequence[State] = ()
    format_id: int | None = None
    global_prefix: bytes = b""
    forced: bool = False

    def has(self, xid: Xid | None) -> bool:
        """Whether one with this xid is wanted."""
        if self.format_id is None and not self.global_prefix:
            return True
        if xid is None or not xid.global_id.startswith(self.global_prefix):
            return False
        return self.format_id is None or xid.format_id == self.format_id


def page(
    table: TransactionTable, wanted: Wanted, after: tuple[int, int], limit: int
) -> tuple[list[Transaction | Outcome], bool]:
    """Those beyond ``after``, by number, at most ``limit``; and whether there are more."""
    states = frozenset(wanted.states or (_ENDED if wanted.forced else _UNDECIDED))
    found = heapq.nsmallest(
        limit + 1,
        (
            each
            for each in _candidates(table, states, wanted.forced)
            if each.number > after and each.state in states and wanted.has(each.xid)
        ),
        key=lambda each: each.number,
    )
    return found[:limit], len(found) > limit


def _candidates(
    table: TransactionTable, states: frozenset[State], forced: bool
) -> Iterable[Transaction | Outcome]:
    """As few as may be: there can be a hundred thousand of each kind."""
    outcomes = table.outcomes
    if forced:
        return (outcomes.by_number[number] for number in outcomes.forced)
    live = table.prepared if states == {State.PREPARED} else table.live
    return chain(
        live.values() if states - _ENDED else (),
        outcomes.by_number.values() if states & _ENDED else (),
    )

"""The registry of a coordinator: its active transactions, its decided ones, and the participants still to be told.

A participant thread rolls a prepared branch back if its transaction is not active and no participant is still to be
told of its commit. It judges that by a view taken *before* the list of prepared branches. A transaction is in the view
from before its first step until all have acknowledged, and a transaction that began after the view has a later number.
So the rule spares a transaction that is just preparing, and one that was listed, then committed everywhere and ended
before the list is judged.
"""

from __future__ import annotations

import threading
import time
from typing import NamedTuple

from journal.transaction_states import State
from txbroker import errors
from txbroker.coordinator.decision_log import BranchRecord, Decision, DecisionLog, Heuristic
from txbroker.coordinator.gids import Branch, Gids, start_of
from txbroker.coordinator.resource import Ending


class View(NamedTuple):
    """The registry at one moment: transactions that are active or not acknowledged, and the last number given out."""

    known: frozenset[str]
    serial: int


class TransactionRegistry:
    """The transactions of one coordinator. All methods may be called from any thread."""

    def __init__(self, log: DecisionLog) -> None:
        self.identity = log.identity
        self._log = log
        self._gids = Gids(log.identity, log.start)
        self._lock = threading.Lock()
        self._active: set[str] = set()
        self._untold = {
            gid: {branch.name: branch for branch in decision.branches}
            for gid, decision in log.decisions.items()
            if decision.branches
        }
        for gid in log.decisions.keys() - self._untold.keys():
            log.end(gid)  # a person has handled all of it

    # -- transactions ------------------------------------------------------------------------------

    def begun(self) -> str:
        """Return the id of a new transaction; only its thread ends it until :meth:`left`."""
        with self._lock:
            gid = self._gids.make()
            self._active.add(gid)
            return gid

    def decided(self, decision: Decision) -> None:
        """Force a decision. If it is unknown whether it is on the disk, this run ends the transaction no more."""
        try:
            self._log.decide(decision)
        except BaseException:
            if decision.gid in self._log.decisions:  # an interrupt came after the force
                self._to_be_told(decision)
                self.left(decision.gid)
            raise
        self._to_be_told(decision)

    def _to_be_told(self, decision: Decision) -> None:
        with self._lock:
            self._untold[decision.gid] = {branch.name: branch for branch in decision.branches}

    def left(self, gid: str) -> None:
        """Note that a transaction's own thread is done with it: the participant threads do the rest."""
        with self._lock:
            self._active.discard(gid)

    # -- acknowledgements --------------------------------------------------------------------------

    def acknowledged(self, branch: Branch, ending: Ending) -> None:
        """Note that a participant of a committed transaction has ended its branch; the last one ends the
        transaction.
        """
        if ending.state is not State.COMMITTED:
            self._report(branch, "committed", ending)
        with self._lock:
            waiting = self._untold.get(branch.gid)
            if waiting is None:
                return
            waiting.pop(branch.name, None)
            if waiting:
                if branch.gid not in self._active:  # else the others are probably about to
                    self._log.told(*branch)
                return
            del self._untold[branch.gid]
        self._log.end(branch.gid)

    def rolled_back(self, branch: Branch, ending: Ending) -> None:
        """Note that a participant has rolled its branch back, or that somebody had committed it."""
        if ending.state is not State.ROLLED_BACK:
            self._report(branch, "rolled back", ending)

    def _report(self, branch: Branch, decided: str, ending: Ending) -> None:
        ended = "committed" if ending.state is State.COMMITTED else "rolled back"
        self._log.report(Heuristic(*branch, decided, ended, ending.by, ending.why, time.time_ns() // 1000))

    def heuristics(self, gid: str = "") -> list[Heuristic]:
        """Return branches that were ended the other way; of one transaction, if it is named."""
        return [found for found in list(self._log.heuristics.values()) if gid in ("", found.gid)]

    def forget(self, branch: Branch) -> None:
        """Note that a person has handled this branch. Raises UnknownTransaction if nothing is known to be wrong
        with it.
        """
        gid, name = branch
        with self._lock:
            waiting = {} if gid in self._active else self._untold.get(gid, {})
            if name not in waiting and (gid, name) not in self._log.heuristics:
                raise errors.UnknownTransaction(
                    f"{gid} is neither waiting for {name!r} nor was it ended otherwise there; nothing was changed"
                )
        self._log.forget(gid, name)
        if name in waiting:
            self.acknowledged(branch, Ending(State.COMMITTED))

    def flush(self) -> None:
        """Write ends that wait for the next entry."""
        self._log.flush()

    # -- for participant threads ---------------------------------------------------------------------

    def view(self) -> View:
        """Return the present view."""
        with self._lock:
            return View(frozenset(self._active | self._untold.keys()), self._gids.last)

    def to_tell(self, name: str) -> dict[str, BranchRecord]:
        """Return decided branches that a participant has not acknowledged, of transactions that are not active."""
        with self._lock:
            return {
                gid: waiting[name]
                for gid, waiting in self._untold.items()
                if name in waiting and gid not in self._active
            }

    def is_undecided(self, gid: str, before: View) -> bool:
        """Return whether a transaction that was listed after that view has no decision and will never have one."""
        return gid not in before.known and not self._gids.is_later(gid, before.serial)

    def is_restored(self, gid: str) -> bool:
        """Return whether a transaction was begun before the log was restored from a backup: a decision about it may be
        lost, so that there is none does not mean that it is rolled back.
        """
        return start_of(gid) < self._log.restored

    def waiting(self) -> dict[str, dict[str, BranchRecord]]:
        """Return all decided transactions that a participant has not acknowledged."""
        with self._lock:
            return {gid: dict(waiting) for gid, waiting in self._untold.items() if gid not in self._active}

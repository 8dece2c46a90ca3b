"""The coordinator of a drill ends transactions that dead clients left prepared, and keeps its own ledger of
decisions.
"""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable

import txbroker
from journal.transaction_states import State
from journal.xid import Xid
from txbroker.drill.clients.ledger import SUFFIX, Decided, Ended, Ledger, Surprise, read_ledger
from txbroker.drill.clients.life import LOST, text_of
from txbroker.drill.clients.transactor import owner_of
from txbroker.drill.plan.plan import Plan
from txbroker.errors import TxBrokerError

SENDER = "coordinator"
ROUND = 0.3
"""Seconds between two checks for transactions in doubt."""

SLOWEST = 3.0
"""Seconds; under load a transaction stays in doubt at most so long, by chance."""

FINISH_WITHIN = 60.0


class Coordinator:
    """A thread that looks for transactions in doubt and decides them. A decision that a client made before it
    died holds.
    """

    def __init__(self, plan: Plan, is_over: Callable[[str], bool]) -> None:
        self.in_doubt = 0
        """How many prepared transactions of the drill there were at the last check."""
        self._plan = plan
        self._is_over = is_over
        self._ledger = Ledger(plan.ledgers, SENDER)
        self._connection: txbroker.Connection | None = None
        self._due: dict[Xid, float] = {}
        self._decided: dict[Xid, bool] = {}
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="drill's coordinator", daemon=True)

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def stop(self) -> None:
        """End the thread."""
        self._stop.set()
        self._thread.join()
        self._drop()

    def finish(self) -> None:
        """End the transactions that are left, without delay; called after all clients and the thread have ended."""
        deadline = time.monotonic() + FINISH_WITHIN
        while not (self._try_round(patient=False) and not self.in_doubt and not self._decided):
            if time.monotonic() > deadline:
                break
            time.sleep(ROUND / 3)
        self._drop()
        self._ledger.close()

    def _run(self) -> None:
        while not self._stop.wait(ROUND):
            self._try_round(patient=True)

    def _drop(self) -> None:
        if self._connection is not None:
            self._connection.close(0.0)
            self._connection = None

    def _try_round(self, patient: bool) -> bool:
        try:
            self._round(patient)
        except LOST:
            self._drop()
            return False
        except TxBrokerError as error:
            self._ledger.write(Surprise(doing="ending what is in doubt", error=text_of(error)))
            self._drop()
            return False
        return True

    def _round(self, patient: bool) -> None:
        if self._connection is None:
            self._connection = txbroker.connect(
                self._plan.url, client=SENDER, timeout=self._plan.timeout, reconnect=False
            )
        connection = self._connection
        # Before the look: a client that ends a transaction between the look and this question has not left it.
        left = {xid for xid in self._due if self._is_left(xid)}
        listed = {xid: owner for xid in connection.tpc_recover() if (owner := owner_of(self._plan, xid))}
        self.in_doubt = len(listed)
        self._due = {xid: self._due.get(xid) or self._draw(xid) for xid in listed}
        for xid, (sender, operation) in listed.items():
            is_due = xid in left and time.monotonic() >= self._due[xid]
            if patient and not is_due and xid not in self._decided:
                continue
            commit = self._decide(xid, sender, operation)
            connection.tpc_commit(xid) if commit else connection.tpc_rollback(xid)
            self._end(xid, commit, found_out=False)
        for xid in [xid for xid in self._decided if xid not in listed]:
            # Its end had been asked for, and the answer was lost.
            state = connection.outcome(xid).state
            if state in (State.COMMITTED, State.ROLLED_BACK):
                self._end(xid, state is State.COMMITTED, found_out=True)

    def _draw(self, xid: Xid) -> float:
        """Return the time from which the transaction may be ended."""
        return time.monotonic() + random.Random(f"{self._plan.seed}/{xid}").uniform(0.0, SLOWEST)

    def _is_left(self, xid: Xid) -> bool:
        """Return whether the coordinator decides it: its client has died, or has noted an end that did not come."""
        owner = owner_of(self._plan, xid)
        assert owner is not None, f"{xid} is of no client of this drill"
        sender, operation = owner
        return self._is_over(sender) or any(
            isinstance(line.entry, Ended) and line.entry.operation == operation
            for line in read_ledger(self._plan.ledgers / f"{sender}{SUFFIX}")
        )

    def _decide(self, xid: Xid, sender: str, operation: int) -> bool:
        """Decide as the client has decided, or else by chance. The ledger has the decision before the broker
        gets it.
        """
        if xid not in self._decided:
            commit = self._decision_of(sender, operation)
            if commit is None:
                commit = random.Random(f"{self._plan.seed}/{xid}/decision").random() < 0.5
            self._ledger.write(Decided(operation=operation, commit=commit, sender=sender))
            self._decided[xid] = commit
        return self._decided[xid]

    def _decision_of(self, sender: str, operation: int) -> bool | None:
        found: bool | None = None
        for _, _, entry in read_ledger(self._plan.ledgers / f"{sender}{SUFFIX}"):
            if isinstance(entry, Decided) and entry.operation == operation:
                found = entry.commit
            elif isinstance(entry, Ended) and entry.operation == operation:
                found = entry.committed
        return found

    def _end(self, xid: Xid, committed: bool, found_out: bool) -> None:
        owner = owner_of(self._plan, xid)
        assert owner is not None, f"{xid} is of no client of this drill"
        sender, operation = owner
        self._ledger.write(
            Ended(operation=operation, committed=committed, found_out=found_out, sender=sender)
        )
        del self._decided[xid]

"""The producer of the demo sends a year of days, one two-phase transaction each, over kills of the broker.

It keeps no record of its own of what is done. After a lost connection it asks the broker which transactions
are in doubt, commits them (a day is prepared only when all of it has been sent), and asks how the day at hand
ended.
"""

from __future__ import annotations

import enum
import time
from collections.abc import Callable, Iterable
from typing import Protocol

import txbroker
from demo.kills import Phase
from demo.source import Day
from demo.verify import headers_for
from journal.transaction_states import State
from journal.xid import Xid
from txbroker.errors import OutcomeUnknown, StorageUnavailable, TransactionRolledBack, UnknownTransaction

FORMAT_ID = 2013
GIVE_UP_AFTER = 60.0
"""Seconds without a broker after which the producer gives up."""

LOST = (StorageUnavailable, OutcomeUnknown, TransactionRolledBack)
"""The errors that a producer sees when the broker dies: nothing was sent, or the outcome is unknown, or the transaction
is gone because it was not prepared yet.
"""


MOST_ATTEMPTS = 50
"""A day that is not committed after so many attempts has a problem other than kills."""


class Fate(enum.Enum):
    """The state of a day's transaction after the broker's restart."""

    COMMITTED = "was committed"
    IN_DOUBT = "in doubt: committed"
    SENT_AGAIN = "rolled back: resent"


class Watcher(Protocol):
    """Interface for following the producer. ``check`` raises if waiting for the broker is useless."""

    def begins(self, day: str, phase: Phase) -> None: ...
    def ended(self) -> None: ...
    def check(self) -> None: ...


class Producer:
    """The producer. ``tell`` gets sentences for people, ``advance`` the number of rows each time a day is committed."""

    def __init__(
        self, url: str, watcher: Watcher, tell: Callable[[str], None], advance: Callable[[int], None]
    ) -> None:
        self.finished_in_doubt: list[Xid] = []
        """Transactions that were found prepared after a kill, and then committed."""
        self.fates: dict[str, Fate] = {}
        """Kills of the broker, by the day that was being sent."""
        self.rows_sent = 0
        self.rows_sent_again = 0
        self._url = url
        self._watcher = watcher
        self._tell = tell
        self._advance = advance
        self._broker = self._connected()

    def run(self, days: Iterable[Day]) -> None:
        """Send all days in order; each is committed before the next begins."""
        for day in days:
            attempt = 1
            while not self._try(day, attempt):
                self.rows_sent_again += len(day.rows)
                attempt += 1
                if attempt > MOST_ATTEMPTS:
                    raise OutcomeUnknown(f"{day.name} was rolled back {MOST_ATTEMPTS} times; giving up")
            self.rows_sent += len(day.rows)
            self._advance(len(day.rows))

    def close(self) -> None:
        """Close the connection."""
        self._broker.close()

    def _try(self, day: Day, attempt: int) -> bool:
        """Send and commit a day; return False if the broker has rolled it back."""
        xid = self._broker.xid(FORMAT_ID, f"day-{day.name}", f"attempt-{attempt}")
        try:
            self._send(day, xid)
        except LOST:
            committed = self._committed_after_all(xid)
            self._note(day, xid, committed)
            return committed
        return True

    def _send(self, day: Day, xid: Xid) -> None:
        broker, watcher = self._broker, self._watcher
        watcher.begins(day.name, Phase.ADDING)
        broker.tpc_begin(xid)
        for row in day.rows:
            broker.send(row.topic, row.line, key=row.key, headers=headers_for(row))
        watcher.ended()
        watcher.begins(day.name, Phase.PREPARING)
        broker.tpc_prepare()
        watcher.ended()
        watcher.begins(day.name, Phase.PREPARED)
        watcher.begins(day.name, Phase.COMMITTING)
        broker.tpc_commit()
        watcher.ended()

    def _note(self, day: Day, xid: Xid, committed: bool) -> None:
        fate = Fate.COMMITTED if committed else Fate.SENT_AGAIN
        self.fates[day.name] = Fate.IN_DOUBT if xid in self.finished_in_doubt else fate
        self._tell(f"{day.name}: {self.fates[day.name].value}")

    def _committed_after_all(self, xid: Xid) -> bool:
        """Finish what is in doubt after a lost connection; return whether this transaction was committed."""
        while True:
            try:
                self._broker.close()
                self._broker = self._connected()
                self._finish_in_doubt()
                state = self._broker.outcome(xid).state
                if state in (State.COMMITTED, State.ROLLED_BACK):
                    return state is State.COMMITTED
            except UnknownTransaction:
                return False  # presumed abort: a transaction that was not prepared has left no trace
            except LOST:
                pass
            time.sleep(0.01)

    def _finish_in_doubt(self) -> None:
        for xid in self._broker.tpc_recover():
            self._broker.tpc_commit(xid)
            self.finished_in_doubt.append(xid)

    def _connected(self) -> txbroker.Connection:
        deadline = time.monotonic() + GIVE_UP_AFTER
        while True:
            self._watcher.check()
            try:
                return txbroker.connect(self._url, client="demo producer", reconnect=False)
            except StorageUnavailable:
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.01)

"""Sends a year of days, one two-phase transaction each, and gets over a broker that dies on the way.

It keeps no record of its own of what is done. After a lost connection it asks the broker which transactions
are in doubt, commits them (a day is prepared only when all of it has been sent), and asks how the day at hand
ended.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from typing import Protocol

import txbroker
from demo.kills import Phase
from demo.source import Day
from demo.verify import headers_for
from journal.transaction import State, Xid
from txbroker.errors import OutcomeUnknown, StorageUnavailable, UnknownTransaction

FORMAT_ID = 2013
GIVE_UP_AFTER = 60.0
"""Seconds without a broker until the producer gives up."""

LOST = (StorageUnavailable, OutcomeUnknown)
"""What a producer sees when the broker dies: nothing was sent, or what was sent may have happened or not."""


class Watcher(Protocol):
    """Is told what the producer does. ``check`` raises if waiting for the broker has become pointless."""

    def begins(self, day: str, phase: Phase, attempt: int) -> None: ...
    def ended(self) -> None: ...
    def check(self) -> None: ...


class Producer:
    """``tell`` gets sentences for people, ``advance`` the number of rows each time a day is committed."""

    def __init__(
        self, url: str, watcher: Watcher, tell: Callable[[str], None], advance: Callable[[int], None]
    ) -> None:
        self.finished_in_doubt: list[Xid] = []
        """Transactions found prepared after a kill, and committed."""
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
            self.rows_sent += len(day.rows)
            self._advance(len(day.rows))

    def close(self) -> None:
        """Close the connection."""
        self._broker.close()

    def _try(self, day: Day, attempt: int) -> bool:
        """Send and commit a day; false if the broker has rolled that back."""
        xid = self._broker.xid(FORMAT_ID, f"day-{day.name}", f"attempt-{attempt}")
        try:
            self._send(day, xid, attempt)
        except LOST:
            return self._committed_after_all(xid)
        return True

    def _send(self, day: Day, xid: Xid, attempt: int) -> None:
        broker, watcher = self._broker, self._watcher
        watcher.begins(day.name, Phase.ADDING, attempt)
        broker.tpc_begin(xid)
        for row in day.rows:
            broker.send(row.topic, row.line, key=row.key, headers=headers_for(row))
        watcher.ended()
        watcher.begins(day.name, Phase.PREPARING, attempt)
        broker.tpc_prepare()
        watcher.ended()
        watcher.begins(day.name, Phase.PREPARED, attempt)
        watcher.begins(day.name, Phase.COMMITTING, attempt)
        broker.tpc_commit()
        watcher.ended()

    def _committed_after_all(self, xid: Xid) -> bool:
        """After a lost connection: finish what is in doubt, then ask how this transaction ended."""
        while True:
            try:
                self._broker.close()
                self._broker = self._connected()
                self._finish_in_doubt()
                return self._broker.outcome(xid).state is State.COMMITTED
            except UnknownTransaction:
                return False
            except LOST:
                continue

    def _finish_in_doubt(self) -> None:
        for xid in self._broker.tpc_recover():
            self._broker.tpc_commit(xid)
            self.finished_in_doubt.append(xid)
            self._tell(f"found {xid} in doubt and committed it")

    def _connected(self) -> txbroker.Connection:
        deadline = time.monotonic() + GIVE_UP_AFTER
        while True:
            self._watcher.check()
            try:
                return txbroker.connect(self._url, client="demo producer")
            except StorageUnavailable:
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.01)

"""The branches of a task: its messages go into one transaction after the other, each prepared in time.

The broker rolls back transactions that stay open for long, and Spark's tasks may wait for their rows for hours. So a
branch is prepared after some seconds also while the task waits, and its next rows begin another.
"""

from __future__ import annotations

import threading
import time

from journal.formats.frame import INNER_HEADER_BYTES
from spark.sink.branches import Branch, Write, end
from spark.sink.register import Extent
from spark.sink.row_frames import Columns, Places, split
from txbroker import errors
from txbroker.client.blocking import Connection
from txbroker.client.blocking.transaction import Transaction


class BranchWriter:
    """Writes one task's rows. For one thread; a second thread prepares in time."""

    def __init__(
        self,
        broker: Connection,
        write: Write,
        epoch: int,
        partition: int,
        *,
        branch_bytes: int,
        branch_seconds: float,
        by_key: bool = True,
    ) -> None:
        self.write = write
        self.epoch = epoch
        self.partition = partition
        self.prepared: list[Branch] = []
        self.extent = Extent()
        self._broker = broker
        self._branch_bytes = branch_bytes
        self._branch_seconds = branch_seconds
        self._places = Places(partition, by_key, broker.core.options.batch_bytes)
        self._lock = threading.Lock()
        self._open: tuple[Branch, Transaction] | None = None
        self._open_bytes = 0
        self._timer: threading.Timer | None = None
        self._failure: Exception | None = None

    def send(self, columns: Columns) -> None:
        """Add messages; also raises the error of earlier ones."""
        with self._lock:
            self._check()
            if self._open is None:
                self._begin()
            assert self._open is not None
            now = time.time_ns() // 1000
            self._open[1].send_frames(columns.topic, lambda count: split(columns, self._places, count, now))
            self.extent = self.extent.plus(
                Extent(len(columns.values), columns.bytes, frozenset((columns.topic,)))
            )
            self._open_bytes += columns.bytes + INNER_HEADER_BYTES * len(columns.values)
            if self._open_bytes >= self._branch_bytes:
                self._prepare()

    def finish(self) -> list[Branch]:
        """Prepare the open branch; return all branches, each forced to the broker's disk."""
        with self._lock:
            self._check()
            self._prepare()
            return list(self.prepared)

    def roll_back(self) -> None:
        """Roll all branches back; raises if the broker cannot be told, or refuses."""
        with self._lock:
            self._stop_timer()
            if self._open is not None:
                self._open[1].rollback()
                self._open = None
            refused = end(self._broker, self.prepared, commit=False)
            self.prepared.clear()
        for error in refused.values():
            raise error

    def _begin(self) -> None:
        branch = Branch.new(self.write, self.epoch, self.partition, len(self.prepared))
        self._open = (branch, self._broker.transaction(branch.xid))
        self._open_bytes = 0
        self._timer = threading.Timer(self._branch_seconds, self._in_time, [branch])
        self._timer.daemon = True
        self._timer.start()

    def _in_time(self, branch: Branch) -> None:
        """Prepare a branch when its time is over; on the timer's thread."""
        with self._lock:
            if self._open is not None and self._open[0] == branch:
                try:
                    self._prepare()
                except Exception as error:  # noqa: BLE001 - the task's thread raises it at its next call
                    self._failure = error

    def _prepare(self) -> None:
        self._stop_timer()
        if self._open is None:
            return
        branch, transaction = self._open
        try:
            transaction.prepare()
        except errors.OutcomeUnknown:
            self.prepared.append(branch)  # it may be prepared: roll it back with the others
            self._open = None
            raise
        self.prepared.append(branch)
        self._open = None

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _check(self) -> None:
        if self._failure is not None:
            raise self._failure

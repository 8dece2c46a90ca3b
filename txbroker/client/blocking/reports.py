"""The blocking client's reports: a thread sends them, also while no caller uses the connection."""

from __future__ import annotations

import threading
from collections.abc import Coroutine
from typing import Any, Protocol

from txbroker import errors
from txbroker.client.blocking.semaphore import BinarySemaphore
from txbroker.client.core.promise import Promise
from txbroker.client.producer.reports import LAST_REPORT_FAILED, Reports, log


class Runner(Protocol):
    """The part of a connection that reports need."""

    def run(self, operation: Coroutine[Promise[Any], None, Any], timeout: float | None = None) -> Any:
        """Run an operation of the core."""


class Reporter:
    """The thread that sends reports. It ends with the connection."""

    def __init__(self, connection: Runner, reports: Reports) -> None:
        self._connection = connection
        self._reports = reports
        self._stopped = BinarySemaphore()
        self._thread = threading.Thread(target=self._go_on, name="txbroker-reports", daemon=True)

    def start(self) -> None:
        """Start the thread; the caller must already hold this object, so that it can end it."""
        self._thread.start()

    def _go_on(self) -> None:
        while not self._stopped.acquire(self._reports.interval):
            try:
                self._connection.run(self._reports.report())
            except errors.TxBrokerError as error:
                if self._reports.is_over:
                    return
                log.warning("a report could not be sent and is tried again: %s", error)

    def end(self) -> None:
        """End the thread, without a last report."""
        self._stopped.release()

    def stop(self, timeout: float) -> None:
        """Send the last report, within ``timeout`` seconds."""
        self.end()
        try:
            self._connection.run(self._reports.report(closing=True), timeout)
        except (errors.TxBrokerError, TimeoutError) as error:
            log.warning(LAST_REPORT_FAILED, error)

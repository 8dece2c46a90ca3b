"""One life of a client of a drill: from the start of its process until it stops, or is killed."""

from __future__ import annotations

import os
import random
import signal
import time
from contextlib import suppress
from typing import NoReturn

import txbroker
from txbroker.drill.clients.ledger import Ledger, Surprise
from txbroker.drill.clients.messages import MessageId
from txbroker.drill.plan.plan import Plan
from txbroker.errors import (
    ConnectionClosed,
    GenerationFenced,
    OutcomeUnknown,
    StorageUnavailable,
    TransactionRolledBack,
    TxBrokerError,
)

LOST = (StorageUnavailable, OutcomeUnknown)
"""Errors that a client may get while a broker is killed, stopped or slow: not done, or not known whether."""

EXPECTED = (*LOST, TransactionRolledBack, ConnectionClosed, GenerationFenced)
"""These errors, and those of a transaction that the broker rolled back or of a relay replaced by a newer life."""

PAUSE = 0.05
"""Seconds to wait after a failure."""


class Life:
    """The common parts of every role: the plan, the ledger, random numbers from the seed, and connections to
    the broker.
    """

    def __init__(self, plan: Plan, client: str, number: int) -> None:
        self.plan = plan
        self.client = client
        self.sender = f"{client}.{number}"
        self.ledger = Ledger(plan.ledgers, self.sender)
        self.chance = random.Random(f"{plan.seed}/{self.sender}")
        self.connections = 0
        self.operations = 0
        self.stopping = False
        self._parent = os.getppid()
        self._due = time.monotonic()
        signal.signal(signal.SIGTERM, self._stop)
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the drill, which then ends its clients

    def _stop(self, *_: object) -> None:
        self.stopping = True

    def goes_on(self) -> bool:
        """Return whether to go on: no stop was requested, and the drill that started this process still runs."""
        return not self.stopping and os.getppid() == self._parent

    def connect(self, reconnect: bool = True) -> txbroker.Connection:
        """Return a new connection; waits for the broker. Raises ConnectionUnavailable if the life does not go on."""
        ways = self.plan.compression
        way = self.chance.choice(ways) if len(ways) > 1 else ways[0]
        while True:
            try:
                found = txbroker.connect(
                    self.plan.url,
                    client=self.sender,
                    timeout=self.plan.timeout,
                    reconnect=reconnect,
                    compression=None if way == "none" else way,
                )
            except LOST:
                if not self.goes_on():
                    raise
                self.pause()
            else:
                self.connections += 1
                return found

    def drop(self, connection: txbroker.Connection) -> None:
        """Close a connection whose unanswered requests no longer matter: the answers that came are in the
        ledger already.
        """
        with suppress(TxBrokerError):
            connection.close(0.0)

    def next_operation(self) -> int:
        """Return the number of the next operation of this life."""
        self.operations += 1
        return self.operations

    def identity(self, operation: int, index: int, together: int, large: bool = False) -> MessageId:
        """Return the next message, of a random size: mostly small."""
        chance = self.chance
        size = self.plan.largest if large else chance.choice((20, 100, 300, 300, 1000, 5000))
        return MessageId(
            self.plan.name, self.sender, operation, index, together, min(size, self.plan.largest)
        )

    def pace(self, messages: int) -> None:
        """Wait as long as the rate requires after so many messages; lost time is not made up."""
        if self.plan.rate:
            now = time.monotonic()
            self._due = max(self._due, now - 0.1) + messages / self.plan.rate
            time.sleep(min(max(0.0, self._due - now), 1.0))

    def pause(self) -> None:
        """Wait after a failure."""
        time.sleep(PAUSE)

    def surprised(self, doing: str, error: BaseException) -> None:
        """Write an answer that no kill explains to the ledger."""
        self.ledger.write(Surprise(doing=doing, error=text_of(error)))

    def die(self) -> NoReturn:
        """Send SIGKILL to this process, as the plan has it."""
        os.kill(os.getpid(), signal.SIGKILL)
        raise AssertionError("SIGKILL cannot be survived")


def text_of(error: BaseException) -> str:
    """Return an error on one line."""
    return f"{type(error).__name__}: {' '.join(str(error).split())}"

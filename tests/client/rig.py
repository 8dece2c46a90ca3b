"""The rig of the clients' tests: a client's core and a scripted broker on one thread, with a manual clock and a cable
to cut.
"""

from __future__ import annotations

from collections.abc import Coroutine
from typing import Any, TypeVar

from txbroker.client.consumer.shared_fetch import SharedFetch
from txbroker.client.core.core import Core
from txbroker.client.core.options import Options
from txbroker.client.core.phase import Phase
from txbroker.client.core.promise import Promise, start
from txbroker.client.operations.operations import Operations
from txbroker.client.operations.transaction_operations import TransactionOperations
from txbroker.client.producer.producer import Producer
from txbroker.client.transactions.serials import Serials
from txbroker.client.transactions.transaction import Transaction

T = TypeVar("T")


class Asked(Operations, TransactionOperations):
    """The operations of every client, as coroutines that nobody has started."""

    def __init__(self, core: Core) -> None:
        self.core = core

    def run(self, operation: Coroutine[Promise[Any], None, T]) -> Coroutine[Promise[Any], None, T]:
        return operation


class Rig:
    def __init__(self, broker, **options: Any) -> None:
        self.now = 1000.0
        self.broker = broker
        self.core = Core(Options(**options), lambda: self.now, lambda: 0.5, lambda: round(self.now * 1e6))
        self.shared_fetch = SharedFetch(self.core)
        self.producer = Producer(self.core)
        self.serials = Serials(self.core)
        self.operations = Asked(self.core)
        self.feed = None
        self.session = 0
        self.connect()

    def connect(self) -> None:
        if self.core.phase is Phase.DOWN:
            if self.core.wakeup() <= self.now:
                self.core.tick()
            self.now = max(self.now, min(self.core.wakeup(), self.now + 5))
            assert self.core.connection_due()
        self.core.connecting()
        self.feed = self.broker.connection()
        self.core.connected()
        self.pump()
        self.session = self.broker.session

    def pump(self) -> None:
        """Move bytes both ways until there are none, and have the core do what is due, as a client does."""
        while self.feed is not None and (output := self.core.take_output()):
            answers = self.feed(b"".join(output))
            if answers:
                self.core.received(answers)
            if self.core.wakeup() <= self.now:
                self.core.tick()

    def cut(self, reason: str = "cable cut") -> None:
        self.feed = None
        self.broker.disconnected(self.session)
        self.core.lost(reason)

    def wait(self, seconds: float) -> None:
        """Let time pass, step by step."""
        end = self.now + seconds
        while self.now < end:
            self.now = min(end, max(self.now + 0.001, self.core.wakeup()))
            self.core.tick()
            self.pump()

    def start(self, operation: Coroutine[Promise[Any], None, T]) -> Promise[T]:
        promise = start(operation)
        self.pump()
        return promise

    def run(self, operation: Coroutine[Promise[Any], None, T]) -> T:
        promise = self.start(operation)
        assert promise.done, "the operation still waits"
        return promise.result()

    def send(self, value: bytes, topic: str = "t", key: bytes | None = None):
        route = self.producer.known_route(topic) or self.run(self.producer.route(topic))
        batch, position = route.choose(key, None).append(value, 1, key, None)
        return batch, position

    def transaction(self, xid=None) -> Transaction:
        return Transaction(self.core, self.producer, self.serials, xid)


def failed(deferred: Any) -> None:
    """Raise what a Deferred has failed with already."""
    failures: list[Any] = []
    deferred.addErrback(failures.append)
    failures[0].raiseException()


def send_as_adds(transaction: Transaction) -> None:
    """Send what waits before the decision, as if it were too much for one request."""
    contents = transaction.contents
    for positions in list(contents._positions):
        contents._post_positions(positions)
    for queue, batch in list(contents._batches.values()):
        contents._post(queue, batch)


def add(transaction: Transaction, value: bytes, topic: str = "t"):
    return transaction.send(topic, value, None, None, None)

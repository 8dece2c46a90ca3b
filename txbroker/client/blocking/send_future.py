"""The future of a message sent asynchronously. It is light, because a client makes hundreds of thousands a second."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol

from journal.arguments import seconds
from txbroker import errors
from txbroker.client.core.partitioner import check_asking
from txbroker.client.core.promise import Promise
from txbroker.client.core.results import Receipt
from txbroker.client.producer.batch import Batch
from txbroker.client.producer.partition_queue import PartitionQueue
from txbroker.client.producer.receipts import Appended

if TYPE_CHECKING:
    from txbroker.client.blocking.driver import Driver
    from txbroker.client.producer.producer import Producer
    from txbroker.wire.messages import Sent


class SendFuture:
    """The future of a message, with the methods of ``concurrent.futures.Future``.

    It is no subclass, because it shares the answer of its batch (0.2 µs instead of 2). So ``concurrent.futures.wait``
    does not take it; ``Connection.flush`` waits for all.
    """

    __slots__ = ("_batch", "_driver", "_id", "_position", "_queue", "_target")

    def __init__(
        self,
        driver: Driver,
        queue: PartitionQueue,
        batch: Batch,
        position: int,
        target: PartitionQueue,
        id: bytes | None = None,
    ) -> None:
        self._driver = driver
        self._target = target
        self._queue = queue
        self._batch = batch
        self._position = position
        self._id = id

    def result(self, timeout: float | None = None) -> Receipt:
        """Wait for the receipt; raises the error of the send, or ``TimeoutError``."""
        base, queue = self._wait(timeout).base_offset, self._queue
        if queue is self._target:
            return Receipt(queue.topic, queue.index, base + self._position, id=self._id)
        return Appended(queue, self._batch, self._position, self._target).receipt(base, self._id)

    def _wait(self, timeout: float | None) -> Sent:
        """Wait for the answer. If the caller gives up before it comes, a flush reports a failure."""
        batch = self._batch
        limit = None if timeout is None else seconds("timeout", timeout, "nothing was awaited")
        try:
            sent = self._driver.wait(batch, limit)
        except BaseException as error:
            if error is batch.error:
                batch.watched = False
            else:
                # Not under the lock: a partitioner may run under it, and it raises this.
                self._queue.leave(batch)
            raise
        batch.watched = False
        return sent

    def exception(self, timeout: float | None = None) -> BaseException | None:
        """Wait for the end of the send, and return its error, or None."""
        try:
            self._wait(timeout)
        except BaseException as error:
            if error is not self._batch.error:
                raise
        return self._batch.error

    def done(self) -> bool:
        """Return whether the answer has come."""
        return self._batch.done

    def running(self) -> bool:
        """Return whether the answer is still to come."""
        return not self._batch.done

    def cancel(self) -> bool:
        """Return False: a message that was accepted cannot be taken back."""
        return False

    def cancelled(self) -> bool:
        """Return False."""
        return False

    def add_done_callback(self, callback: Callable[[SendFuture], object]) -> None:
        """Call ``callback(self)`` when the answer has come, on the thread that received it."""
        driver = self._driver
        check_asking(driver.core.asking, driver.core.thread())
        self._batch.watched = False
        with driver.lock:
            if not self._batch.done:
                self._batch.then(lambda: driver.core.later.append(lambda: callback(self)))
                return
            driver.core.later.append(lambda: callback(self))
        driver.call_back()


class Sender(Protocol):
    """The connection, as far as a flush needs it."""

    _driver: Driver
    _producer: Producer

    def run(self, operation: Coroutine[Promise[Any], None, None], timeout: float | None = None) -> None:
        """Run an operation of the core."""


def flush(sender: Sender, limit: float | None) -> None:
    """Wait for all sends and raise the first failure. If an interrupt comes first, the next flush raises it."""
    batches: list[Batch] = []
    try:
        sender.run(sender._producer.flush(batches), limit)
    except errors.TxBrokerError:
        raise  # a failure, or the flush was given up, and has kept what it waited for
    except BaseException:
        sender._driver.guarded(partial(sender._producer.keep, batches))
        raise

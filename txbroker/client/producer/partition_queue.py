"""The queue of one partition: every send happens once and in order, over all retries.

Batches are sent one after another without waiting. When one is refused, the queue waits until all in flight are
answered, drops those that failed for good, and sends the others again in their order, numbered from the first refused
one. That is safe, because a sequence is used again only after the broker has said that the batch which had it was not
stored. It is not used again if the broker may still get another copy of that batch, late, from a connection that died:
then the queue continues under a new producer. A gap that no refusal explains breaks the queue.
"""

from __future__ import annotations

import math
from collections import deque
from typing import Protocol, cast

from journal.formats.compression import Compressor
from journal.message_headers import GivenHeaders
from txbroker import errors
from txbroker.client.core.call import Call
from txbroker.client.core.core import Core
from txbroker.client.core.options import Backoff
from txbroker.client.core.phase import Phase
from txbroker.client.core.waits import Alarm
from txbroker.client.producer.batch import Batch
from txbroker.client.producer.reports import Reports
from txbroker.wire.messages import Answer, Send


class Sender(Protocol):
    """The producer of a partition's queue: its number at the broker, and the unanswered batches of all its queues."""

    core: Core
    identity: tuple[int, int]
    sequences: dict[int, int]
    buffered: int
    backoff: Backoff
    compressor: Compressor | None
    reports: Reports | None

    def ready(self) -> bool:
        """Return whether batches may be sent now; if not, start what is needed for it."""

    def new_batch(self, queue: PartitionQueue) -> Batch:
        """Return a batch for a queue, with its timeout running."""

    def check_size(self, batch: Batch) -> None:
        """Raise MessageTooLarge for a batch that the broker would refuse."""

    def freed(self, batch: Batch) -> None:
        """Release the room of a batch."""

    def leave(self, batch: Batch) -> None:
        """Note that no caller waits for a batch: a flush reports a failure."""

    def expired(self, identity: tuple[int, int]) -> None:
        """Note that the broker has forgotten this producer: the next batch opens a new one."""

    def forget_route(self, topic: str) -> None:
        """The topic may have another limit of messages now: the next send looks."""

    def gone(self, queue: PartitionQueue) -> None:
        """The broker says that a queue's partition is gone, and so its topic is."""

    def unsent(self) -> errors.TxBrokerError:
        """Return the error for a caller whose message was not sent in time."""


class PartitionQueue:
    """The messages of one partition on their way. ``index`` is its place in the topic, ``number`` the broker's number.

    ``most`` is how many bytes of messages a wrapper may have, so that its frame is within what the topic allows, and
    ``room`` how many a batch may have.
    """

    most: int
    room: int

    def __init__(self, producer: Sender, topic: str, index: int, number: int) -> None:
        self.topic = topic
        self.index = index
        self.number = number
        self.partitions = 0
        """How many partitions the topic has, as far as is known."""
        self.open: Batch | None = None
        self.broken: errors.TxBrokerError | None = None
        self.batches_sealed = 0
        self._sealed: deque[Batch] = deque()
        self._flying: dict[Batch, None] = {}
        self._returned: list[Batch] = []
        self._paused = False
        self._held_up: errors.TxBrokerError | None = None
        self._identity = (0, 0)
        self._sequence = 0
        self._lingering: Alarm | None = None
        self._producer = producer
        self._core = producer.core

    def bound(self, most: int) -> None:
        """Take the bound of wrappers; it holds for what is added from now on. Call it before anything is added."""
        self.most = most
        self.room = min(self._core.options.batch_bytes, most)

    def batch(self, deadline: float) -> Batch:
        """Return a new batch for messages that are sent by themselves."""
        return Batch(deadline, self.settled)

    def part(self) -> Batch:
        """Return a new batch for messages of a transaction."""
        return Batch(math.inf)

    def spread(self) -> None:
        """Have the next messages without a key go to another partition."""
        self.batches_sealed += 1

    def append(
        self, value: bytes | None, timestamp: int, key: bytes | None, headers: GivenHeaders | None
    ) -> tuple[Batch, int]:
        """Add a message; return its batch and its position there. Raises the error that makes sending impossible."""
        producer = self._producer
        if self.broken is not None:
            raise self.broken.with_traceback(None)
        batch = self.open
        if batch is None:
            return self._begin(value, timestamp, key, headers)
        before = batch.size
        position = batch.add(value, timestamp, key, headers, self.room)
        if position < 0:
            self.flush()
            return self._begin(value, timestamp, key, headers)
        producer.buffered += batch.size - before
        return batch, position

    def _begin(
        self, value: bytes | None, timestamp: int, key: bytes | None, headers: GivenHeaders | None
    ) -> tuple[Batch, int]:
        """Add the first message of a batch, and send it alone if nothing is in flight, or it is large."""
        producer = self._producer
        batch = producer.new_batch(self)
        batch.add(value, timestamp, key, headers, 0)
        producer.check_size(batch)
        producer.buffered += batch.size
        self.open = batch
        linger = self._core.options.linger
        if batch.size >= self.room or not (linger or self._flying or self._sealed):
            self.flush()
        elif linger:
            self._lingering = self._core.waits.alarm(linger, self.flush)
        return batch, 0

    def flush(self) -> None:
        """Send everything that waits, as soon as it may be sent."""
        batch = self.open
        if batch is not None:
            if self._lingering is not None:
                self._lingering.cancel()
            self.seal(batch)
            self._sealed.append(batch)
            self.open = None
            self.batches_sealed += 1
        if self._sealed and not self._paused and self._producer.ready() and self._knows_its_sequence():
            self._send()

    def seal(self, batch: Batch) -> bytes:
        """Return the frames of a batch for this partition; a message too large for a wrapper is sent as it is."""
        return batch.seal(self._producer.compressor if batch.size <= self.most else None)

    def _knows_its_sequence(self) -> bool:
        identity = self._producer.identity
        if self._identity != identity:
            if self._flying:
                return False  # the last ones under the old number are not answered yet
            self._identity = identity
            self._sequence = self._producer.sequences.pop(self.number, 0)
            waiting, self._sealed = self._sealed, deque()
            for batch in waiting:
                if batch.attempts > 1 or isinstance(batch.refusal, errors.OutcomeUnknown):
                    self._end(batch, doubtful(cast(errors.TxBrokerError, batch.refusal)))
                else:
                    self._sealed.append(batch)
        return True

    def _send(self) -> None:
        core = self._core
        while self._sealed:  # in an order that can be repaired wherever it is interrupted
            batch = self._sealed[0]
            batch.number(Send(core.correlation(), self.number, *self._identity, self._sequence))
            self._flying[batch] = None
            core.submit(batch)
            self._sequence += batch.count
            self._sealed.popleft()

    def mend(self) -> None:
        """Repair what an interrupt may have left half done."""
        if self._sealed and self._sealed[-1] is self.open:
            self.open = None
        if self.open is not None and not self.open.frames:
            self.open.mend()
        core, flying = self._core, self._flying
        for batch in [batch for batch in self._sealed if batch in flying]:
            if core.has(cast("Call[Answer]", batch)):
                self._sealed.remove(batch)
                self._sequence = cast(Send, batch.request).sequence + batch.count
            else:
                del flying[batch]
        self._returned = [batch for batch in self._returned if batch not in self._sealed]
        for batch in list(flying):
            if batch in self._returned or batch.is_over:
                del flying[batch]
            elif not core.has(cast("Call[Answer]", batch)):
                core.submit(
                    cast("Call[Answer]", batch)
                )  # an interrupt came while its answer was received: it is asked for again
        if self._paused and not flying and not self._returned:
            self._core.waits.alarm(0.0, self._resume)
        elif self._returned and not flying:
            self._sort_out()
        elif not flying:
            self.flush()

    def settled(self, batch: Batch) -> None:
        """Continue after the broker has answered a batch: send the next ones, or treat the refused ones."""
        if batch.refusal is None:
            self._held_up = None
            if batch.acknowledged and (reports := self._producer.reports) is not None:
                reports.acknowledged(self.topic, batch.frames)
            self._producer.freed(batch)
            self._flying.pop(batch, None)  # last: if interrupted before, it is repaired
        else:
            self._paused = True
            self._returned.append(batch)
            self._flying.pop(batch, None)
        if self._flying or self._core.phase is Phase.CLOSED:
            return
        if self._returned:
            self._sort_out()
        elif not self._paused and not self._core.options.linger:
            self.flush()

    def _sort_out(self) -> None:
        """Treat refused batches once all in flight are answered: fail those that failed for good, queue the
        others again.
        """
        returned = sorted(self._returned, key=lambda batch: cast(Send, batch.request).sequence)
        for batch in filter(is_stored, returned):
            self._end(
                batch,
                errors.OutcomeUnknown(f"no receipt can be had, do not send them again: {batch.refusal}"),
            )
        returned = [batch for batch in returned if not is_stored(batch)]
        if not returned:
            self._returned = []
            self._resume()
            return
        first = cast(errors.TxBrokerError, returned[0].refusal)
        self._sequence = cast(Send, returned[0].request).sequence
        if isinstance(first, (errors.SequenceOutOfOrder, errors.ProducerFenced)):
            self.broken = first
        if isinstance(first, (errors.UnknownPartition, errors.UnknownExchange, errors.MessageTooLarge)):
            self.misfit(returned[0], first)
        if isinstance(first, errors.UnknownProducer):
            self._producer.expired(self._identity)
        in_doubt = any(batch.attempts > 1 for batch in returned)
        again = [batch for batch in returned if not self._ended(batch)]
        if in_doubt and len(again) < len(returned) and self.broken is None:
            # A late copy of a batch in doubt would be taken for the one that has its number now, or be stored twice.
            self._producer.expired(self._identity)
        self._sealed.extendleft(reversed(again))
        self._returned = []
        if self.broken is not None:
            self._fail_unsent(self.broken)
        self._held_up = next((cause for batch in again if _is_held_up(cause := batch.refusal)), self._held_up)
        unavailable = (errors.StorageUnavailable, errors.OutcomeUnknown)
        if any(isinstance(batch.refusal, unavailable) for batch in again):
            self._core.waits.alarm(self._producer.backoff.next(), self._resume)
        else:
            self._resume()

    def misfit(
        self,
        batch: Batch,  # noqa: ARG002 - all of them are for the one partition
        refusal: errors.UnknownPartition | errors.UnknownExchange | errors.MessageTooLarge,
    ) -> None:
        """Note that the broker has refused a batch for what its topic is now."""
        if not isinstance(refusal, errors.MessageTooLarge):
            self.broken = refusal
            self._producer.gone(self)
        else:  # the topic may take less than it did
            self._producer.forget_route(self.topic)

    def _ended(self, batch: Batch) -> bool:
        """Fail a refused batch if it has failed for good, and return True; otherwise it is sent again."""
        refusal = cast(errors.TxBrokerError, batch.refusal)
        in_doubt = batch.attempts > 1
        if self.broken is None:
            if isinstance(refusal, errors.OutcomeUnknown):
                return False  # the same sequence, sent again, shows it
            if isinstance(refusal, errors.StorageUnavailable) and (in_doubt or not batch.done):
                batch.attempts -= not in_doubt
                return False
            if isinstance(refusal, errors.SequenceOutOfOrder):
                batch.attempts -= not in_doubt
                return False
            if isinstance(refusal, errors.UnknownProducer) and not in_doubt:
                batch.attempts = 0
                return False
        self._end(batch, doubtful(refusal) if in_doubt else refusal)
        return True

    def _end(self, batch: Batch, error: errors.TxBrokerError) -> None:
        reports = self._producer.reports
        if reports is not None and is_stored(batch):
            reports.acknowledged(self.topic, batch.frames)
        elif reports is not None and isinstance(error, errors.OutcomeUnknown):
            reports.doubtful(self.topic, batch.frames)
        batch.fail(error)
        self._producer.freed(batch)

    def _resume(self) -> None:
        self._paused = False
        self.flush()

    def _fail_unsent(self, error: errors.TxBrokerError) -> None:
        """Fail batches that have never been sent, and those that were refused as not stored."""
        waiting, self._sealed = self._sealed, deque()
        if self.open is not None:
            waiting.append(self.open)
            self.open = None
        for batch in waiting:
            self._end(batch, error)

    def stop(self, error: errors.TxBrokerError) -> None:
        """Fail all: the client is closed, or no producer can be opened."""
        self._fail_unsent(error)
        returned, self._returned = self._returned, []
        for batch in returned:
            self._end(batch, doubtful(error) if batch.attempts > 1 else error)

    def expire(self, now: float) -> float:
        """Fail batches that have waited here too long without being sent; return when to look again."""
        if self.open is not None and self.open.deadline <= now:
            batch, self.open = self.open, None
            self.seal(batch)
            self._sealed.append(batch)
        waiting, expired = self._sealed, [batch for batch in self._sealed if batch.deadline <= now]
        self._sealed = deque(batch for batch in waiting if batch.deadline > now or batch.attempts)
        for batch in expired:  # a callback may send again at once: its message comes behind these
            if batch.attempts:
                batch.deadline = math.inf
                batch.fail(doubtful(batch.refusal or self._producer.unsent()))
            else:
                self._end(batch, batch.refusal or self._held_up or self._producer.unsent())
        last = self.open.deadline if self.open is not None else math.inf
        return min((batch.deadline for batch in self._sealed), default=last)

    def leave(self, batch: Batch) -> None:
        """Note that the caller of a batch has given up: a flush reports a failure."""
        self._producer.leave(batch)

    def batches(self) -> list[Batch]:
        """Return all batches that have not been answered."""
        waiting = [*self._returned, *self._flying, *self._sealed]
        return [*waiting, self.open] if self.open is not None else waiting


def _is_held_up(refusal: errors.TxBrokerError | None) -> bool:
    """Return whether the broker accepts nothing for now; later batches were not sent for the same reason."""
    return isinstance(refusal, errors.StorageUnavailable)


def is_stored(batch: Batch) -> bool:
    """Return whether the broker says, of a repeated send, that it is stored at offsets that it no longer remembers."""
    next_one = (
        getattr(batch.refusal, "expected", 0) if isinstance(batch.refusal, errors.SequenceOutOfOrder) else 0
    )
    return batch.attempts > 1 and cast(Send, batch.request).sequence + batch.count <= next_one


def doubtful(cause: errors.TxBrokerError) -> errors.OutcomeUnknown:
    """Return the error for callers of a batch that was sent without an answer, and whose outcome cannot be
    asked for.
    """
    return errors.OutcomeUnknown(
        f"the messages were sent before and the answer was lost; sending them again met: {cause}; "
        "they may or may not be stored: read the partition before sending them anew"
    )

"""The contents of a transaction: messages that are not sent yet, in batches, and the sum of those sent."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import NamedTuple
from weakref import WeakMethod

from crc32c import crc32c

from journal.constants import MAX_OPENED_HEADS, MAX_REQUEST_ENTRIES, MAX_REQUEST_MESSAGES, OPENED_FRAME
from journal.formats.envelope import SCHEDULE_TOPIC
from journal.formats.frame import is_compressed
from journal.message_headers import GivenHeaders
from journal.random_id import new_id
from journal.records.group_entries import (
    MAX_FINISHED_BYTES,
    MAX_SETTLED,
    GroupPositions,
    PartitionOffset,
    Settled,
)
from journal.records.record import Placement
from journal.scheduled_id import ScheduledId
from journal.transaction_states import Totals, TransactionNumber
from journal.xid import Xid
from txbroker import errors
from txbroker.client.core.call import Call
from txbroker.client.core.core import Core
from txbroker.client.core.positions import requests_of, settling_requests
from txbroker.client.core.results import Run
from txbroker.client.producer.batch import Batch, Frames
from txbroker.client.producer.envelope_batch import EnvelopeBatch
from txbroker.client.producer.partition_queue import PartitionQueue
from txbroker.client.producer.producer import Producer
from txbroker.client.producer.reports import Counts, Reports
from txbroker.client.transactions.serials import Serials
from txbroker.client.transactions.settled_offsets import joined, merged
from txbroker.wire import messages as commands
from txbroker.wire.messages import MAX_SCHEDULED_IDS, Done, ScheduledPlace


class Unsent(NamedTuple):
    """The part that a deciding request carries; ``totals`` is the sum of what was added before, None for nothing."""

    totals: Totals | None
    runs: list[tuple[int, int]]
    positions: list[GroupPositions]
    data: bytes
    cancels: list[ScheduledPlace]


class NotBegun(Exception):
    """Contents do not fit into one request, and have no session in which to send a part; nothing was changed."""


class Contents:
    """The messages and positions of one transaction. ``number`` is None until its first request is sent.

    ``correlation`` is that of all its adds, which the broker answers only if it refuses one.
    """

    def __init__(self, core: Core, producer: Producer, serials: Serials, xid: Xid | None) -> None:
        self.number: TransactionNumber | None = None
        self.session = 0
        """The session in which it has begun."""
        self.correlation = 0
        self.size = 0
        """Bytes of the messages that :meth:`append` has taken, before they are compressed."""
        self.moves_groups = False
        """Whether it has, or has had, positions of groups."""
        self.added = 0
        """Messages that were added, or were being added when an interrupt came."""
        self._core = core
        self._producer = producer
        self._serials = serials
        self._xid = xid
        self._batches: dict[int, tuple[PartitionQueue, Batch]] = {}
        self._queues: dict[int, PartitionQueue] = {}
        self._positions: list[GroupPositions] = []
        self._cancels: dict[ScheduledId, None] = {}
        self._scheduled: list[tuple[PartitionQueue, int, int]] = []
        """Of each scheduled message the queue of its log, its number among those, and its checksum."""
        self._in_logs: dict[int, int] = {}
        """How many scheduled messages it has, by the partition numbers of their logs."""
        self._totals = Totals(0, 0, 0)
        self._carried = False
        """Whether a deciding request has carried the unsent contents."""
        self._is_reported = False
        self._counts: Counts = {}

    @property
    def is_known(self) -> bool:
        """Whether the broker may know of the transaction, because something of it was sent."""
        return self._carried or self._totals.requests > 0

    @property
    def is_empty(self) -> bool:
        """Whether it has no contents, sent or not."""
        return not (self._batches or self._positions or self._cancels or self.is_known)

    @property
    def has_begun(self) -> bool:
        """Whether it belongs to a session."""
        return self.correlation > 0

    def append(
        self,
        queue: PartitionQueue,
        value: bytes | None,
        timestamp: int,
        key: bytes | None,
        headers: GivenHeaders | None,
    ) -> None:
        """Add a message to the queue's batch; if it does not fit, raise the reason and change nothing."""
        self.added += 1
        try:
            self._append(queue, value, timestamp, key, headers)
        except (TypeError, NotBegun, errors.TxBrokerError):
            self.added -= 1
            raise

    def _append(
        self,
        queue: PartitionQueue,
        value: bytes | None,
        timestamp: int,
        key: bytes | None,
        headers: GivenHeaders | None,
    ) -> None:
        found = self._batches.get(queue.number)
        batch = found[1] if found else queue.part()
        before = batch.size
        if batch.frames:  # the caller that was about to send it was interrupted
            self._post(queue, batch)
            batch, before = queue.part(), 0
        if batch.add(value, timestamp, key, headers, queue.room) < 0:
            self._post(queue, batch)
            batch, before = queue.part(), 0
            batch.add(value, timestamp, key, headers, 0)
        if batch.count == 1:
            self._producer.check_size(batch)
            self._batches[queue.number] = (queue, batch)
            queue.spread()
        self.size += batch.size - before
        if isinstance(batch, EnvelopeBatch):
            number = self._in_logs.get(queue.number, 0)
            self._scheduled.append((queue, number, batch.checksums[-1]))
            self._in_logs[queue.number] = number + 1
        if batch.size >= queue.room and self.has_begun:
            self._post(queue, batch)

    def append_frames(self, queue: PartitionQueue, frames: Frames, first: int) -> int:
        """Add frames to the queue's batch, the ``first`` and as many more as fit; return the number of the next one.

        Raises MessageTooLarge for the first, and changes nothing then.
        """
        found = self._batches.get(queue.number)
        batch = found[1] if found else queue.part()
        fit = 0 if batch.frames else batch.fitting(frames, first, queue.room)
        if fit <= 0 and batch.count:
            self._post(queue, batch)
            batch = queue.part()
            fit = batch.fitting(frames, first, queue.room)
        last, is_new = first + max(fit, 1), not batch.count
        self.added += last - first
        batch.add_frames(frames, first, last)
        if is_new:
            try:
                self._producer.check_size(batch)
            except errors.TxBrokerError:
                self.added -= last - first
                raise
            self._batches[queue.number] = (queue, batch)
            queue.spread()
        if batch.size >= queue.room:
            self._post(queue, batch)
        return last

    def _post(self, queue: PartitionQueue, batch: Batch) -> None:
        """Send a batch of any transaction, perhaps of another thread. After an interrupt it is sent or still waits."""
        if not self.has_begun:
            raise NotBegun
        core, frames = self._core, queue.seal(batch)
        serial, before = self._serial(), self._totals
        totals = Totals(before.messages + batch.count, before.requests + 1, crc32c(frames, before.checksum))
        add = commands.Add(self.correlation, serial, queue.number, self._xid, self._serials.seen)
        message = core.packed(add, frames)
        try:
            core.put(message)
            self._sent(queue, totals)
        except BaseException:
            if core.has_put(message):
                self._sent(queue, totals)
            raise
        if self._producer.reports is not None:
            self._producer.reports.tally(self._counts, queue.topic, frames)

    def _sent(self, queue: PartitionQueue, totals: Totals) -> None:
        self._totals = totals
        self._queues[queue.number] = queue
        self._batches.pop(queue.number, None)

    @property
    def changes(self) -> int:
        """How many messages were added, and scheduled ones are to be taken back."""
        return self.added + len(self._cancels)

    def take_back(self, ids: Sequence[ScheduledId]) -> None:
        """Have scheduled messages taken back with the transaction; raises LimitExceeded for too many."""
        cancels = self._cancels | dict.fromkeys(ids)
        if len(cancels) > MAX_SCHEDULED_IDS:
            raise errors.LimitExceeded(
                f"a transaction takes back {MAX_SCHEDULED_IDS:,} scheduled messages at most; {len(cancels):,} would "
                "be; none was added now, the transaction goes on"
            )
        self._cancels = cancels

    def add_offsets(
        self, group: str, offsets: list[PartitionOffset], settled: Sequence[Settled] = ()
    ) -> None:
        """Have a group's positions move, and offsets be finished, with the transaction."""
        self.moves_groups = True
        self._positions.append(GroupPositions(group, new_id(), offsets, joined(settled)))
        if settled:
            self._positions[:] = merged(self._positions)

    def _post_positions(self, positions: GroupPositions) -> None:
        for some in requests_of(positions.offsets):
            self._post_offsets(positions, some, [])
        for few in settling_requests(positions.settled):
            self._post_offsets(positions, [], few)
        self._positions.remove(positions)

    def _post_offsets(
        self, positions: GroupPositions, offsets: list[PartitionOffset], settled: list[Settled]
    ) -> None:
        serial, seen = self._serial(), self._serials.seen
        self._core.post(
            commands.AddOffsets(
                self.correlation, serial, positions.group, offsets, self._xid, seen, positions.id, settled
            )
        )
        before = self._totals
        self._totals = Totals(before.messages, before.requests + 1, before.checksum)

    def _positions_fit(self) -> bool:
        """Return whether one request may have all positions and settled offsets."""
        settled = [each for positions in self._positions for each in positions.settled]
        return (
            sum([len(each.offsets) for each in self._positions]) + len(settled) <= MAX_REQUEST_ENTRIES
            and len(settled) <= MAX_SETTLED
            and sum([1 + len(each.retried) for each in settled]) <= MAX_REQUEST_ENTRIES
            and sum([len(each.finished) for each in settled]) <= MAX_FINISHED_BYTES
        )

    def _serial(self) -> int:
        """Return its serial. Before its first request that is the next one of the session."""
        if not self.is_known:  # if it has one, an interrupt came before a request with that was sent
            self.number = TransactionNumber(self.session, self._serials.begin(self))
        assert self.number is not None
        return self.number.serial

    @property
    def taken(self) -> int:
        """Messages that were sent or wait: as many as were :attr:`added`, unless a call was interrupted."""
        return self._totals.messages + sum([batch.count for _, batch in self._batches.values()])

    def unsent(self) -> Unsent:
        """Return all unsent contents, for the request that decides; parts that do not fit are sent before, as adds.

        From now on they count as sent.
        """
        while self._positions and not self._positions_fit():
            self._post_positions(self._positions[0])
        for queue, batch in self._batches.values():
            queue.seal(batch)
            self._queues[queue.number] = queue
        while len(self._batches) > 1 and not self._fits_one_request():
            self._post(*next(iter(self._batches.values())))
        self._serial()
        self._carried = True
        runs = [(number, len(batch.frames)) for number, (_, batch) in self._batches.items()]
        data = b"".join([batch.frames for _, batch in self._batches.values()])
        totals = self._totals if self._totals.requests else None
        return Unsent(totals, runs, self._positions, data, [each.place for each in self._cancels])

    def sealed(self) -> list[tuple[PartitionQueue, bytes]] | None:
        """Return the frames of each partition, if nothing was sent yet and all of it is messages that fit into one
        request.
        """
        if self.is_known or self._positions or self._cancels:
            return None
        found = [(queue, queue.seal(batch)) for queue, batch in self._batches.values()]
        return found if len(found) <= 1 or self._fits_one_request() else None

    def _fits_one_request(self) -> bool:
        batches = [batch for _, batch in self._batches.values()]
        opened = sum([OPENED_FRAME + batch.size for batch in batches if is_compressed(batch.frames)])
        return (
            sum([len(batch.frames) for batch in batches]) <= self._core.max_request
            and sum([batch.count for batch in batches]) <= MAX_REQUEST_MESSAGES
            and opened <= MAX_OPENED_HEADS
        )

    def drop_unsent(self) -> None:
        """Drop the unsent contents."""
        self._batches.clear()
        self._positions.clear()
        self._cancels.clear()

    def report(self, reports: Reports) -> bytes | None:
        """Return the report of the transaction, None if it has no contents; messages sent from now on are in no
        report.
        """
        counts = self.counts(reports)
        self.reported()
        return reports.of_transaction(counts, str(self._xid)) if counts else None

    def counts(self, reports: Reports) -> Counts:
        """Return the counts of messages that were sent, or wait, and are in no report."""
        if self._is_reported:
            return {}
        counts = {window: list(row) for window, row in self._counts.items()}
        for queue, batch in self._batches.values():
            reports.tally(counts, queue.topic, queue.seal(batch))
        return counts

    def reported(self) -> None:
        """Note that all its contents are in a report."""
        self._is_reported = True

    @property
    def topics(self) -> set[str]:
        """The topics of the messages that have been sent."""
        return {queue.topic for queue in self._queues.values()}

    def places(self, placements: list[Placement]) -> tuple[list[Run], list[ScheduledId]]:
        """Return where its messages are stored, and the ids of those that are scheduled, in the order of their adds."""
        bases = {place.partition: place.base_offset for place in placements}
        runs = [
            Run(queue.topic, queue.index, place.base_offset, place.count)
            for place in placements
            if (queue := self._queues.get(place.partition)) is not None and queue.topic != SCHEDULE_TOPIC
        ]
        ids = [
            ScheduledId(log.index, bases[log.number] + number, checksum)
            for log, number, checksum in self._scheduled
            if log.number in bases
        ]
        return runs, ids


class Adds(Call[Done]):
    """The one call for all adds, which are answered only if they are refused; a lost connection ends it, too.

    It does not keep the transaction alive whose method ``refused`` is.
    """

    __slots__ = ("_refused",)

    def __init__(self, correlation: int, refused: Callable[[errors.TxBrokerError], None]) -> None:
        super().__init__(commands.Add(correlation, 0, 0), Done, b"", math.inf)
        self._refused = WeakMethod(refused)

    def refused(self, error: errors.TxBrokerError) -> None:
        """Note that an add was refused."""
        refused = self._refused()
        if refused is not None:
            refused(error)

    def abandoned(self, error: errors.TxBrokerError) -> None:
        """Note that the session has ended, and the adds with it."""
        self.refused(error)

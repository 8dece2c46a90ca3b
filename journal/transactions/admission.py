"""The checks whether a transaction may take more: limits, partitions. They change nothing."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from journal.errors import LimitExceeded, NotScheduled, ScheduleHeld, TransactionTooLarge, reserved
from journal.formats.envelope import SCHEDULE_TOPIC, place_of
from journal.log.catalog import Catalog
from journal.records.group_entries import GroupPositions
from journal.records.queue_entries import QUEUE_TOPIC_PREFIX
from journal.records.record import Scheduled
from journal.transactions.decisions import Waiting
from journal.transactions.limits import TransactionLimits
from journal.transactions.state import Transaction, weight_of
from journal.transactions.table import TransactionTable
from journal.transactions.unsent import Unsent, UnsentRun, targets_of


class Admission:
    """Judges what is to be added to the transactions of a table."""

    def __init__(
        self, table: TransactionTable, catalog: Catalog, limits: TransactionLimits, schedule: Waiting
    ) -> None:
        self._schedule = schedule
        self._table = table
        self._catalog = catalog
        self._limits = limits

    def size(self, transaction: Transaction | None, size: int, count: int, requests: int = 1) -> None:
        """Raise for more bytes, messages or adds than the transaction, or all undecided ones together, may have."""
        limits, totals = self._limits, self._table.totals
        own, held, added = 0, 0, 0
        if transaction is not None:
            own, held, added = transaction.messages, transaction.staged.bytes, transaction.requests
        if (
            own + count <= limits.messages
            and added + requests <= limits.requests
            and held + size <= limits.bytes
            and totals.messages + count <= limits.total_messages
            and totals.requests + requests <= limits.total_requests
            and totals.bytes + size <= limits.total_bytes
        ):
            return  # 0.5 µs less than going through the table below; 60,000 times a second
        for what, value, limit in (
            ("messages", own + count, limits.messages),
            ("adds", added + requests, limits.requests),
            ("bytes", held + size, limits.bytes),
        ):
            _check_own(what, value, limit)
        for what, value, limit in (
            ("messages", totals.messages + count, limits.total_messages),
            ("adds", totals.requests + requests, limits.total_requests),
            ("bytes", totals.bytes + size, limits.total_bytes),
        ):
            _check_all(what, value, limit)

    def partition(self, transaction: Transaction | None, partition: int, more: int = 0) -> None:
        """Raise for a partition that takes no messages of clients, and for one more than a transaction may have.

        ``more``: how many other partitions the same request begins to use.
        """
        store = self._catalog.store(partition)
        if (
            store.internal
            and store.topic != SCHEDULE_TOPIC
            and not store.topic.startswith(QUEUE_TOPIC_PREFIX)
        ):
            raise reserved(store.topic)
        used: Collection[int] = transaction.partitions if transaction else ()
        if partition not in used and len(used) + more >= self._limits.partitions:
            raise TransactionTooLarge(
                f"the transaction has messages for {len(used) + more} partitions, the limit; "
                "nothing of this request was stored"
            )

    def unsent(self, known: Transaction | None, unsent: Unsent) -> None:
        """Raise unless there is room, and a partition, for the contents of a deciding request."""
        self.size(known, unsent.bytes, unsent.messages, 0)
        if known is None and len(unsent.runs) == 1 and not unsent.positions:
            store = self._catalog.stores.get(unsent.runs[0][0])
            if store is not None and not store.internal:
                return  # the most common case
        self.partitions(known, unsent.runs)
        if unsent.positions:
            self.positions(known, unsent.positions)

    def partitions(self, known: Transaction | None, runs: Sequence[UnsentRun]) -> None:
        """Do what :meth:`partition` does, for the logs of several runs; those of queues must be named by an
        exchange.
        """
        used: Collection[int] = known.partitions if known else ()
        fresh: set[int] = set()
        for partition, _, _, also in runs:
            for target in targets_of(partition, also):
                if target not in fresh:
                    self.partition(known, target, len(fresh))
                if target not in used:
                    fresh.add(target)

    def taking_back(self, messages: Sequence[Scheduled]) -> None:
        """Raise unless all these scheduled messages wait, and no other transaction takes them back."""
        logs = self._catalog.topics.get(SCHEDULE_TOPIC)
        ends = [] if logs is None else [store.high_watermark for store in logs.partitions]
        if (conflict := self._schedule.conflict_of(messages, ends)) is None:
            return
        number, holder = conflict
        log, offset = place_of(number)
        if holder is not None:
            raise ScheduleHeld(
                f"transaction {holder} (xid {self._table.live[holder].xid}), which is prepared, takes back message "
                f"{log}-{offset} of the schedule; nothing was changed. End it first, or wait for its outcome"
            )
        raise NotScheduled(
            f"message {log}-{offset} of the schedule does not wait: it was sent or taken back meanwhile, or there was "
            "none; nothing was changed. Ask what became of it ('txbroker scheduled show')"
        )

    def positions(self, transaction: Transaction | None, positions: Sequence[GroupPositions]) -> None:
        """Raise for more positions of groups, and more that they settle, than allowed; for unknown partitions, too."""
        count = 0
        for each in positions:
            count += len(each.offsets)
            for offset in each.offsets:
                self._catalog.store(offset.partition)
            if each.settled:
                count += weight_of(each.settled)
                for settled in each.settled:
                    self._catalog.store(settled.partition)
        own = count + (transaction.positions if transaction else 0)
        _check_own("group positions", own, self._limits.partitions)
        _check_all("group positions", self._table.totals.offsets + count, self._limits.total_offsets)


def _check_own(what: str, value: int, limit: int) -> None:
    if value > limit:
        raise TransactionTooLarge(
            f"{value} {what} in one transaction, the limit is {limit}; nothing of this request was stored"
        )


def _check_all(what: str, value: int, limit: int) -> None:
    if value > limit:
        raise LimitExceeded(
            f"{value} {what} in all undecided transactions, the limit is {limit}; nothing of this request was stored"
        )

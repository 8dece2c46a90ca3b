"""Transactions over message stores, durable through the journal: begin, add, prepare, commit, rollback, recover.

Judging and applying are separate: a public method judges by the table in :mod:`journal.transaction_states`, then has
one record accepted; the fold in :mod:`journal.transactions.table` applies it, live and in replay alike.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from zope.interface import implementer

from journal.arguments import checked_xid
from journal.errors import (
    ContentMismatch,
    LimitExceeded,
    TransactionConflict,
    TransactionRolledBack,
    UnknownTransaction,
)
from journal.interfaces import ICommitFold, IFold, ITransactionStore
from journal.log.catalog import Catalog
from journal.parties import Actor, Owner
from journal.records.group_entries import GroupPositions, PartitionOffset, Settled
from journal.records.outcome import Outcome
from journal.records.record import (
    CoordinatorTold,
    Placement,
    Run,
    TransactionAdded,
    TransactionOffsetsAdded,
    TransactionPrepared,
    TransactionsForgotten,
)
from journal.records.record import TransactionCommitted as CommittedRecord
from journal.records.record import TransactionRolledBack as RolledBackRecord
from journal.transaction_states import TRANSITIONS, Action, Cause, Input, State, Totals, TransactionNumber
from journal.transactions.admission import Admission
from journal.transactions.decisions import Decisions, Waiting
from journal.transactions.limits import TransactionLimits
from journal.transactions.refusals import judge_restored, refuse_ended
from journal.transactions.state import Transaction
from journal.transactions.table import TransactionTable
from journal.transactions.unsent import (
    NO_TOTALS,
    NOTHING,
    Unsent,
    UnsentRun,
    judge_same_content,
    with_rest,
)
from journal.xid import Xid

_NONE_BEFORE: Final[Mapping[int, int]] = {}


@implementer(ITransactionStore)
class JournalTransactionStore:
    """The operations on the transactions of one engine; ``table`` holds the transactions.

    Every method that takes a transaction's number raises ``TransactionCommitted``, ``TransactionRolledBack`` or
    ``OutcomeForgotten`` if the transaction has ended otherwise than asked, and changes nothing then. An accepted
    operation is durable, and may be answered, once the engine has forced it.
    """

    def __init__(
        self,
        table: TransactionTable,
        catalog: Catalog,
        limits: TransactionLimits,
        engine: Decisions,
        schedule: Waiting,
        folds: Iterable[IFold] = (),
    ) -> None:
        self.table, self.limits, self._catalog, self._engine = table, limits, catalog, engine
        self._admission = Admission(table, catalog, limits, schedule)
        self._commit_folds: list[Any] = [fold for fold in folds if ICommitFold.providedBy(fold)]
        self.staging, self.archive, self.outcomes = table.staging, table.archive, table.outcomes
        self.live, self.live_xids, self.prepared = table.live, table.live_xids, table.prepared
        self.find, self.outcome, self.holds_partition = table.find, table.outcome, table.holds_partition

    # -- adds --------------------------------------------------------------------------------------

    def add(
        self,
        number: TransactionNumber,
        partition: int,
        frames: bytes | memoryview,
        count: int,
        xid: Xid | None = None,
        seen: int = 0,
        owner: Owner | None = None,
        runs: Sequence[UnsentRun] = (),
    ) -> int:
        """Stage frames (checked, unstamped) for a partition; the first add begins the transaction.

        Frames that have gone through an exchange are those of ``runs``; the partition is 0 then.
        """
        transaction = self.live.get(number)
        if transaction is None:
            self._judge_begin(number, xid)
        else:
            self._step(transaction, Input.ADD)
        self._admission.size(transaction, len(frames), count)
        if partition:
            self._admission.partition(transaction, partition)
        else:
            self._admission.partitions(transaction, runs)
        begins = transaction is None
        record = TransactionAdded(
            *number,
            partition,
            count,
            self._engine.now(),
            seen,
            xid if begins else None,
            owner if begins else None,
            self._recorded(runs, transaction) if runs else [],
        )
        return self._engine.accept(record, bytes(frames))

    def _recorded(self, runs: Sequence[UnsentRun], transaction: Transaction | None) -> list[Run]:
        """Return the runs of an add as its record has them."""
        return Unsent(runs).as_recorded(_NONE_BEFORE if transaction is None else transaction.checksums)

    def add_offsets(
        self,
        number: TransactionNumber,
        group: str,
        offsets: list[PartitionOffset],
        xid: Xid | None = None,
        seen: int = 0,
        owner: Owner | None = None,
        group_id: bytes = b"",
        settled: list[Settled] | None = None,
    ) -> int:
        """Let the transaction move a group's positions, and then settle offsets, when it commits.

        They are held from prepare on. ``group_id`` is the group's id if the commit makes the group.
        """
        transaction = self.live.get(number)
        if transaction is None:
            self._judge_begin(number, xid)
        else:
            self._step(transaction, Input.ADD)
        added = [GroupPositions(group, group_id, offsets, settled or [])]
        self._admission.positions(transaction, added)
        self.check_unheld(added)
        begins = transaction is None
        record = TransactionOffsetsAdded(
            *number,
            group,
            offsets,
            self._engine.now(),
            seen,
            xid if begins else None,
            owner if begins else None,
            group_id,
            settled or [],
        )
        return self._engine.accept(record)

    def doom(self, number: TransactionNumber) -> None:
        """Mark a transaction as rollback-only after a refused add. Journals nothing."""
        transaction = self.live.get(number)
        if transaction is None:
            if number in self.outcomes.by_number or self.outcomes.is_forgotten(number):
                return
            if len(self.live) >= self.limits.transactions:
                return  # prepare and commit will see that not everything has arrived
            transaction = Transaction(number, self._engine.now(), wall_offset=self._catalog.wall_offset)
            self.table.enter(transaction)
        transaction.state = TRANSITIONS[transaction.state, Input.REFUSED_ADD][0]

    def _judge_begin(self, number: TransactionNumber, xid: Xid | None) -> None:
        if number.serial < 1:
            raise TransactionConflict(f"transaction {number}: serials begin at 1; nothing was changed")
        ended = self.outcomes.find(number)
        if ended is not None:
            refuse_ended(ended)
        if len(self.live) >= self.limits.transactions:
            raise LimitExceeded(
                f"{len(self.live)} transactions are undecided, the limit; nothing was changed. End some of them "
                "('txbroker transactions list')"
            )
        if xid is not None:
            self._judge_xid(number, xid)

    def _judge_xid(self, number: TransactionNumber, xid: Xid) -> None:
        checked_xid(xid)
        holder = self.live_xids.get(xid) or self.outcomes.by_xid.get(xid)
        if holder is not None and holder != number:
            live = "is undecided" if holder in self.live else "has ended and is remembered"
            raise TransactionConflict(
                f"xid {xid} belongs to transaction {holder}, which {live}; nothing was changed. Use another xid, "
                "or end or forget that one"
            )

    # -- prepare -----------------------------------------------------------------------------------

    def prepare(
        self,
        number: TransactionNumber,
        xid: Xid,
        totals: Totals | None = None,
        seen: int = 0,
        owner: Owner | None = None,
        unsent: Unsent = NOTHING,
    ) -> None:
        """Make the transaction survive everything until it is decided. It may be repeated with the same xid.

        ``totals`` is the sum of what was added before, ``unsent`` the contents of this request.
        """
        transaction = self.live.get(number)
        if transaction is None:
            self._judge_begin(number, xid)
            if totals is not None:
                self._judge_nothing_added(number, totals)
        else:
            if self._step(transaction, Input.PREPARE) is Action.REPEAT:
                self._judge_same_xid(transaction, xid)
                judge_same_content(number, transaction, totals, unsent)
                return
            self._judge_same_xid(transaction, xid)
            self._judge_xid(number, xid)
            self._judge_begun(transaction, totals, unsent)
        self._admission.unsent(transaction, unsent)
        if transaction is None and unsent.positions:
            self.check_unheld(unsent.positions)
        if unsent.taken_back:
            self._admission.taking_back(unsent.taken_back)
        runs = unsent.as_recorded(_NONE_BEFORE if transaction is None else transaction.checksums)
        session, serial = number
        record = TransactionPrepared(
            session, serial, xid, totals, self._engine.now(), seen, owner, runs, unsent.positions,
            unsent.taken_back,
        )  # fmt: skip
        self._engine.accept(record, unsent.joined())

    def _judge_same_xid(self, transaction: Transaction, xid: Xid) -> None:
        if transaction.xid is not None and transaction.xid != xid:
            raise TransactionConflict(
                f"transaction {transaction.number} has xid {transaction.xid}, not {xid}; nothing was changed"
            )

    def _judge_nothing_added(self, number: TransactionNumber, totals: Totals) -> None:
        if totals != NO_TOTALS:
            self._judge_arrived(Transaction(number, 0), totals)

    def _judge_arrived(self, transaction: Transaction, totals: Totals | None) -> None:
        """Compare what the client says it added with what arrived; if they differ, roll the transaction back."""
        said = totals or NO_TOTALS
        if transaction.totals == said:
            return
        reason = f"the client sent {said}, {transaction.totals} arrived"
        self._rollback(transaction.number, Cause.MISMATCH, why=reason)
        raise ContentMismatch(
            f"transaction {transaction.number}: {reason}. It has been rolled back; send it again"
        )

    # -- the decision ------------------------------------------------------------------------------

    def commit(
        self,
        number: TransactionNumber,
        cause: Cause,
        totals: Totals | None = None,
        seen: int = 0,
        by: Actor | None = None,
        why: str = "",
        unsent: Unsent = NOTHING,
        xid: Xid | None = None,
        owner: Owner | None = None,
        is_limited: bool = True,
    ) -> Outcome:
        """Commit. A repetition returns the first outcome, and is refused if it has another content.

        One phase has ``totals`` (of what was added before), or ``unsent`` (the contents of this request), or both; the
        second phase has neither. ``xid`` and ``owner`` are for a transaction that begins with this. Raises
        ``MemoryExhausted`` before anything has changed. One that begins with this may be above the limits unless
        it ``is_limited``: the broker moves so what was accepted before.
        """
        transaction = self.live.get(number)
        one_phase = totals is not None or unsent is not NOTHING
        if transaction is None:
            ended = self.outcomes.find(number)
            if ended is not None or not one_phase:
                return self._committed_before(ended or self.outcome(number), one_phase, totals, unsent)
            return self._begin_and_commit(number, cause, totals, seen, unsent, xid, owner, is_limited)
        if transaction.state is not State.PREPARED:
            self._judge_active(transaction, one_phase, totals, unsent)
        else:
            if self._engine.starts.restored:
                judge_restored(transaction, self._engine.starts, Input.COMMIT, cause)
            if one_phase:
                judge_same_content(number, transaction, totals, unsent)
                totals, unsent = None, NOTHING  # the record that prepared it has them
        if transaction.staged.file_entries:
            self.staging.verify(number, transaction.staged)
        session, serial = number
        placed, now = self._placements(transaction, unsent), self._engine.now()
        record = CommittedRecord(session, serial, placed, now, cause, seen, by, why, totals)
        if unsent is NOTHING:
            return self._engine.decide(record)
        return self._engine.decide(*with_rest(record, transaction, unsent, self._catalog.wall_offset))

    def _judge_active(
        self, transaction: Transaction, one_phase: bool, totals: Totals | None, unsent: Unsent
    ) -> None:
        """Raise unless an unprepared transaction may be committed with this."""
        number = transaction.number
        if transaction.state is State.ACTIVE and not one_phase:
            raise TransactionConflict(
                f"transaction {number} is active: committing it in one phase needs what was sent; nothing was changed"
            )
        self._step(transaction, Input.COMMIT)
        self._judge_begun(transaction, totals, unsent)
        self._admission.unsent(transaction, unsent)
        if unsent.taken_back:
            self._admission.taking_back(unsent.taken_back)

    def _judge_begun(self, transaction: Transaction, totals: Totals | None, unsent: Unsent) -> None:
        """Raise if others hold what was added, or what the deciding request adds, and if not all has arrived."""
        if unsent.positions or transaction.offsets or transaction.settled:
            self.check_unheld(unsent.positions, transaction.number)
        self._judge_arrived(transaction, totals)

    def check_unheld(
        self, positions: Sequence[GroupPositions], number: TransactionNumber | None = None
    ) -> None:
        """Raise ``OffsetPending`` if a prepared transaction holds an offset that these would settle.

        With ``number`` they would be settled together with what that transaction has staged.
        """
        for fold in self._commit_folds:
            if (pending := fold.conflict(positions, number)) is not None:
                raise pending.error(self.live[pending.holder].xid)

    def _committed_before(
        self, ended: Outcome, one_phase: bool, totals: Totals | None, unsent: Unsent
    ) -> Outcome:
        """Return the outcome of a committed transaction, for a repeated commit; raises for any other."""
        if ended.state is not State.COMMITTED:
            refuse_ended(ended)
        if one_phase:
            judge_same_content(ended.number, ended, totals, unsent)
        return ended

    def _begin_and_commit(
        self,
        number: TransactionNumber,
        cause: Cause,
        totals: Totals | None,
        seen: int,
        unsent: Unsent,
        xid: Xid | None,
        owner: Owner | None,
        is_limited: bool,
    ) -> Outcome:
        """Commit a transaction that nothing was added to: its frames go to the tails of the logs at once."""
        if xid is not None:
            self._judge_xid(number, xid)
        if totals is not None:
            self._judge_nothing_added(number, totals)
        if is_limited:
            self._admission.unsent(None, unsent)
        if unsent.positions:
            self.check_unheld(unsent.positions)
        if unsent.taken_back:
            self._admission.taking_back(unsent.taken_back)
        at = self._engine.now()
        placements, data = self._append(unsent, at)
        runs = unsent.as_recorded(_NONE_BEFORE)
        checksum = runs[0].checksum if len(runs) == 1 else unsent.checksum(0)
        session, serial = number
        record = CommittedRecord(
            session, serial, placements, at, cause, seen, None, "", None, runs, unsent.settles, checksum, xid, owner
        )  # fmt: skip
        return self._engine.decide(record, data)

    def _append(self, unsent: Unsent, at: int) -> tuple[list[Placement], bytes | memoryview]:
        """Append the request's contents to their logs; return their places and the stamped frames.

        Raises ``MemoryExhausted`` before anything has changed.
        """
        stores, runs, wall_offset = self._catalog.stores, unsent.runs, self._catalog.wall_offset
        if len(runs) == 1:
            [(partition, count, frames, also)] = runs
            if partition and not also:
                store = stores[partition]
                placement = Placement(partition, store.end_offset, count)
                return [placement], store.append(frames, count, at, wall_offset)
        placements = self._placements(None, unsent)
        if any(
            also or not partition for partition, _, _, also in runs
        ):  # the fold appends what was published
            if not self.table.application.is_sliced(unsent.as_recorded(_NONE_BEFORE), unsent.bytes):
                self._catalog.make_room_for(unsent.sizes())
            firsts = {placed.partition: placed.base_offset for placed in placements}
            return placements, unsent.stamped(firsts, at + wall_offset)
        self._catalog.make_room_for(unsent.sizes())
        views = [
            stores[partition].append(frames, count, at, wall_offset) for partition, count, frames, _ in runs
        ]
        return placements, b"".join(views)

    def _placements(self, transaction: Transaction | None, unsent: Unsent) -> list[Placement]:
        stores = self._catalog.stores
        if transaction is not None and not unsent.runs:
            placed = []
            for number, (count, _) in transaction.staged.parts.items():
                placed.append(Placement(number, stores[number].end_offset, count))
            return placed
        counts = unsent.counts({} if transaction is None else transaction.staged.counts())
        return [Placement(n, stores[n].end_offset, count) for n, count in counts.items()]

    def rollback(
        self, number: TransactionNumber, cause: Cause, by: Actor | None = None, why: str = ""
    ) -> Outcome | None:
        """Roll back; none of its messages ever becomes visible. For a repetition or an unknown number it
        returns None. One that is restored is refused (``RestoredTransaction``) unless a person asks.
        """
        transaction = self.live.get(number)
        if transaction is None:
            ended = self.outcomes.find(number)
            if ended is not None and ended.state is State.COMMITTED:
                refuse_ended(ended)
            return None
        if self._engine.starts.restored:
            judge_restored(transaction, self._engine.starts, Input.ROLLBACK, cause)
        return self._rollback(number, cause, by, why)

    def _rollback(
        self, number: TransactionNumber, cause: Cause, by: Actor | None = None, why: str = ""
    ) -> Outcome:
        return self._engine.decide(RolledBackRecord(*number, self._engine.now(), cause, by, why))

    def _step(self, transaction: Transaction, event: Input) -> Action:
        """Return the table's action for the input; refusals are raised, a doomed transaction is rolled back first."""
        _, action = TRANSITIONS[transaction.state, event]
        number = transaction.number
        if action is Action.REFUSE:
            raise TransactionConflict(
                f"transaction {number} is {transaction.state.name.lower().replace('_', ' ')}: {event.value} is not "
                "possible; nothing was changed"
            )
        if action is Action.JOURNAL_ROLLBACK:
            self._rollback(number, Cause.REFUSED_ADD)
            raise TransactionRolledBack(
                f"transaction {number} has been rolled back: one of its adds was refused (see that answer)"
            )
        return action

    def disconnect(self, session: int) -> None:
        """End a session: its active transactions are rolled back, its prepared ones stay."""
        for number in list(self.table.active.get(session, ())):
            self._rollback(number, Cause.DISCONNECT)

    def expire(self, now: int, timeout: int) -> int:
        """Roll back transactions that have been active for ``timeout`` µs; return how many. Never prepared ones."""
        old = [
            n for owned in self.table.active.values() for n, t in owned.items() if now - t.began >= timeout
        ]
        for number in old:
            self._rollback(number, Cause.TIMEOUT, why=f"active for more than {timeout / 1e6:g} s")
        return len(old)

    def trim(self, oldest_session: int) -> None:
        """Let a durable mark advance past the oldest outcomes, if more are remembered than the limit."""
        record = self.outcomes.judge_trim(self.limits.outcomes, oldest_session, self._engine.now())
        if record is not None:
            self._engine.accept(record)

    def forget(self, number: TransactionNumber, by: Actor | None = None, why: str = "") -> None:
        """Forget how a decided transaction ended, a heuristic outcome too."""
        if number in self.live:
            raise TransactionConflict(
                f"transaction {number} is undecided: it has no outcome to be forgotten; nothing was changed. Commit "
                "it or roll it back first"
            )
        if self.outcomes.find(number) is None:
            raise UnknownTransaction(f"transaction {number} is not remembered; nothing was changed")
        self._engine.accept(
            TransactionsForgotten(
                [(number.session, number.serial)], self.outcomes.session_mark, self._engine.now(), by, why
            )
        )

    def tell(self, number: TransactionNumber, decided: State, by: Actor | None = None) -> bool:
        """Record that the coordinator of a heuristic outcome ``decided`` too; return whether that is new."""
        outcome = self.outcomes.by_number[number]
        contradicts = decided is not outcome.state
        if outcome.contradicted or (outcome.told is not None and not contradicts):
            return False
        self._engine.accept(CoordinatorTold(*number, self._engine.now(), decided, by))
        return True

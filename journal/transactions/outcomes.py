"""The outcomes of transactions: remembered exactly, until the client has seen it or a durable mark passes.

Outcomes are pruned by what clients say they have seen, as in RIFL (Lee et al., "Implementing Linearizability at Large
Scale and Low Latency", SOSP 2015, section 3).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import msgspec

from journal.errors import OutcomeForgotten
from journal.formats.checkpoint_rows import RowReader
from journal.records.outcome import Outcome, Told
from journal.records.record import TransactionsForgotten
from journal.transaction_states import TransactionNumber, number_of
from journal.xid import Xid

PLACEMENTS_PER_OUTCOME = 8
"""How many placements count as one outcome. Measured: an outcome of 200 partitions takes 25 KB."""


class MarkRow(msgspec.Struct, array_like=True, frozen=True):
    """The part of a checkpoint beside the outcomes themselves."""

    session_mark: int
    forgotten_through: dict[int, int]


class OutcomeTable:
    """Outcomes by number and xid.

    A number that is not in the table is forgotten if its serial is at or below its session's mark, or if its
    session is below ``session_mark``; any other unknown number was rolled back (presumed abort).
    """

    def __init__(self) -> None:
        self.by_number: dict[TransactionNumber, Outcome] = {}
        self.by_xid: dict[Xid, TransactionNumber] = {}
        self.forgotten_through: dict[int, int] = {}
        self.session_mark = 0
        self.placements = 0
        self.heuristic: dict[TransactionNumber, None] = {}
        """The heuristic outcomes: a person or the orphan policy decided them. Each stays until it is forgotten."""
        self.contradicted: set[TransactionNumber] = set()
        """The heuristic outcomes whose coordinators decided otherwise."""
        self._serials: dict[int, list[int]] = {}

    def remember(self, outcome: Outcome) -> None:
        """Keep an outcome, or replace an earlier one of the same transaction."""
        number = outcome.number
        if number not in self.by_number:
            self.placements += len(outcome.placements)
            session, serial = number
            known = self._serials.get(session)
            if known is None:
                self._serials[session] = [serial]
            else:
                known.append(serial)
        self.by_number[number] = outcome
        if outcome.heuristic:
            self.heuristic[number] = None
            if outcome.contradicted:
                self.contradicted.add(number)
        if outcome.xid is not None:
            self.by_xid[outcome.xid] = number

    def remember_new(self, outcome: Outcome) -> None:
        """Keep an outcome; raise AssertionError if the transaction has one already."""
        number = outcome.number
        assert number not in self.by_number, f"transaction {number} has ended before"
        self.remember(outcome)

    def check_new(self, number: TransactionNumber) -> None:
        """Raise AssertionError if the transaction has ended, and that is remembered."""
        assert number not in self.by_number, f"transaction {number} has ended before"

    def find(self, number: TransactionNumber) -> Outcome | None:
        """Return the outcome, None for a number that never ended here; raises :class:`OutcomeForgotten`."""
        outcome = self.by_number.get(number)
        if outcome is None and self.is_forgotten(number):
            raise OutcomeForgotten(
                f"how transaction {number} ended is no longer remembered (it ended long ago, or its client said that "
                "it had seen the outcome); nothing was changed. Its messages, if any, are in the logs"
            )
        return outcome

    def is_forgotten(self, number: TransactionNumber) -> bool:
        """Return whether the number is below a mark, so that its absence means nothing."""
        if number.session < self.session_mark:
            return True
        return number.serial <= self.forgotten_through.get(number.session, 0)

    def prune(self, session: int, seen: int) -> None:
        """Drop the outcomes of a session up to ``seen``, which its client has seen. Heuristic ones stay
        until forgotten.
        """
        if seen <= self.forgotten_through.get(session, 0):
            return
        self.forgotten_through[session] = seen
        serials = self._serials.get(session)
        if not serials:
            return
        kept = []
        for serial in serials:
            number = number_of((session, serial))
            if serial > seen or self.by_number[number].heuristic:
                kept.append(serial)
            else:
                self._drop(number)
        if kept:
            self._serials[session] = kept
        else:
            del self._serials[session]

    def tell(self, number: TransactionNumber, told: Told) -> None:
        """Note a coordinator's decision about a heuristic outcome. A contradiction is never taken back."""
        outcome = self.by_number.get(number)
        if outcome is not None and not outcome.contradicted:
            self.remember(msgspec.structs.replace(outcome, told=told))

    def _drop(self, number: TransactionNumber) -> None:
        outcome = self.by_number.pop(number)
        self.placements -= len(outcome.placements)
        if outcome.heuristic:
            del self.heuristic[number]
            self.contradicted.discard(number)
        if outcome.xid is not None and self.by_xid.get(outcome.xid) == number:
            del self.by_xid[outcome.xid]

    def judge_trim(self, bound: int, oldest_session: int, at: int) -> TransactionsForgotten | None:
        """Return the record that brings the table below ``bound`` outcomes and sessions; None if it is.

        Outcomes that name many partitions count for more: ``PLACEMENTS_PER_OUTCOME`` times the bound is the most
        placements. ``oldest_session`` is the lowest number of a session that still lives: the mark does not pass it.
        """
        excess = len(self.by_number) - bound
        mark = self.session_mark
        if len(self.forgotten_through) > bound:
            mark = min(sorted(self.forgotten_through)[len(self.forgotten_through) - bound], oldest_session)
        numbers = self._oldest(excess, self.placements - bound * PLACEMENTS_PER_OUTCOME, bound // 10)
        if not numbers and mark <= self.session_mark:
            # as when all outcomes over the bound were heuristic: a record now would be one every tick
            return None
        return TransactionsForgotten(numbers, max(mark, self.session_mark), at)

    def _oldest(self, outcomes: int, placements: int, more: int) -> list[tuple[int, int]]:
        """Return the oldest that are not heuristic: enough to bring both below their bounds, and some more."""
        numbers: list[tuple[int, int]] = []
        if outcomes <= 0 and placements <= 0:
            return numbers
        for number, outcome in self.by_number.items():
            if len(numbers) >= outcomes + more and placements <= 0:
                break
            if not outcome.heuristic:
                numbers.append((number.session, number.serial))
                placements -= len(outcome.placements)
        return numbers

    def forget(self, record: TransactionsForgotten) -> None:
        """Apply the record that :meth:`judge_trim` or an operator made."""
        for session, serial in record.numbers:
            number = TransactionNumber(session, serial)
            if number in self.by_number:
                self._drop(number)
                self._serials[session].remove(serial)
                if not self._serials[session]:
                    del self._serials[session]
            self.forgotten_through[session] = max(serial, self.forgotten_through.get(session, 0))
        self.session_mark = max(self.session_mark, record.session_mark)
        for session in [s for s in self.forgotten_through if s < record.session_mark]:
            del self.forgotten_through[session]

    def snapshot(self) -> Iterator[Any]:
        """Rows for a checkpoint: the marks, then the outcomes."""
        return iter([MarkRow(self.session_mark, dict(self.forgotten_through)), *self.by_number.values()])

    @staticmethod
    def read(rows: RowReader) -> None:
        """Read the rows of a checkpoint."""
        rows.take(MarkRow)
        rows.rest(Outcome)

    def restore(self, rows: Iterable[Any]) -> None:
        """Replace the table by the rows of a :meth:`snapshot`."""
        mark, *outcomes = rows
        self.__init__()  # type: ignore[misc]
        self.session_mark, self.forgotten_through = mark.session_mark, dict(mark.forgotten_through)
        for outcome in outcomes:
            self.remember(outcome)

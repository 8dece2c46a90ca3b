"""The contents of a deciding request: messages and positions that were not sent before, checked."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from journal.constants import MAX_REQUEST_MESSAGES
from journal.formats.compression import whole_room
from journal.formats.frame import walk
from journal.formats.frame_check import check_run
from journal.records.group_entries import GroupPositions
from journal.transaction_states import State, TransactionNumber
from journal.transactions.unsent import NOTHING, Unsent, UnsentRun
from txbroker.broker.groups.consumer_groups import Consuming
from txbroker.broker.sends.sends import disk_full, frame_limit
from txbroker.broker.sessions.scheduler import REQUEST
from txbroker.broker.sessions.session import Session, unheard
from txbroker.errors import InvalidFrame, TransactionConflict
from txbroker.groups.retries import check_said
from txbroker.wire.messages import Commit, Prepare
from txbroker.wire.refusals import check_entries, unknown_partition

if TYPE_CHECKING:
    from journal.engine.engine import Engine


def carries(command: Prepare | Commit, data: bytes | memoryview = b"") -> bool:
    """Return whether a deciding request has contents."""
    return bool(command.runs or command.positions or data)


def check_seen(number: TransactionNumber, seen: int) -> None:
    """Raise for outcomes that no client can have seen: otherwise later ones would count as forgotten."""
    if not 0 <= seen < number.serial:
        raise TransactionConflict(
            f"transaction {number} is to end after its client has seen outcomes up to {seen}: none can be seen before "
            "it is there; nothing has changed. Name the last that was seen"
        )


class RequestContent:
    """Checks the contents of deciding requests. Nothing changes before all of it has been judged."""

    def __init__(self, engine: Engine, max_frame: int, consuming: Consuming) -> None:
        self._engine = engine
        self._live = engine.transactions.live
        self._outcomes = engine.transactions.outcomes
        self._stores = engine.catalog.stores
        self._max_frame = max_frame
        self._consuming = consuming
        self.judge_prepare: Callable[[Session], None] = unheard
        """Raises LimitExceeded if the session's principal may have no prepared transaction more."""

    def of(
        self, session: Session, number: TransactionNumber, command: Prepare | Commit, data: memoryview
    ) -> Unsent:
        """Return the contents of a request; raises if they are wrong."""
        known = self._live.get(number)
        comes_again = number in self._outcomes.by_number if known is None else known.state is State.PREPARED
        if type(command) is Prepare and not comes_again:
            self.judge_prepare(session)
        if not (command.runs or command.positions or data):
            return NOTHING
        if comes_again:  # only sameness matters, also if its topic is gone
            return Unsent(_unchecked(command.runs, data), command.positions)
        unsent = Unsent(self._checked(command.runs, data), command.positions)
        if unsent.messages > 1:
            session.work += REQUEST * (unsent.messages - 1)
        if unsent.positions:
            unsent.positions = self._judged(number, unsent.positions, known is not None)
        if self._engine.full:
            raise disk_full()
        return unsent

    def _judged(
        self, number: TransactionNumber, positions: list[GroupPositions], has_begun: bool
    ) -> list[GroupPositions]:
        """Return the positions as the record has them; raises if they are wrong. The store judges who holds them."""
        check_entries("positions", sum([len(group.offsets) + len(group.settled) for group in positions]))
        judge, settles = self._consuming.judge, False
        for group in positions:
            if group.settled:
                check_said(group.settled)
                settles = True
            judge(group.group, group.id, group.offsets, group.settled)
        if settles:
            positions = self._consuming.recorded(positions)
        if settles or has_begun:
            self._consuming.check_settled(positions, number)
        return positions

    def _checked(self, runs: list[tuple[int, int]], data: memoryview) -> list[UnsentRun]:
        found: list[UnsentRun] = []
        start, most = 0, MAX_REQUEST_MESSAGES
        left = None if len(runs) == 1 else whole_room()
        for partition, length in runs:
            store = self._stores.get(partition)
            if store is None:
                raise unknown_partition(partition)
            frames = data[start : start + length]
            opens = store.settings.check_compressed != 0
            count = check_run(frames, frame_limit(store, self._max_frame), opens, most, left)
            found.append((partition, count, frames))
            start, most = start + length, most - count
        if start != len(data):
            raise _wrong_length(start, data)
        return found


def _unchecked(runs: list[tuple[int, int]], data: memoryview) -> list[UnsentRun]:
    found: list[UnsentRun] = []
    start = 0
    for partition, length in runs:
        frames = data[start : start + length]
        found.append((partition, sum(count for *_, count in walk(frames)), frames))
        start += length
    if start != len(data):
        raise _wrong_length(start, data)
    return found


def _wrong_length(length: int, data: memoryview) -> InvalidFrame:
    return InvalidFrame(
        f"the runs of the request take {length} bytes, it has {len(data)}; nothing was stored"
    )

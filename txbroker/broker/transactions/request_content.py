"""The contents of a deciding request: messages and positions that were not sent before, checked."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from journal.constants import MAX_REQUEST_MESSAGES
from journal.formats.compression import Room, whole_room
from journal.formats.frame import walk
from journal.formats.frame_check import check_run
from journal.records.group_entries import GroupPositions
from journal.records.record import Scheduled
from journal.transaction_states import State, TransactionNumber
from journal.transactions.unsent import NOTHING, Unsent, UnsentRun
from txbroker.broker.groups.consumer_groups import Consuming
from txbroker.broker.sends.sends import disk_full, frame_limit
from txbroker.broker.sessions.scheduler import REQUEST
from txbroker.broker.sessions.session import Session, unheard
from txbroker.errors import InvalidFrame, TransactionConflict
from txbroker.groups.retries import check_said
from txbroker.queues.publishing import Ways
from txbroker.wire.messages import Add, Commit, Prepare
from txbroker.wire.refusals import check_entries, unknown_partition

if TYPE_CHECKING:
    from journal.engine.engine import Engine


def carries(command: Prepare | Commit, data: bytes | memoryview = b"") -> bool:
    """Return whether a deciding request has contents."""
    return bool(command.runs or command.positions or command.cancels or data)


def check_seen(number: TransactionNumber, seen: int) -> None:
    """Raise for outcomes that no client can have seen: otherwise later ones would count as forgotten."""
    if not 0 <= seen < number.serial:
        raise TransactionConflict(
            f"transaction {number} is to end after its client has seen outcomes up to {seen}: none can be seen before "
            "it is there; nothing has changed. Name the last that was seen"
        )


def nothing_scheduled(session: Session, command: Any, ids: list[tuple[int, int, int]]) -> list[Scheduled]:  # noqa: ARG001
    """Return nothing: there is no schedule."""
    return []


def no_routes(address: int, frames: memoryview, ways: Ways | None) -> list[UnsentRun]:  # noqa: ARG001
    """Raise: there are no exchanges."""
    raise unknown_partition(address)


class RequestContent:
    """Checks the contents of deciding requests. Nothing changes before all of it has been judged."""

    def __init__(self, engine: Engine, max_frame: int, consuming: Consuming) -> None:
        self._engine = engine
        self._live = engine.transactions.live
        self._outcomes = engine.transactions.outcomes
        self._stores = engine.catalog.stores
        self._max_frame = max_frame
        self._consuming = consuming
        self.judge_scheduled: Callable[..., object] = unheard
        """Raises unless these frames may be sent to that topic of the broker's own, which is the schedule's."""
        self.judge_cancels: Callable[[Session, Any, list[tuple[int, int, int]]], list[Scheduled]] = (
            nothing_scheduled
        )
        """Returns what a request takes back of the schedule; raises if it may not."""
        self.routed: Callable[[int, memoryview, Ways | None], list[UnsentRun]] = no_routes
        """Returns frames that go through an exchange as runs of those that go the same way."""
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
        if not (command.runs or command.positions or data or command.cancels):
            return NOTHING
        if comes_again:  # only sameness matters, also if its topic is gone
            return Unsent(_unchecked(command.runs, data), command.positions)
        unsent = Unsent(self._checked(session, command, data), command.positions)
        if command.cancels:
            unsent.taken_back = self.judge_cancels(session, command, command.cancels)
        if unsent.messages > 1:
            session.work += REQUEST * (unsent.messages - 1)
        if unsent.positions:
            unsent.positions = self._judged(number, unsent.positions, known is not None)
        if self._engine.full:
            raise disk_full()
        return unsent

    def count(
        self,
        session: Session,
        command: Add | Prepare | Commit,
        partition: int,
        frames: memoryview,
        most: int = MAX_REQUEST_MESSAGES,
        left: list[Room] | None = None,
        others: int = 0,
    ) -> int:
        """Check a run of frames for a partition; return how many messages it has. ``others`` are messages for later
        that the request has beside it.
        """
        store = self._stores.get(partition)
        if store is None:
            if partition < 0:
                return check_run(frames, self._max_frame, True, most, left)
            raise unknown_partition(partition)
        opens = store.settings.check_compressed != 0
        count = check_run(frames, frame_limit(store, self._max_frame), opens, most, left)
        if store.internal:
            self.judge_scheduled(session, command, store, frames, left, others)
        return count

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
            judge(group.group, group.id, group.offsets, group.settled, number.session)
        if settles:
            positions = self._consuming.recorded(positions)
        if settles or has_begun:
            self._consuming.check_settled(positions, number)
        return positions

    def _checked(self, session: Session, command: Prepare | Commit, data: memoryview) -> list[UnsentRun]:
        found: list[UnsentRun] = []
        runs, start, most, later = command.runs, 0, MAX_REQUEST_MESSAGES, 0
        left = ways = None
        if len(runs) > 1:
            left, ways = whole_room(), Ways()
        for partition, length in runs:
            frames = data[start : start + length]
            count = self.count(session, command, partition, frames, most, left, later)
            if partition < 0:
                found += self.routed(partition, frames, ways)
            else:
                later += self._stores[partition].internal and count
                found.append((partition, count, frames, ()))
            start, most = start + length, most - count
        if start != len(data):
            raise _wrong_length(start, data)
        return found


def _unchecked(runs: list[tuple[int, int]], data: memoryview) -> list[UnsentRun]:
    found: list[UnsentRun] = []
    start = 0
    for partition, length in runs:
        frames = data[start : start + length]
        found.append((partition, sum(count for *_, count in walk(frames)), frames, ()))
        start += length
    if start != len(data):
        raise _wrong_length(start, data)
    return found


def _wrong_length(length: int, data: memoryview) -> InvalidFrame:
    return InvalidFrame(
        f"the runs of the request take {length} bytes, it has {len(data)}; nothing was stored"
    )

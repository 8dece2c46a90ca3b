"""Messages of queues that are given out: read from the log, those left out that have expired or are damaged."""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import TYPE_CHECKING, Any, Final, TypeVar

from journal.constants import MIB
from journal.errors import CorruptSegment, OffsetOutOfRange
from journal.formats.frame import walk
from txbroker.broker.fetches.stepwise_answers import Steps, Until, Work
from txbroker.broker.queues.reading import read
from txbroker.broker.queues.removals import Removals
from txbroker.broker.queues.take_line import Waiting
from txbroker.broker.sessions.session import unheard
from txbroker.queues.expiry import NEVER, expired_run
from txbroker.queues.level import range_of
from txbroker.queues.queue_deliveries import Handed, LevelDeliveries
from txbroker.wire.codec import encode
from txbroker.wire.messages import MAX_TAKEN, Taken

if TYPE_CHECKING:
    from journal.engine.engine import Engine
    from txbroker.broker.sessions.allowance import Allowance

T = TypeVar("T")
Part = Generator[Work | Until | None, Any, T]
"""A part of such an answer, with its result."""
PIECE: Final = MIB
"""Bytes of messages that are read in one step."""
RUNS_AT_ONCE: Final = 32
"""Runs of messages that are read in one step: 1.5 ms."""


class Giving:
    """Makes the answers that have messages. None has more than ``max_bytes``, unless it is one message."""

    def __init__(self, engine: Engine, removals: Removals, max_bytes: int) -> None:
        self._engine, self._removals, self._max_bytes = engine, removals, max_bytes
        self.serve: Callable[[LevelDeliveries], object] = unheard
        """Called with a queue of which messages were given back."""
        self.gave: Callable[[Allowance, int], object] = unheard
        """Called with bytes of messages that were given out."""

    def answer(self, waiting: Waiting, handed: Handed, waits_on: Callable[[], bool], new_from: int) -> Steps:
        """Read the messages that a request was handed, as many as the answer has room for; give the others back, or all
        if reading fails. It has waited for those from offset ``new_from`` on when they came: these do not expire before
        it gets them.

        If all have expired, or are damaged, it takes the next ones, also of another priority; if there are none, there
        is no answer now if ``waits_on``.
        """
        session, command = waiting.session, waiting.command
        state, runs, fresh = handed
        found = _Found(session.number, min(command.max_bytes, self._max_bytes), command.most)
        try:
            while True:
                are_done_with = yield from self._read(state, runs, found, new_from)
                is_there = self._engine.catalog.stores.get(state.store.number) is state.store
                if found.count or waiting.is_ended or not (are_done_with and is_there):
                    break
                # Many at a time: expired ones may have to stay.
                following = state.whole.take(session.number, MAX_TAKEN, self._engine.now())
                if following is None:
                    break
                (state, runs, fresh), new_from = following, NEVER
        except Exception:  # not that nobody wants the answer any more: then all comes back with the session
            for first, end in runs:
                state.give_back(session.number, range_of(first, end))
            self.serve(state)
            raise
        if not found.count and are_done_with and waits_on():
            return None
        session.work += found.size
        if session.allowance is not None and found.size:
            self.gave(session.allowance, found.size)
        attempts = [each for first, count in found.runs for each in state.attempts_of(first, first + count)]
        again = [(first, count) for first, count in found.runs if first < fresh]
        partition = state.store.number if found.count else command.partition
        told = Taken(command.correlation, partition, found.runs, attempts, again)
        return encode(told, b"".join(found.pieces))

    def _read(
        self, state: LevelDeliveries, runs: list[tuple[int, int]], found: _Found, new_from: int
    ) -> Part[bool]:
        """Read these runs; return whether they are done with, and none was given back."""
        has_back = False
        for number, (first, end) in enumerate(runs):
            first = yield from self._read_run(state, first, end, found, new_from)
            if number % RUNS_AT_ONCE == RUNS_AT_ONCE - 1:
                yield None
            if first < end:
                for behind, last in [(first, end), *runs[number + 1 :]]:
                    state.give_back(found.holder, range_of(behind, last))
                has_back = True
                break
        if has_back:
            self.serve(state)
        return not has_back

    def _read_run(
        self, state: LevelDeliveries, first: int, end: int, found: _Found, new_from: int
    ) -> Part[int]:
        """Read messages of a run as long as there is room; return the offset behind those that are done with."""
        ttl = state.queue.settings.message_ttl
        while first < end and found.has_room:
            try:
                data = yield from read(state.store, first, end, max(1, min(found.left, PIECE)))
            except CorruptSegment as error:
                damaged = min(end, max(first, error.last_offset) + 1)
                first, behind = state.still_has(found.holder, first, damaged)
                if first < behind:
                    self._removals.damaged(state, found.holder, first, behind, error)
                first = behind
                continue
            except OffsetOutOfRange as error:  # a repair or a deletion has moved the start
                first = min(end, max(first + 1, error.start))
                continue
            before = first
            first, behind = state.still_has(found.holder, before, end)  # it may have lost some meanwhile
            if first != before:
                continue
            now = self._engine.now() + self._engine.wall_offset
            expired = expired_run(data, first, min(behind, new_from), ttl, now)
            if expired is not None and expired[0] == first:
                if self._engine.busy:
                    yield Until.IDLE
                    continue
                first = self._removals.end_expired(state, found.holder, *expired)
                yield None
                continue
            first = found.add(data, first, behind if expired is None else expired[0])
            if first == before:
                break
            if len(data) >= PIECE:
                yield None
        return first


class _Found:
    """Up to ``most`` messages of an answer to a holder, of up to ``left`` bytes more, but one at least."""

    def __init__(self, holder: int, left: int, most: int) -> None:
        self.holder, self.left, self.most = holder, left, most
        self.pieces: list[bytes | memoryview] = []
        self.runs: list[tuple[int, int]] = []
        self.size = self.count = 0
        self._is_full = False

    @property
    def has_room(self) -> bool:
        """Whether a further message may have room."""
        return not self._is_full and self.count < self.most and (self.left > 0 or not self.pieces)

    def add(self, data: bytes, first: int, end: int) -> int:
        """Add the frames from offset ``first`` to below ``end`` as far as there is room, at least one if there is none
        yet; return the offset behind them.
        """
        begin, stop, offset = None, 0, first
        end = min(end, first + self.most - self.count)
        for position, length, at, count in walk(data):
            if at >= end or (stop + length > self.left and (self.pieces or begin is not None)):
                break
            if at + count <= first:
                continue
            begin = position if begin is None else begin
            stop, offset = position + length, at + count
        if begin is None:
            self._is_full = True
            return first
        self.pieces.append(memoryview(data)[begin:stop])
        self.runs.append((first, offset - first))
        self.size += stop - begin
        self.left -= stop - begin
        self.count += offset - first
        return offset

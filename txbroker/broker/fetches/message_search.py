"""Messages by key, id or tag: a search through a partition, a part of it for each request, on the reader pool.

Of a segment that is not written any more its table of keys says which messages to look at; it is made when the first
search comes by. The newest messages, and segments without a sound table, are examined frame by frame.
"""

from __future__ import annotations

import sys
from bisect import bisect_left
from collections.abc import Generator
from functools import partial
from typing import TYPE_CHECKING, Any, Final, TypeVar

from journal.constants import KIB, MAX_ATTRIBUTE, MAX_REQUEST_ENTRIES, MIB
from journal.log.key_tables import LookedUp, look_up
from journal.log.read_plan import ReadPlan
from journal.log.search import Examined, Wanted, examine
from txbroker.broker.fetches.fetch_attempt import unreadable
from txbroker.broker.fetches.stepwise_answers import Steps, Stepwise, Work
from txbroker.broker.sessions.session import Session
from txbroker.errors import (
    CompressionUnavailable,
    CorruptData,
    InvalidFrame,
    InvalidSetting,
    LimitExceeded,
    TxBrokerError,
)
from txbroker.wire.codec import encode
from txbroker.wire.messages import FindMessages, MessagesFound
from txbroker.wire.refusals import unknown_partition

if TYPE_CHECKING:
    from journal.engine.engine import Engine
    from journal.log.message_store import MessageStore
    from journal.log.segment import Segment

T = TypeVar("T")
_Part = Generator[Work, Any, T]

IN_A_STEP: Final = 4 * MIB
"""Bytes that are examined on the pool at once, so that other reads come in between: about 3 ms."""

IN_MEMORY: Final = 256 * KIB
"""Bytes of messages that are in no file yet, which are copied on the reactor: 0.1 ms."""

IN_AN_ANSWER: Final = 64 * MIB
"""Bytes that are examined for one request."""


class MessageSearch:
    """The meaning of FindMessages."""

    def __init__(self, engine: Engine, stepwise: Stepwise) -> None:
        self._engine = engine
        self._stores = engine.catalog.stores
        self._stepwise = stepwise

    def find(self, session: Session, command: FindMessages, data: memoryview) -> None:  # noqa: ARG002
        """Answer with the offsets of a partition's messages with a key, an id, a tag, or several of these."""
        _check(command)
        self._stepwise.answer(session, command, self._steps(command))

    def _steps(self, command: FindMessages) -> Steps:
        search = _Search(command)
        searched: Segment | None = None  # the segment that has no table of use
        while True:
            store = self._store(command.partition)
            search.offset = max(search.offset, store.start_offset)
            end = min(search.until, store.high_watermark)
            if search.is_over(end):
                break
            segment = store.sealed_segment(search.offset)
            if segment is not None and segment != searched:
                searched = yield from self._by_table(search, store, segment, end)
                continue
            size = IN_A_STEP if search.offset < store.flushed_offset else IN_MEMORY
            yield from self._through(search, store, end, size)
        return encode(search.answer(store.start_offset, store.high_watermark))

    def _by_table(
        self, search: _Search, store: MessageStore, segment: Segment, end: int
    ) -> _Part[Segment | None]:
        """Search a segment by its table of keys; return it if there is none of use."""
        engine = self._engine
        looked: LookedUp = yield partial(
            look_up, engine.filesystem, segment, search.offset, search.wanted, not engine.full
        )
        if looked.made:
            engine.housekeeping.keep_table(segment, looked.made)
        if looked.offsets is None:
            return segment
        places, number = looked.offsets, 0
        while number < len(places) and places[number] < end and not search.is_full:
            start = self._store(store.number).start_offset  # retention may have moved it
            search.offset = max(places[number], start)
            if start <= places[number]:
                yield from self._through(search, store, end, 1)
            number = bisect_left(places, search.offset, number)
        if number == len(places) or places[number] >= end:
            search.offset = max(search.offset, min(looked.end, end))
        search.left -= segment.size if looked.made else MIB  # last, so that each request gets on
        return None

    def _through(self, search: _Search, store: MessageStore, end: int, size: int) -> _Part[None]:
        """Examine some of the log from the search's offset on: about ``size`` bytes, or one frame if it is larger."""
        offset = search.offset
        result: tuple[Examined, int] | TxBrokerError = yield partial(
            _examine, _planned(store, offset, end, size), offset, search.wanted
        )
        if not isinstance(result, TxBrokerError):
            search.take(*result)
        elif self._store(store.number).start_offset <= offset:  # else retention has removed it meanwhile
            search.fail(result)

    def _store(self, number: int) -> MessageStore:
        store = self._stores.get(number)
        if store is None:
            raise unknown_partition(number)
        return store


class _Search:
    """One request: what was found so far, and how far the log was examined."""

    def __init__(self, command: FindMessages) -> None:
        self.wanted = Wanted(command.key, command.id, command.tag)
        self.offset = self._begin = command.offset
        self.until = command.until or sys.maxsize
        self.left = IN_AN_ANSWER
        self._correlation = command.correlation
        self._most = command.most
        self._found: list[int] = []
        self._failed = False

    @property
    def is_full(self) -> bool:
        """Whether the answer has enough: as many messages as were wanted, what one answer examines, or all before
        damage.
        """
        return self._failed or self.left <= 0 or len(self._found) >= self._most

    def is_over(self, end: int) -> bool:
        """Whether the request is answered: all below ``end`` was examined, or the answer is full."""
        return self.is_full or self.offset >= end

    def take(self, examined: Examined, size: int) -> None:
        """Add what was found, in so many bytes."""
        self._found += [each.offset for each in examined.found if each.offset < self.until]
        self.offset = examined.end
        self.left -= size

    def fail(self, error: TxBrokerError) -> None:
        """Raise the error if it is the first that the request meets; else what was found is answered first."""
        if self.offset == self._begin and not self._found:
            raise error
        self._failed = True

    def answer(self, start: int, end: int) -> MessagesFound:
        """Return the answer; the log goes from ``start`` to ``end``."""
        if len(self._found) > self._most:
            self.offset = self._found[self._most]
        return MessagesFound(self._correlation, self._found[: self._most], self.offset, start, end)


def _planned(store: MessageStore, offset: int, end: int, size: int) -> ReadPlan | CorruptData:
    try:
        return store.plan_read(offset, size, end)
    except CorruptData as missing:
        return missing


def _examine(
    plan: ReadPlan | CorruptData, offset: int, wanted: Wanted
) -> tuple[Examined, int] | TxBrokerError:
    """Read and examine on a thread of the pool; the reactor judges the errors."""
    if isinstance(plan, CorruptData):
        return plan
    try:
        frames = plan.run()
        return examine(frames.data, offset, wanted), len(frames.data)
    except (CorruptData, CompressionUnavailable, InvalidFrame) as error:
        return error
    except OSError as error:
        return unreadable(error)


def _check(command: FindMessages) -> None:
    """Raise InvalidSetting or LimitExceeded for a question that has no answer."""
    wanted = [each for each in (command.key, command.id, command.tag) if each is not None]
    if not wanted:
        raise InvalidSetting(
            "a search without a key, an id or a tag finds every message; nothing was read. Say one"
        )
    if sum(map(len, wanted)) > MAX_ATTRIBUTE:
        raise LimitExceeded(
            f"key, id and tag have over {MAX_ATTRIBUTE} bytes, which no message has; nothing was read. Say shorter ones"
        )
    if not 1 <= command.most <= MAX_REQUEST_ENTRIES:
        raise LimitExceeded(
            f"a search for at most {command.most} messages, the limit of one answer is {MAX_REQUEST_ENTRIES}; "
            "nothing was read. Ask for the others with another request"
        )

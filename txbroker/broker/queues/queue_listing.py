"""What there is to say of queues and exchanges: lists of them, and figures of each."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from functools import partial
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final

from journal.folds.queues import DeclaredQueue, Exchange, QueuesFold
from journal.log.read_plan import ReadPlan, append_time_of
from journal.records.access_entries import Resource
from journal.records.queue_entries import Binding
from txbroker.broker.fetches.stepwise_answers import Steps, Stepwise
from txbroker.broker.queues.takes import Takes
from txbroker.broker.sessions.rights import described
from txbroker.broker.sessions.session import Session
from txbroker.errors import InvalidSetting
from txbroker.queues.declarations import Declarations
from txbroker.queues.measurement import catch_up
from txbroker.queues.queue_deliveries import LevelDeliveries, QueueDeliveries
from txbroker.wire.codec import encode
from txbroker.wire.messages import (
    MAX_LISTED,
    ExchangeInfo,
    Exchanges,
    ListExchanges,
    ListQueues,
    QueueInfo,
    Queues,
    Request,
)
from txbroker.wire.refusals import check_entries

if TYPE_CHECKING:
    from journal.engine.engine import Engine

MAX_LISTED_BINDINGS: Final = 10_000
"""So many bindings are in one list, or those of one exchange."""
READ_AT_ONCE: Final = 32
"""Most frames that are read in one step of a list."""


class QueueListing:
    """The meaning of ListQueues and ListExchanges, and what is known of each queue."""

    def __init__(
        self,
        engine: Engine,
        fold: QueuesFold,
        declarations: Declarations,
        takes: Takes,
        stepwise: Stepwise,
    ) -> None:
        self._engine, self._fold, self._declarations, self._takes = engine, fold, declarations, takes
        self._deliveries, self._stepwise = takes.deliveries, stepwise
        self.waiting_at: Callable[[Exchange], int] = _none_waits
        """Returns how many messages wait at an exchange."""
        self.handlers: dict[type[Request], Any] = {
            ListQueues: self.list_queues,
            ListExchanges: self.list_exchanges,
        }

    # -- lists -------------------------------------------------------------------------------------

    def list_queues(self, session: Session, command: ListQueues, data: memoryview) -> Queues | None:  # noqa: ARG002
        """List queues; the answer comes later if it has to be read when their oldest messages came."""
        names, following = self._listed(Resource.QUEUE, self.names(), command, session)
        queues = [self._declarations.queue(name) for name in names]
        is_filtered = command.names is None and session.rights is not None
        if levels := self._unread(queues):
            self._stepwise.answer(
                session, command, self._read(command, queues, levels, following, is_filtered)
            )
            return None
        return Queues(command.correlation, list(map(self.info, queues)), following, is_filtered)

    def _unread(self, queues: Iterable[DeclaredQueue]) -> list[LevelDeliveries]:
        """Return the priorities of queues of which it has to be read when the oldest message came."""
        levels = [level for each in queues for level in self._deliveries.of(each).levels]
        return [level for level in levels if level.left and self._came_at(level) is None]

    def _read(
        self,
        command: ListQueues,
        queues: Sequence[DeclaredQueue],
        levels: Sequence[LevelDeliveries],
        following: str | None,
        is_filtered: bool,
    ) -> Steps:
        """Read when the oldest messages came, then list the queues that are there by then."""
        came = dict[int, int]()
        for first in range(0, len(levels), READ_AT_ONCE):
            some = [level for level in levels[first : first + READ_AT_ONCE] if self._is_there(level)]
            plans = [_frame_plan(level) for level in some]
            for level, (offset, _), at in zip(
                some, plans, (yield partial(_append_times, plans)), strict=True
            ):
                came[level.store.number] = at
                if at:
                    level.came = offset, at
        there = [each for each in queues if self._declarations.known_queue(each.name) is each]
        found = [self.info(each, came) for each in there]
        return encode(Queues(command.correlation, found, following, is_filtered))

    def _is_there(self, level: LevelDeliveries) -> bool:
        return self._engine.catalog.stores.get(level.store.number) is level.store

    def _listed(
        self, kind: Resource, known: Iterable[str], command: ListQueues | ListExchanges, session: Session
    ) -> tuple[Sequence[str], str | None]:
        """Return the names of a page, of those that the session may describe, and what the next page is behind."""
        names, after, limit = command.names, command.after, command.limit
        if names is not None:
            check_entries("names", len(names))
            return list(described(kind, names, session.rights)), None
        if not 1 <= limit <= MAX_LISTED:
            raise InvalidSetting(f"a list of {limit}; it must be from 1 to {MAX_LISTED} at a time")
        behind = sorted(name for name in known if after is None or name > after)
        found = list(described(kind, behind, session.rights))
        return found[:limit], found[limit - 1] if len(found) > limit else None

    def info(self, queue: DeclaredQueue, came: Mapping[int, int] = MappingProxyType({})) -> QueueInfo:
        """Return what there is to say of a queue; ``came`` has by partition when the oldest messages came that had to
        be read, 0 for those that cannot be. Without it that is not known of all.
        """
        state, now = self._deliveries.of(queue), self._engine.now()
        times = [self._came_at(each) or came.get(each.store.number, 0) for each in state.levels if each.left]
        wall = now + self._engine.wall_offset
        oldest = max(0, wall - min(times)) if times and all(times) else -1
        size = sum(each.store.total_bytes for each in state.levels)
        return QueueInfo(
            queue.name, queue.partition, queue.settings, state.left, state.count_ready(now), state.unacknowledged,
            state.count_held(), size, oldest, self._takes.waiting_at(queue.partition),
            self._takes.consumers.count(queue.partition), _ready_bytes(state, now),
        )  # fmt: skip

    def _came_at(self, state: LevelDeliveries) -> int | None:
        """Return the append time of the oldest message of a priority; None if that has to be read from the disk."""
        offset = state.position
        if state.came[0] != offset:
            if offset < state.store.flushed_offset:
                return None
            at = state.store.plan_append_time(offset)
            assert isinstance(at, int), "it is in memory"
            state.came = offset, at
        return state.came[1]

    def list_exchanges(self, session: Session, command: ListExchanges, data: memoryview) -> Exchanges:  # noqa: ARG002
        """List exchanges."""
        names, following = self._listed(Resource.EXCHANGE, self._fold.exchanges, command, session)
        found, left = list[ExchangeInfo](), MAX_LISTED_BINDINGS
        for name in names:
            exchange = self._declarations.exchange(name)
            if command.bindings and found and len(exchange.bindings) > left and command.names is None:
                following = found[-1].name
                break
            left -= len(exchange.bindings)
            bindings = self._bindings(exchange) if command.bindings else []
            found.append(
                ExchangeInfo(
                    exchange.name, exchange.number, exchange.settings, exchange.taken, bindings,
                    self.waiting_at(exchange),
                )
            )  # fmt: skip
        is_filtered = command.names is None and session.rights is not None
        return Exchanges(command.correlation, found, following, is_filtered)

    def _bindings(self, exchange: Exchange) -> list[Binding]:
        """Return the bindings of an exchange to what is there."""
        hidden = self._fold.hidden
        return [each for each in exchange.bindings if each.to_exchange or each.destination not in hidden]

    # -- figures -----------------------------------------------------------------------------------

    def names(self) -> list[str]:
        """Return the names of all queues that are not over."""
        hidden = self._fold.hidden
        return [name for name, each in self._fold.queues.items() if not (each.has_waiting or name in hidden)]

    def partitions(self) -> Set[int]:
        """Return the partitions of all queues."""
        return self._fold.by_partition.keys()

    def known(self, name: str) -> DeclaredQueue | None:
        """Return a queue, if it is there."""
        return self._declarations.known_queue(name)

    def published(self, queue: DeclaredQueue) -> int:
        """Return how many messages were ever put into a queue."""
        return sum(each.store.high_watermark for each in self._deliveries.of(queue).levels)

    def counts(self, name: str) -> tuple[int, int] | None:
        """Return how many messages of a queue can be got, and how many sessions have; None if it is not there."""
        queue = self._declarations.known_queue(name)
        if queue is None:
            return None
        state = self._deliveries.of(queue)
        return state.count_ready(self._engine.now()), state.unacknowledged


def _frame_plan(state: LevelDeliveries) -> tuple[int, int | ReadPlan]:
    """Return the offset of the oldest message of a priority, and its append time or the read of its frame."""
    offset = max(state.position, state.store.start_offset)
    if offset >= state.store.high_watermark:  # all was acknowledged meanwhile
        return offset, 0
    return offset, state.store.plan_append_time(offset)


def _append_times(plans: Sequence[tuple[int, int | ReadPlan]]) -> list[int]:
    """Return the append times of frames; 0 of one that cannot be read."""
    return [each if isinstance(each, int) else append_time_of(each) for _, each in plans]


def _ready_bytes(queue: QueueDeliveries, now: int) -> int | None:
    """Return how many bytes the bodies have that can be got, where they are bounded, and measured."""
    queue.release_due(now)
    if all(each.sizes is not None and catch_up(each, each.store.high_watermark) for each in queue.levels):
        return queue.ready_size
    return None


def _none_waits(exchange: Exchange) -> int:  # noqa: ARG001
    """Return that no message waits."""
    return 0

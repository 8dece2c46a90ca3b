"""Messages that go through exchanges: which queues each goes to, and the record of that."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Final

from journal.constants import MIB
from journal.folds.queues import DeclaredQueue, Exchange, QueuesFold
from journal.formats.frame import HEADER, HEADER_BYTES, UNDECODABLE, WRAPPER, unpack_attribute, walk
from journal.message_headers import Headers
from journal.records.queue_entries import (
    DEFAULT_EXCHANGE,
    MAX_NAME_BYTES,
    Overflow,
    exchange_of,
    is_mandatory,
)
from journal.records.record import Placement, Published, Run
from journal.records.transient import durable_first, is_transient
from journal.transactions.unsent import Unsent, UnsentRun, targets_of
from txbroker.errors import (
    DiskFull,
    InvalidFrame,
    InvalidSetting,
    LimitExceeded,
    QueueFull,
    UnknownExchange,
    Unroutable,
)
from txbroker.queues.body_sizes import body_bytes
from txbroker.queues.compared_headers import compared_headers
from txbroker.queues.delays import check_size, delay_of, may_wait
from txbroker.queues.deliveries import Deliveries
from txbroker.queues.expiry import expiration_of
from txbroker.queues.further_keys import further_keys
from txbroker.queues.measurement import catch_up
from txbroker.queues.priorities import priority_of
from txbroker.queues.queue_deliveries import LevelDeliveries, QueueDeliveries

if TYPE_CHECKING:
    from journal.engine.engine import Engine

MAX_COPIES: Final = 65_536
"""Most places of the messages of one request, those with the same ways counted once: finding them takes 20 ms."""
MAX_COPIED: Final = 256 * MIB
"""Most bytes of them, as often as they are placed."""


class Ways:
    """What a request's messages may go to, and cost on the way: one for all parts of a request."""

    __slots__ = (
        "added", "added_size", "bytes", "delayed", "places", "ready", "ready_size", "steps", "waits",
    )  # fmt: skip

    def __init__(self) -> None:
        self.places = self.bytes = self.steps = 0
        self.waits = self.delayed = 0
        """At how many delayed exchanges the message that is looked at waits, and all before it do."""
        self.added: dict[int, int] = {}
        """How many messages it brings to queues that refuse what is too much, by partition."""
        self.ready: dict[int, int] = {}
        """How many can be got in these before it."""
        self.added_size: dict[int, int] = {}
        self.ready_size: dict[int, int] = {}
        """The same in bytes of their bodies."""


class Publishing:
    """Sends messages through exchanges."""

    def __init__(self, engine: Engine, fold: QueuesFold, deliveries: Deliveries) -> None:
        self._engine, self._fold, self._deliveries = engine, fold, deliveries
        self._transient = engine.catalog.transient
        self.on_unmeasured: Callable[[LevelDeliveries], object] = _nothing
        """Called with a priority of a queue of which messages are not measured whose size must be known."""
        self.unrouted = 0
        """Messages that found no queue, and were dropped."""
        self.judge_delayed: Callable[[int, int], object] = _nothing
        """Raises LimitExceeded if no more messages may wait at delayed exchanges than so many, with so many bytes."""

    def exchange_at(self, address: int) -> Exchange:
        """Return the exchange at an address; raises UnknownExchange."""
        exchange = self._fold.exchanges_by_number.get(exchange_of(address))
        if exchange is None:
            raise UnknownExchange(
                f"there is no exchange at address {address}; nothing was sent. It may have been deleted: ask for it "
                "again by its name"
            )
        return exchange

    def routed(
        self, address: int, frames: bytes | memoryview, ways: Ways | None = None, *, is_ours: bool = False
    ) -> list[UnsentRun]:
        """Return checked frames as runs of messages that go the same way. ``ways`` are those of the request before
        these. ``is_ours``: the broker sends them, and calls :meth:`check_lengths` when it knows which go on.

        Raises :class:`UnknownExchange`, InvalidSetting for one that takes nothing from clients, :class:`Unroutable` if
        a message finds no queue and must, :class:`InvalidFrame` for a batch in one frame and for a key that is no
        routing key, :class:`QueueFull`, :class:`LimitExceeded` for more places than one request may have, DiskFull if
        they have no room.
        """
        exchange, view = self.exchange_at(address), memoryview(frames)
        if exchange.settings.internal and not is_ours:
            raise InvalidSetting(
                f"exchange {exchange.name!r} is internal: it takes messages from other exchanges alone; nothing was "
                "sent. Send to one that is bound to it"
            )
        found: list[UnsentRun] = []
        spent = Ways() if ways is None else ways
        begin = count = further = delayed = uncounted = 0
        known, targets, steps = None, list[int](), self._fold.steps - spent.steps
        for position, length, _, messages in walk(view):
            attribute = _attribute(view, position, messages)
            if known != attribute:
                to = self._targets(exchange, attribute, is_mandatory(address), spent, steps)
                known = attribute
                if to != targets and count:
                    found.append(_run(targets, count, view[begin:position]))
                    begin, count = position, 0
                targets = to
                # The journal's own bytes count by themselves; what transient queues alone get is not there.
                uncounted = 0 if targets and is_transient(targets[0]) else 1
                spent.places += len(targets)
            count += 1
            if spent.waits:
                check_size(attribute, length)
                spent.delayed += spent.waits
                delayed += length * spent.waits
            spent.bytes += length * len(targets)
            further += length * max(0, len(targets) - uncounted)
            spent.steps = self._fold.steps - steps
            _check(spent)
        if count:
            found.append(_run(targets, count, view[begin:]))
        if delayed:
            self.judge_delayed(spent.delayed, delayed)
        if not is_ours:
            self.check_lengths(found, spent)
        self._reserve(further)
        return found

    def _reserve(self, further: int) -> None:
        if further and not self._engine.housekeeping.reserve_space(further):
            raise DiskFull(
                f"the messages go to several queues, and would take {further} bytes in those behind the first; free "
                "space on the broker's disk would come below the low-water mark; nothing has changed. Reading, "
                "deleting, commit and rollback work: make room, or acknowledge what there is, then try again"
            )

    def _targets(
        self, exchange: Exchange, attribute: bytes, mandatory: bool, spent: Ways, steps: int
    ) -> list[int]:
        """Return where a message goes. Each of its keys is another look at the bindings: ``spent`` counts the steps of
        the fold from ``steps`` on.
        """
        fold = self._fold
        keys, headers, priority, expires, may_delay = _read(attribute)
        waits = bool(may_delay and fold.delayed) and delay_of(may_delay) > 0
        found = fold.route(exchange, keys[0], headers, waits)
        for each in keys[1:]:
            spent.steps = fold.steps - steps
            _check(spent)
            found = list(dict.fromkeys([*found, *fold.route(exchange, each, headers, waits)]))
        spent.waits = sum(fold.by_partition[each].has_waiting for each in found) if waits else 0
        if not found and mandatory:
            raise _unroutable(exchange, keys[0])
        if priority:
            found = [fold.by_partition[each].level(priority) for each in found]
        if self._transient:
            found = durable_first(found)
        if expires:
            for partition in found:
                if (state := self._deliveries.at(partition)) is not None:
                    state.has_expiring = True
        return found

    def check_lengths(self, runs: Sequence[UnsentRun], spent: Ways) -> None:
        """Raise :class:`QueueFull` if a queue refuses more than it may have, and would have that."""
        for partition, count, framed, also in runs:
            for target in targets_of(partition, also) if partition else ():
                queue = self._fold.by_partition[target]
                if queue.settings.overflow is Overflow.REJECT_PUBLISH:
                    self._check_length(queue, count, spent)
                    self._check_size(queue, framed, spent)

    def _check_length(self, queue: DeclaredQueue, count: int, spent: Ways) -> None:
        most, number = queue.settings.max_length, queue.partition
        if most is None:
            return
        spent.added[number] = added = spent.added.get(number, 0) + count
        state = self._deliveries.of(queue)
        if state.accepted + added > most and number not in spent.ready:
            spent.ready[number] = state.count_accepted(self._engine.now())
        if state.accepted + added > most and spent.ready[number] + added > most:
            raise QueueFull(
                f"queue {queue.name!r} may have {most} messages that can be got, and would have more with the "
                f"{added} that the request brings; nothing was sent. Take messages out of it, or wait"
            )

    def _check_size(self, queue: DeclaredQueue, framed: bytes | memoryview, spent: Ways) -> None:
        most, number = queue.settings.max_length_bytes, queue.partition
        if most is None:
            return
        if number not in spent.ready_size:
            spent.ready_size[number] = self._accepted_size(self._deliveries.of(queue))
        spent.added_size[number] = added = spent.added_size.get(number, 0) + body_bytes(framed)
        if spent.ready_size[number] + added > most:
            raise QueueFull(
                f"queue {queue.name!r} may have {most} bytes in the bodies of messages that can be got, and would have "
                f"more with the {added} that the request brings; nothing was sent. Take messages out of it, or wait"
            )

    def _accepted_size(self, queue: QueueDeliveries) -> int:
        """Return how many bytes can be got, or could be if all that is accepted were forced; rather too many while a
        start's messages are measured.
        """
        queue.release_due(self._engine.now())
        found = 0
        for each in queue.levels:
            if not catch_up(each, each.store.end_offset):
                self.on_unmeasured(each)
            found += each.accepted_size + each.unmeasured_size
        return found

    def publish(
        self,
        address: int,
        frames: bytes | memoryview,
        count: int,
        producer_id: int = 0,
        epoch: int = 0,
        sequence: int = 0,
    ) -> int:
        """Put checked frames into the queues that they go to, in one record; return the number of the first message.

        Raises as :meth:`routed`, and ``MemoryExhausted``, before anything has changed.
        """
        unsent = Unsent(self.routed(address, frames))
        if not producer_id and not any(partition for partition, *_ in unsent.runs):
            self.unrouted += count
            return self._fold.exchanges_by_number[exchange_of(address)].taken  # and nobody could repeat it
        return self._accept(address, unsent, frames, (producer_id, epoch, sequence), [])

    def publish_due(self, address: int, unsent: Unsent, ids: list[int]) -> None:
        """Put messages into the queues that they go to, because they were due: those of the schedule with these ids.

        Raises ``MemoryExhausted`` before anything has changed.
        """
        self._accept(address, unsent, unsent.joined(), (0, 0, 0), ids)

    def _accept(
        self,
        address: int,
        unsent: Unsent,
        frames: bytes | memoryview,
        producer: tuple[int, int, int],
        ids: list[int],
    ) -> int:
        engine, exchange = self._engine, self._fold.exchanges_by_number[exchange_of(address)]
        base, runs, start, unrouted = exchange.taken, list[Run](), 0, 0
        for partition, messages, piece, also in unsent.runs:
            runs.append(Run(partition, messages, start, 0, list(also)))
            start += len(piece)
            unrouted += 0 if partition else messages
        counts, stores = unsent.counts({}), engine.catalog.stores
        placements = [Placement(number, stores[number].end_offset, some) for number, some in counts.items()]
        at, count = engine.now(), unsent.messages
        record = Published(address, base, count, runs, placements, at, *producer, ids)
        if not engine.transactions.table.application.is_applied_in_slices(record, len(frames)):
            engine.catalog.make_room_for(unsent.sizes())
        engine.accept(record, bytes(frames))
        self.unrouted += unrouted
        return base


def _run(targets: list[int], count: int, frames: memoryview) -> UnsentRun:
    return targets[0] if targets else 0, count, frames, tuple(targets[1:])


def _check(spent: Ways) -> None:
    if spent.bytes > MAX_COPIED or max(spent.places, spent.steps) > MAX_COPIES:
        raise LimitExceeded(
            f"the messages of the request go to more than {MAX_COPIES} places, or look at as many bindings, or "
            f"have more than {MAX_COPIED} bytes there; nothing was sent. Send fewer in one request"
        )


def _attribute(frames: memoryview, position: int, messages: int) -> bytes:
    """Return the encoded key and headers of a message."""
    header = HEADER.unpack_from(frames, position)
    if header[6] & WRAPPER or messages != 1:
        raise InvalidFrame(
            "a batch in one frame cannot go through an exchange: each message has ways of its own; nothing was sent. "
            "Send each in its own frame"
        )
    begin = position + HEADER_BYTES
    return bytes(frames[begin : begin + header[7]])


def _read(data: bytes) -> tuple[Sequence[str], Mapping[str, object], int, bool, Headers]:
    """Return the routing keys, headers, the priority, whether a message expires by itself, and the headers again if it
    may have to wait.
    """
    if not data:
        return ("",), {}, 0, False, ()
    try:
        attribute = unpack_attribute(data)
        key = (attribute.key or b"").decode()
    except UNDECODABLE as error:
        raise InvalidFrame(f"the key of a message is no routing key: {error}; nothing was sent") from error
    if len(attribute.key or b"") > MAX_NAME_BYTES:
        raise InvalidFrame(
            f"a routing key of {len(attribute.key or b'')} bytes, {MAX_NAME_BYTES} are allowed; nothing was sent"
        )
    headers = attribute.headers
    further = further_keys(headers)
    keys = (key, *further.told, *further.hidden)
    delays = headers if may_wait(data) else ()
    return keys, compared_headers(headers), priority_of(headers), expiration_of(headers) is not None, delays


def _unroutable(exchange: Exchange, key: str) -> Unroutable:
    name = "the default exchange" if exchange.number == DEFAULT_EXCHANGE else f"exchange {exchange.name!r}"
    return Unroutable(
        f"{name} finds no queue for a message with routing key {key!r}; nothing of the request was sent. Declare the "
        "queue, bind it, or send with mandatory=False to have such messages dropped"
    )


def _nothing(*_: object) -> None:
    """Tell nobody."""

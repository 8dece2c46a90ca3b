"""The streams of one connection to a broker, for one decision table: which database connection has which.

A stream stays with its database connection while that lives, so its blocks are delivered in their order; then the next
connection gets it. Blocks deliver what they have committed by themselves (:meth:`Streams.flush`); everything else is
done by the keeper (:mod:`txbroker.databases.outbox.keeper`).
"""

from __future__ import annotations

import logging
import math
import secrets
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable
from typing import Any, NamedTuple
from weakref import ref

from journal.records.stream_entries import STREAM_BYTES
from journal.transaction_states import State
from txbroker import errors
from txbroker.client.blocking import Connection
from txbroker.client.blocking.held_output import PACER
from txbroker.client.core.call import AnswerLost
from txbroker.client.core.phase import Phase
from txbroker.client.core.promise import Promise
from txbroker.client.transactions.deliveries import DeliveryCall, deliver
from txbroker.databases.adapters.database import Database
from txbroker.databases.outbox.stream import JOINED_BYTES, Committed, Memory, Stream, joined
from txbroker.wire.messages import Delivery

log = logging.getLogger("txbroker.outbox")

MOST_GIVEN_UP = 1000
"""How many streams are remembered that were given up."""

JOIN_WITHIN = 0.004
"""Seconds for which a committed block may wait for the next ones, to be delivered together with them.

On two processors, one connection that does a block after the other: 0.72 of an outbox without delivery if each block is
delivered alone, 0.74 with 2 ms, 0.75 with 4, 0.82 with 8; the broker's processor time for a block falls from 420 µs to
280, 180 and 90. With 4 ms a message of such a connection can be read 4.4 ms after COMMIT, one that comes alone after
1.9 ms.
"""

LOOK_EVERY = 32
"""After so many delivered blocks the next one takes in the answers that have come: nobody else may read them for a
second.
"""


given_up: dict[str, tuple[bool, float]] = {}
"""Streams that this process has given up, newest last: whether a claim was ever answered, and when that was."""

_of_process: weakref.WeakSet[Streams] = weakref.WeakSet()

_registry = threading.Lock()
"""The lock for changes of ``given_up`` and ``_of_process``, which all connections to brokers share."""


def outcome_in_process(table: str, name: bytes, number: int) -> State | None:
    """Return how a block of a stream has ended that blocks of this process use, whichever connection to the broker
    they have; None if that is not known here.
    """
    with _registry:
        all_streams = list(_of_process)
    for streams in all_streams:
        stream = streams.all.get(name) if streams.table == table else None
        if stream is not None:
            with streams.lock:
                is_committed = stream.outcome(number)
            if is_committed is not None:
                return State.COMMITTED if is_committed else State.ROLLED_BACK
    return None


class Backlog(NamedTuple):
    """Bounds of what may be committed and not delivered, for one broker connection; None is no bound.

    ``rows`` counts blocks, ``bytes`` those of them in memory, ``age`` is in seconds. A block beyond one of them is
    refused before its COMMIT (:class:`txbroker.errors.BacklogFull`).
    """

    rows: int | None = None
    bytes: int | None = None
    age: float | None = None


class _Holder(NamedTuple):
    anchor: ref[Any]
    stream: Stream


class Streams:
    """The streams of this process that go to one broker, beside one decision table. Any thread may use it.

    ``most`` bounds the bytes of messages in memory; what is beyond it is read from the database again. ``wake`` is
    called when the keeper has something to do, ``stir`` when there will soon be answers, and rows to delete,
    ``awaited`` when somebody waits for an answer.
    """

    def __init__(
        self,
        table: str,
        most: int,
        wake: Callable[[], object],
        stir: Callable[[], object],
        awaited: Callable[[], object],
    ) -> None:
        self.table = table
        self._awaited = awaited
        self.wake = wake
        self._stir = stir
        self.lock = threading.Lock()
        """Held briefly: never while another lock is taken, or the broker or the database is asked."""
        self.all: dict[bytes, Stream] = {}
        """Those that blocks may use."""
        self._most = most
        self._connection: Connection | None = None
        self._holders: dict[int, _Holder] = {}
        self._ended: deque[int] = deque()
        self._free: list[Stream] = []
        self._since_look = 0
        self._memory = Memory(self.all)
        self._newest: DeliveryCall | None = None
        self._latest = -math.inf  # when the last block ended
        self._joining: dict[bytes, Stream] = {}
        self.held_until = math.inf
        """When the blocks that wait to be delivered together must be sent; infinity if there are none."""
        with _registry:
            _of_process.add(self)

    # -- for blocks --------------------------------------------------------------------------------

    def of(self, database: Database) -> Stream:
        """Return the stream of a database connection, which no other has while that lives."""
        source = database.source
        with self.lock:
            self._take_back()
            found = self._holders.get(id(source))
            if found is not None and found.anchor() is not None:
                return found.stream
        anchor = database.anchor()
        key = id(source)
        with self.lock:
            stream = self._free.pop() if self._free else self._new()
            self._holders[key] = _Holder(ref(anchor, lambda _: self._ended.append(key)), stream)
        if not stream.is_current:
            self.wake()
        return stream

    def _new(self) -> Stream:
        stream = Stream(secrets.token_bytes(STREAM_BYTES), self._memory)
        self.all[stream.name] = stream
        return stream

    def _take_back(self) -> None:
        """Have the streams of connections that are gone for the next ones. Call it under the lock."""
        while self._ended:  # a collector may append at any moment, which is why it does nothing else
            key = self._ended.popleft()
            found = self._holders.get(key)
            if found is not None and found.anchor() is None:
                del self._holders[key]
                if found.stream.open:
                    self._drop(found.stream)
                elif found.stream.name in self.all:
                    self._free.append(found.stream)

    def give_up(self, stream: Stream) -> None:
        """Let nobody commit with a stream any more: a block's outcome is not known, or its number was used."""
        with self.lock:
            self._drop(stream)
        with _registry:
            given_up[stream.text] = stream.life > 0, time.monotonic()
            if len(given_up) > MOST_GIVEN_UP:
                del given_up[next(iter(given_up))]
        self.wake()

    def _drop(self, stream: Stream) -> None:
        self.all.pop(stream.name, None)
        stream.forget()
        self._free = [each for each in self._free if each is not stream]
        for key, holder in list(self._holders.items()):
            if holder.stream is stream:
                del self._holders[key]

    def check_room(self, bounds: Backlog) -> None:
        """Raise BacklogFull if more is undelivered than may be, also when answers that have come are taken in."""
        try:
            self._check_room(bounds)
        except errors.BacklogFull:
            self.send_held()
            if self._connection is not None:
                self._connection._driver.look()
            self._check_room(bounds)

    def _check_room(self, bounds: Backlog) -> None:
        with self.lock:
            rows = sum(stream.undelivered for stream in self.all.values())
            held = self._memory.held
            since = min((stream.since for stream in self.all.values()), default=float("inf"))
        age = max(0.0, time.monotonic() - since)
        over = (
            (bounds.rows is not None and rows >= bounds.rows)
            or (bounds.bytes is not None and held >= bounds.bytes)
            or (bounds.age is not None and age >= bounds.age)
        )
        if over:
            raise errors.BacklogFull(
                f"{rows} blocks are committed and not delivered ({held} bytes in memory, the oldest for {age:.1f} s), "
                f"and max_backlog is {bounds}: the broker is down, or takes them too slowly. Nothing was committed; "
                "the block can be run again"
            )

    def committed(self, stream: Stream, block: Committed, epoch: bytes) -> None:
        """Note that a block has committed, and deliver it now if that is possible. A repetition changes nothing.

        It may wait for :data:`JOIN_WITHIN` seconds, to be delivered together with those that follow; it does if it has
        followed another that fast.
        """
        with self.lock:
            has_room = self._memory.held + len(block.data) <= self._most
            is_current = stream.committed(block, epoch, has_room)
            is_alone, self._latest = block.at - self._latest > JOIN_WITHIN, block.at
        if not is_current:
            self.wake()
            return
        if is_alone or len(block.data) >= JOINED_BYTES:
            self.flush(stream)
        else:
            with self.lock:
                self._joining[stream.name] = stream
                self.held_until = min(self.held_until, block.at + JOIN_WITHIN)
            PACER.expect(self)  # afterwards: it sleeps when it has found nothing for some looks
        if self._since_look >= LOOK_EVERY and self._connection is not None:
            self._since_look = 0
            self._connection._driver.look()
        self._stir()

    def rolled_back(self, stream: Stream, number: int) -> None:
        """Note that a block has not committed and never will."""
        with self.lock:
            stream.rolled_back(number)
        if not stream.is_current:
            self.wake()  # the keeper may have waited for its end

    def wait(self, stream: Stream, number: int) -> Promise[None]:
        """Return a promise for when a number is delivered."""
        with self.lock:
            promise = stream.wait(number)
        self.send_held()
        self._awaited()
        return promise

    def pending(self, database: Database) -> Promise[None] | None:
        """Return a promise for when all blocks of a database connection are delivered; None if they are."""
        with self.lock:
            found = self._holders.get(id(database.source))
            if (
                found is None
                or found.anchor() is None
                or found.stream.is_settled
                or not found.stream.undelivered
            ):
                return None
            stream, newest = found.stream, found.stream.newest
        return self.wait(stream, newest)

    # -- delivering --------------------------------------------------------------------------------

    @property
    def connection(self) -> Connection | None:
        """The blocking connection over which it is delivered; None until the keeper has it."""
        return self._connection

    def use(self, connection: Connection) -> None:
        """Deliver over this connection from now on."""
        if self._connection is None:
            self._connection = connection
            connection.core.on_lost.append(self._lost)
            connection.core.on_open.append(self._reopened)

    def flush(self, stream: Stream) -> None:
        """Send what is to be delivered of a stream, on the calling thread; waits for nothing."""
        connection = self._connection
        if connection is None:
            return
        driver = connection._driver
        with driver.lock:
            if self._send(connection, stream):
                driver.push()

    def send_held(self) -> None:
        """Send the blocks that wait to be delivered together, on the calling thread; later, if it would have to wait
        for that.
        """
        if self.held_until < math.inf and self._connection is not None:
            self._connection._driver.soon(self._send_joining)

    def _send_joining(self) -> None:
        """Call it under the core's lock."""
        connection = self._connection
        assert connection is not None
        with self.lock:
            joining, self._joining, self.held_until = self._joining, {}, math.inf
        sent = [self._send(connection, stream) for stream in joining.values()]
        if any(sent):
            connection._driver.push()

    def _send(self, connection: Connection, stream: Stream) -> bool:
        """Call it under the core's lock."""
        core = connection.core
        if core.phase is not Phase.OPEN:
            return False
        try:
            with self.lock:
                epoch, found = stream.epoch, list(stream.unsent())
            for blocks, after in found:
                delivery = Delivery(stream.name, epoch, blocks[-1].number, after)
                self._newest = deliver(core, connection._serials, delivery, *joined(blocks), self._answered)
                self._since_look += len(blocks)
        except BaseException:  # an interrupt: nobody knows which were sent, and a repetition does no harm
            with self.lock:
                stream.unsend()
            raise
        return bool(found)

    def send_left(self) -> None:
        """Send again what counts as sent or held, and is awaited by nobody: an interrupt came in between."""
        if self.newest is None:
            with self.lock:
                held = self._joining if time.monotonic() < self.held_until else {}
                left = [each for each in self.all.values() if each.is_holding and each.name not in held]
                for stream in left:
                    stream.unsend()
            for stream in left:
                self.flush(stream)

    def _answered(self, call: DeliveryCall) -> None:
        error, delivery = call.error, call.delivery
        stream = self.all.get(delivery.stream)
        if stream is None:
            return  # it was given up
        if error is None:
            with self.lock:
                done = stream.delivered(delivery.number)
            for promise in done:
                promise.resolve(None)
        elif isinstance(error, AnswerLost):
            with self.lock:
                stream.unsend()
        else:
            if not isinstance(error, (errors.StreamFenced, errors.StreamOutOfOrder)):
                log.info("block %d of stream %s was not taken now: %s", delivery.number, stream.text, error)
            with self.lock:
                stream.fenced(delivery.epoch)
            self.wake()

    def claimed(self, stream: Stream, epoch: bytes, last: int, life: int) -> None:
        """Take the answer to a claim. Like all that follows for the keeper alone, on its thread."""
        with self.lock:
            done = stream.claimed(epoch, last, life)
        self._tell(done)
        if last > stream.number:
            self.give_up(stream)  # of a copy of this process's memory: the other one goes on with it

    def delivered(self, stream: Stream, number: int) -> None:
        """Note that the keeper has delivered rows up to a number."""
        with self.lock:
            done = stream.delivered(number)
        self._tell(done)

    def refused(self, stream: Stream, number: int, error: BaseException) -> None:
        """Note that a row will never be delivered."""
        with self.lock:
            gone = stream.refused(number)
        self._tell(gone, error)

    def _tell(self, promises: list[Promise[None]], error: BaseException | None = None) -> None:
        """Settle promises under the lock of the core, which their waiters take, too; and have those look that wait at
        the socket: nothing has come over it.
        """
        if promises and self._connection is not None:
            driver = self._connection._driver
            with driver.lock:
                for promise in promises:
                    promise.resolve(None) if error is None else promise.fail(error)
                driver.wake()

    def _lost(self) -> None:
        with self.lock:
            for stream in self.all.values():
                stream.unsend()

    def _reopened(self) -> None:
        """Send again what was unanswered; called by the core, under its lock."""
        connection = self._connection
        assert connection is not None
        for stream in list(self.all.values()):
            self._send(connection, stream)

    @property
    def is_settled(self) -> bool:
        """Whether nothing is left to deliver."""
        with self.lock:
            return all(stream.is_settled for stream in self.all.values() if stream.number)

    @property
    def held(self) -> int:
        """Bytes of messages in memory."""
        return self._memory.held

    @property
    def undelivered(self) -> int:
        """How many blocks are committed and not known to be delivered."""
        with self.lock:
            return sum(stream.undelivered for stream in self.all.values())

    @property
    def removable(self) -> int:
        """How many rows can be deleted."""
        with self.lock:
            return sum(stream.removable for stream in self.all.values())

    @property
    def is_busy(self) -> bool:
        """Whether answers are awaited, or blocks held, or rows can be deleted."""
        return self.newest is not None or self.removable > 0 or self._memory.held > 0

    @property
    def newest(self) -> DeliveryCall | None:
        """The delivery that was sent last, while it is not answered."""
        call = self._newest
        return call if call is not None and not call.done else None

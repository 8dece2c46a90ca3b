"""The keeper of an outbox: it claims streams, delivers what is not in memory, deletes rows, releases streams.

It goes by the rules of docs/decisions/0048-outbox-streams.md: what it delivers it has read after its claim was
answered, seen and forced, on the database connection on which it has read the generation of the claim. Any number of
keepers may run at the same time, in any processes: the broker decides by epochs and numbers. For one thread.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Container, Iterable
from typing import Any, NamedTuple

from journal.transaction_states import State
from txbroker import errors
from txbroker.client.blocking import Connection
from txbroker.client.core.promise import Promise
from txbroker.client.operations.streams import list_streams
from txbroker.client.transactions.deliveries import deliver
from txbroker.databases.outbox import claims, payload
from txbroker.databases.outbox.stream import Stream
from txbroker.databases.outbox.streams import Streams, given_up
from txbroker.databases.outbox.table import OutboxTable, RefusedRow, Row
from txbroker.databases.tables.resolver_connection import ResolverConnection
from txbroker.wire.messages import Delivery, StreamHeld

log = logging.getLogger("txbroker.outbox")

KEPT = 24 * 3600.0
"""Seconds without a delivery after which a stream that nobody uses here is released: so long its outcomes are known."""

FOR_GOOD = (
    errors.UnknownTopic,
    errors.UnknownPartition,
    errors.MessageTooLarge,
    errors.InvalidFrame,
    errors.TransactionTooLarge,
    errors.CompressionUnavailable,
)
"""What a row is refused with for ever, however often it is tried; see :func:`is_for_good`."""

_OF_TOPICS = (errors.UnknownTopic, errors.UnknownPartition)
"""What may be said of a topic that is known from before, though there is another one of its name."""

PATIENCE = 0.5
"""Seconds for which a deletion waits for others' locks."""

MOST_AT_ONCE = 5000
"""How many rows of a stream one transaction deletes."""

TAKEN_OVER = (errors.StreamFenced, errors.StreamOutOfOrder)
"""What says that a stream is another's now."""


def is_for_good(error: BaseException) -> bool:
    """Return whether a row is refused for ever: it could not be delivered as it is, and that is no matter of time.

    So is one for a topic to which its program may not write. A right on the stream itself that is missing is of all
    its rows, and of nobody's fault in them: they wait until it is given again.
    """
    if isinstance(error, errors.AccessDenied):
        return str(getattr(error, "resource", "")).startswith("topic ")
    return isinstance(error, FOR_GOOD)


class Claimed(NamedTuple):
    """A stream that was claimed here: its name, the epoch of the claim, and the last number that is delivered."""

    name: bytes
    epoch: bytes
    last: int


class Keeper:
    """The keeper of one outbox at one broker."""

    def __init__(
        self,
        connection: ResolverConnection,
        open_broker: Callable[[], Connection],
    ) -> None:
        self.table = OutboxTable(connection)
        self.streams: Streams | None = None
        """The streams of blocks of this process; None for a resolver, which has none."""
        self.delivered = 0
        """Rows that were read from the table and delivered."""
        self.refused = 0
        """Rows that were moved to the refused ones."""
        self.stopped: dict[str, str] = {}
        """Streams that wait at a row that is refused for ever, instead of going on behind it, and why."""
        self._database = connection
        self._open_broker = open_broker
        self._marks: dict[str, int] = {}
        """The marks with which streams end, as last read."""

    @property
    def broker(self) -> Connection:
        """The blocking connection to the broker."""
        return self._open_broker()

    # -- streams of this process -------------------------------------------------------------------

    def attend(self) -> bool:
        """Bring streams of this process to where their blocks deliver from memory; return whether one has to wait.

        One that has to wait has a block open, or is another's now.
        """
        assert self.streams is not None
        self.streams.use(self.broker)
        waits, failures = False, list[errors.TxBrokerError]()
        for stream in list(self.streams.all.values()):
            if not stream.is_current:
                try:
                    waits = not self._attend(stream) or waits
                except errors.RequestRefused as error:
                    failures.append(error)  # of this stream: the others need not wait for it
        if failures:
            raise failures[0]
        return waits

    def _attend(self, stream: Stream) -> bool:
        streams = self.streams
        assert streams is not None
        if not stream.epoch or stream.life != self._database.life:
            held = self.claim(stream.name)
            streams.claimed(stream, held.epoch, held.last, self._database.life)
            if stream.number:
                self.delete_up_to(stream.text, held.last)
        while stream.epoch and not stream.is_current:
            with streams.lock:
                covered = stream.to_read()
            if covered is None:
                return False
            epoch = stream.epoch
            try:
                _, is_all = self.deliver_some(stream.name, epoch, stream.last)
            except TAKEN_OVER:
                with streams.lock:
                    stream.fenced(epoch)
                return False
            if is_all:
                with streams.lock:
                    stream.was_read(covered)
        streams.flush(stream)
        return stream.is_current

    def claim(self, name: bytes) -> StreamHeld:
        """Become the holder of a stream; raises as :func:`txbroker.databases.outbox.claims.claim`."""
        return claims.claim(self._database, self.broker, name, PATIENCE)

    # -- delivering from the table -----------------------------------------------------------------

    def deliver_some(self, name: bytes, epoch: bytes, last: int) -> tuple[int, bool]:
        """Deliver rows of one snapshot, in order, and delete them; return the last delivered number, and whether those
        were all.

        Raises what says that the stream is another's, or what the broker cannot take now.
        """
        rows, is_all = self.table.rows(name.hex(), last, PATIENCE)
        looked = 0
        while rows:
            done, error = self._deliver(name, epoch, last, rows)
            last = done[-1] if done else last
            if done:
                self.delivered += len(done)
                self._delete_delivered(name, done)
            rows = rows[len(done) :]
            if error is None:
                if rows:
                    self._pass_mark(name, rows.pop(0))
                continue
            if isinstance(error, _OF_TOPICS) and looked < rows[0].number:
                looked = rows[0].number
                self._forget_routes(name, rows[0])
                continue
            if not is_for_good(error):
                raise error
            if _stops(rows[0]):
                self.stopped[name.hex()] = f"number {rows[0].number}: {error}"
                raise error
            self._refuse(name, rows.pop(0).number, error)
        self.stopped.pop(name.hex(), None)
        return last, is_all

    def _delete_delivered(self, name: bytes, numbers: list[int]) -> None:
        """Delete rows that were delivered just now; whoever waits for them hears of it first, because a block that
        waits may keep the table locked (SQLite).
        """
        own = None if self.streams is None else self.streams.all.get(name)
        if own is None or self.streams is None:
            self.table.delete({name.hex(): numbers}, PATIENCE)
            return
        self.streams.delivered(own, numbers[-1])
        with self.streams.lock:
            own.give_rows(numbers)
        self.tidy()

    def _pass_mark(self, name: bytes, row: Row) -> None:
        """Go on behind a mark, which is deleted when its block is long over."""
        at = payload.unpack(row.messages, f"number {row.number} of stream {name.hex()}").at
        if not self._database.database.row_may_be_late or abs(_now() - at) >= KEPT * 1e6:
            self.table.delete({name.hex(): [row.number]}, PATIENCE)
        else:
            self._marks[name.hex()] = row.number

    def _forget_routes(self, name: bytes, row: Row) -> None:
        """Have the topics of a row looked for again: they may have been made anew, or altered, by others."""
        for run in payload.unpack(row.messages, f"number {row.number} of stream {name.hex()}").runs:
            self.broker._producer.forget_route(run.topic)

    def _refuse(self, name: bytes, number: int, error: errors.TxBrokerError) -> None:
        log.error(
            "number %d of stream %s is refused for ever (%s): it is in txbroker_outbox_refused now. See 'txbroker "
            "outbox list'",
            number,
            name.hex(),
            error,
        )
        self.table.refuse(name.hex(), number, f"{type(error).__name__}: {error}", PATIENCE)
        self.refused += 1
        if self.streams is not None and (stream := self.streams.all.get(name)) is not None:
            self.streams.refused(stream, number, error)

    def _deliver(
        self, name: bytes, epoch: bytes, last: int, rows: list[Row]
    ) -> tuple[list[int], errors.TxBrokerError | None]:
        """Send rows one behind the other; return the delivered numbers, and why the next one is not: None for a mark,
        which is no block.
        """
        broker, calls, failure = self.broker, list[tuple[int, Promise[Any]]](), None
        for row in rows:
            try:
                found = payload.unpack(row.messages, f"number {row.number} of stream {name.hex()}")
                if found.is_mark:
                    break
                runs = [(broker.run(self._partition(run)), run.size) for run in found.runs]
            except errors.TxBrokerError as error:
                failure = error
                break
            delivery = Delivery(name, epoch, row.number, last)
            calls.append((row.number, broker.run(_sent(broker, delivery, runs, bytes(found.frames)))))
            last = row.number
        broker._driver.guarded(broker._driver.push)  # a thread that drives, and sleeps, does not know of them
        done = list[int]()
        for number, call in calls:
            try:
                broker._driver.wait(call)
            except errors.TxBrokerError as error:
                return done, error
            done.append(number)
        return done, failure

    async def _partition(self, run: payload.Run) -> int:
        route = await self.broker._producer.route(run.topic)
        if not 0 <= run.partition < len(route.queues):
            self.broker._producer.forget_route(run.topic)
            raise errors.UnknownPartition(
                f"{run.topic} has {len(route.queues)} partitions, and the message was for partition {run.partition} of "
                f"{run.partitions}; it was not delivered"
            )
        return route.queues[run.partition].number

    # -- rows that may go --------------------------------------------------------------------------

    def tidy(self) -> None:
        """Delete rows that are delivered, of all streams of this process."""
        assert self.streams is not None
        with self.streams.lock:
            taken = [
                (stream, stream.take_rows(MOST_AT_ONCE))
                for stream in self.streams.all.values()
                if stream.removable
            ]
        if not taken:
            return
        try:
            self.table.delete({stream.text: numbers for stream, numbers in taken}, PATIENCE)
        except BaseException:
            with self.streams.lock:
                for stream, numbers in taken:
                    stream.give_rows(numbers)
            raise

    def release_own(self) -> None:
        """Release the streams of this process of which all is delivered, for good."""
        assert self.streams is not None
        with self.streams.lock:
            settled = [stream for stream in self.streams.all.values() if stream.is_settled]
        used = [stream for stream in settled if stream.number]
        for stream in used:
            if stream.life != self._database.life:  # rule e
                held = self.claim(stream.name)
                self.streams.claimed(stream, held.epoch, held.last, self._database.life)
        self._release(Claimed(stream.name, stream.epoch, 0) for stream in settled if not stream.number)
        self.empty_and_release([Claimed(stream.name, stream.epoch, stream.last) for stream in used])

    def empty_and_release(self, held: list[Claimed]) -> int:
        """Delete all rows of claimed streams up to their last numbers, for good, and have the broker forget the
        streams; return how many it has. One that is another's meanwhile stays.
        """
        if not held:
            return 0
        generation = self.table.empty({each.name.hex(): each.last for each in held}, PATIENCE)
        return self._release(held, generation)

    def _release(self, held: Iterable[Claimed], generation: int | None = None) -> int:
        broker, released = self.broker, 0
        for name, epoch, last in held:
            if generation is None:
                generation = self._database.generation(PATIENCE)
            try:
                generation = claims.release(self._database, broker, name, epoch, last, generation, PATIENCE)
                released += 1
            except TAKEN_OVER as error:
                log.debug("stream %s is not released: %s", name.hex(), error)
        return released

    # -- streams of others -------------------------------------------------------------------------

    @property
    def name(self) -> str:
        """The identity of the decision table."""
        return self._database.name or self._database.look().name

    def delete_up_to(self, name: str, last: int) -> None:
        """Delete rows that are delivered: anybody may."""
        while found := self._database.read(self._database.database.read_numbers, (name, last)):
            self.table.delete({name: [int(number) for (number,) in found]}, PATIENCE)

    def ends_with_mark(self, stream: str, number: int) -> bool:
        """Return whether the row of this number was a mark when it was last read."""
        return self._marks.get(stream) == number

    def forget_marks_but(self, streams: Container[str]) -> None:
        """Forget the marks of all other streams."""
        self._marks = {name: number for name, number in self._marks.items() if name in streams}

    # -- refused rows ------------------------------------------------------------------------------

    def deliver_again(self, row: RefusedRow, stream: str) -> None:
        """Put a refused row into the outbox, as the only one of a new stream, and deliver it, or refuse it anew.

        Raises what says that the broker cannot take it now: then the row is in the outbox.
        """
        name = bytes.fromhex(stream)
        held = self.claim(name)
        self.table.retry(row, stream, self.broker.identity, PATIENCE)
        last, _ = self.deliver_some(name, held.epoch, held.last)
        self.empty_and_release([Claimed(name, held.epoch, last)])

    # -- outcomes ----------------------------------------------------------------------------------

    def outcome(self, stream: str, number: int) -> State | None:
        """Return how the block of a row has ended, and make sure that it stays so; None while its transaction is open.

        For a stream that no block uses any more. Raises OutcomeForgotten for one that may have been released since.
        """
        name = bytes.fromhex(stream)
        broker = self.broker
        is_known = any(info.stream == name for info in broker.run(list_streams(broker.core, self.name)))
        if not is_known and not self._was_unknown(stream):
            if (found := self._row_outcome(stream, number)) is not None:
                return found
            raise errors.OutcomeForgotten(
                f"stream {stream} is not known to the broker: it was released, or nobody has claimed it; how its "
                f"number {number} ended is not known any more. Look at the rows that its block wrote"
            )
        if self._is_delivered(name, number):
            return State.COMMITTED
        if (found := self._row_outcome(stream, number)) is not None:
            return found
        try:
            if self.table.mark(stream, number, broker.identity, payload.mark(_now()), PATIENCE):
                return self._marked_outcome(name, number)
        except Exception as error:
            if not self._database.is_blocked(error):
                raise
        return None  # its transaction is open, or it came in between: the next look shows

    def _is_delivered(self, name: bytes, number: int) -> bool:
        """Return whether a row was delivered, or refused for ever; from now on nobody delivers it but after a claim."""
        return self.claim(name).last >= number or self.table.is_refused(name.hex(), number)

    def _marked_outcome(self, name: bytes, number: int) -> State:
        """Return how a block has ended whose row was not there, as the mark is in its place.

        The row may have gone because others delivered it after the claim: so it is claimed again. The mark stays if
        the row may be under way to the database yet, together with its COMMIT: it is refused then.
        """
        is_delivered = self._is_delivered(name, number)
        if is_delivered or not self._database.database.row_may_be_late:
            self.table.delete({name.hex(): [number]}, PATIENCE)
        return State.COMMITTED if is_delivered else State.ROLLED_BACK

    def _row_outcome(self, stream: str, number: int) -> State | None:
        found = self.table.payload(stream, number, PATIENCE)
        if found is None:
            return None
        is_mark = payload.unpack(found, f"number {number} of stream {stream}").is_mark
        return State.ROLLED_BACK if is_mark else State.COMMITTED

    def _was_unknown(self, stream: str) -> bool:
        """Return whether no claim of a stream that was given up here was answered, and that not long ago: nobody else
        can have had it released since.
        """
        was_claimed, at = given_up.get(stream, (True, 0.0))
        return not was_claimed and time.monotonic() - at < KEPT / 2


def _stops(row: Row) -> bool:
    """Return whether its program has said that the stream waits at it, if it is refused for ever."""
    try:
        return payload.unpack(row.messages, "").stops
    except errors.InvalidFrame:
        return False


def _now() -> int:
    """µs since 1970 UTC."""
    return time.time_ns() // 1000


async def _sent(
    broker: Connection, delivery: Delivery, runs: list[tuple[int, int]], data: bytes
) -> Promise[Any]:
    core = broker.core
    await core.opened(core.clock() + core.options.timeout)
    return deliver(core, broker._serials, delivery, runs, data)

"""The meaning of streams: who may deliver numbers of an outbox, and which of them are delivered (decision 0048)."""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING, Any, Final

from journal.folds.streams import Stream, StreamsFold
from journal.records.record import StreamClaimed, StreamReleased
from journal.records.stream_entries import MAX_TABLE, STREAM_BYTES, Delivered
from txbroker.broker.sends.sends import disk_full
from txbroker.broker.sessions.session import Session
from txbroker.errors import (
    InvalidSetting,
    LimitExceeded,
    OutboxSetBack,
    StreamFenced,
    StreamOutOfOrder,
)
from txbroker.wire.messages import (
    MAX_STREAMS_LISTED,
    ClaimStream,
    Commit,
    Delivery,
    Done,
    ListStreams,
    ReleaseStream,
    Request,
    StreamHeld,
    StreamInfo,
    Streams,
)

if TYPE_CHECKING:
    from journal.engine.engine import Engine

MAX_NUMBER: Final = (1 << 63) - 1


class Delivering:
    """The meaning of ClaimStream, ReleaseStream and ListStreams, and the judge of deliveries."""

    def __init__(self, engine: Engine, fold: StreamsFold, max_streams: int) -> None:
        self._engine = engine
        self.fold = fold
        """What is known of all streams."""
        self._max_streams = max_streams
        self.handlers: dict[type[Request], Any] = {
            ClaimStream: self.claim,
            ReleaseStream: self.release,
            ListStreams: self.list,
        }
        """The commands, each with its meaning."""

    def claim(self, session: Session, command: ClaimStream, data: memoryview) -> StreamHeld:  # noqa: ARG002
        """Give the stream to this client; whoever held it is fenced."""
        _check_stream(command.stream)
        if not 1 <= len(command.table) <= MAX_TABLE or not command.table.isprintable():
            raise InvalidSetting(
                f"the identity of a decision table has 1 to {MAX_TABLE} printable characters, not "
                f"{command.table[: MAX_TABLE + 1]!r}; nothing has changed"
            )
        known = self.fold.streams.get(command.stream)
        if known is not None and known.table != command.table:
            raise StreamFenced(
                f"stream {command.stream.hex()} belongs to the decision table {known.table}, not to {command.table}: "
                "the rows were copied from that one; nothing has changed. Delete them here"
            )
        self._check_generation(command.table, command.generation)
        if known is None:
            self._check_room(command.table)
        engine, table, generation = self._engine, command.table, command.generation
        if engine.full:
            raise disk_full()
        nonce = engine.starts.nonce
        engine.accept(StreamClaimed(command.stream, table, generation, nonce, session.client, engine.now()))
        held = self.fold.streams[command.stream]
        return StreamHeld(command.correlation, held.epoch, held.last, held.born)

    def release(self, session: Session, command: ReleaseStream, data: memoryview) -> Done:  # noqa: ARG002
        """Forget a stream whose rows are gone."""
        _check_stream(command.stream)
        known = self.fold.streams.get(command.stream)
        if known is not None:
            _check_epoch(known, command.stream, command.epoch)
            if command.last != known.last:
                raise StreamOutOfOrder(
                    f"stream {command.stream.hex()} is to be released after number {command.last}, {known.last} "
                    "was the last that was delivered; nothing has changed. Delete its row first",
                    known.last,
                )
            self._check_generation(known.table, command.generation)
            self._engine.accept(StreamReleased(command.stream, command.generation, self._engine.now()))
        return Done(command.correlation)

    def list(self, session: Session, command: ListStreams, data: memoryview) -> Streams:  # noqa: ARG002
        """Return the streams of a table, in the order of their claims."""
        after, table, now = command.after, command.table, self._engine.now()
        wanted = (
            each for each in self.fold.streams.values() if each.claim > after and table in ("", each.table)
        )
        found = list(islice(wanted, MAX_STREAMS_LISTED + 1))
        told = [
            StreamInfo(each.stream, each.table, each.last, each.claim, each.client, now - each.used)
            for each in found[:MAX_STREAMS_LISTED]
        ]
        return Streams(command.correlation, told, len(found) > MAX_STREAMS_LISTED)

    def judge(self, command: Commit, delivery: Delivery, has_begun: bool) -> Delivered | None:
        """Return what the commit is to say of its stream, None if these numbers are delivered already; raises if they
        cannot be delivered now.
        """
        has_more = command.positions or command.totals is not None or command.xid is not None
        if has_begun or has_more or not command.runs:
            raise InvalidSetting(
                "a delivery is a transaction of its own, with a serial of its own: it has messages, all in this "
                "request, and no positions, totals or xid; nothing was stored"
            )
        _check_stream(delivery.stream)
        known = self.fold.streams.get(delivery.stream)
        if known is None:
            raise StreamFenced(
                f"stream {delivery.stream.hex()} is not known here: it has been released, or was never claimed; "
                "nothing was stored. Claim it, and read its rows anew"
            )
        _check_epoch(known, delivery.stream, delivery.epoch)
        if not 0 <= delivery.after < delivery.number <= MAX_NUMBER:
            raise InvalidSetting(
                f"numbers of a stream grow from 1 on: {delivery.number} cannot come after {delivery.after}; nothing "
                "was stored"
            )
        if delivery.number <= known.last:
            return None
        if delivery.after != known.last:
            raise _out_of_order(known, delivery)
        return Delivered(delivery.stream, known.claim, delivery.number)

    def _check_room(self, table: str) -> None:
        """Raise LimitExceeded if there are so many streams, or so many decision tables, whose generations stay."""
        fold, most = self.fold, self._max_streams
        if len(fold.streams) >= most:
            raise LimitExceeded(
                f"there are {len(fold.streams)} streams, the limit (max_streams); nothing has changed. A stream goes "
                "when its database connection is closed and its rows are gone"
            )
        if table not in fold.generations and len(fold.generations) >= most:
            raise LimitExceeded(
                f"streams of {len(fold.generations)} decision tables have been claimed here, as many as there may be "
                "streams (max_streams); nothing has changed. Raise it, if there are so many databases"
            )

    def _check_generation(self, table: str, generation: int) -> None:
        known = self.fold.generations.get(table, 0)
        if not 0 <= generation <= MAX_NUMBER:
            raise InvalidSetting(
                f"{generation} cannot be the generation of a decision table; nothing has changed"
            )
        if generation < known:
            raise OutboxSetBack(
                f"the decision table {table} says generation {generation}, and has told {known} before: its database "
                "was set back to a copy, or what was read is older than that; nothing has changed. Read it again",
                known,
            )


def _check_stream(stream: bytes) -> None:
    if len(stream) != STREAM_BYTES:
        raise InvalidSetting(
            f"a stream is {STREAM_BYTES} random bytes, not {len(stream)}; nothing has changed"
        )


def _check_epoch(known: Stream, stream: bytes, epoch: bytes) -> None:
    if epoch != known.epoch:
        raise StreamFenced(
            f"stream {stream.hex()} has been claimed by {known.client!r} since (at LSN {known.claim}); nothing was "
            "stored. Drop what waits for it in memory: its rows say what there is"
        )


def _out_of_order(known: Stream, delivery: Delivery) -> StreamOutOfOrder:
    return StreamOutOfOrder(
        f"number {delivery.number} of stream {delivery.stream.hex()} is said to come after {delivery.after}, "
        f"{known.last} was the last; nothing was stored. Deliver what is missing first",
        known.last,
    )

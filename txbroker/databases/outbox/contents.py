"""What lies in an outbox, and what becomes of rows that the broker has refused: for people who look after one."""

from __future__ import annotations

import enum
import secrets
from typing import NamedTuple

from journal.formats import frame
from journal.records.stream_entries import STREAM_BYTES
from txbroker import errors
from txbroker.client.blocking import Connection
from txbroker.client.core.results import Message, decoded
from txbroker.client.operations.streams import list_streams
from txbroker.databases.outbox import payload
from txbroker.databases.outbox.keeper import Keeper
from txbroker.databases.outbox.payload import Payload
from txbroker.databases.outbox.table import OutboxTable, StreamRows
from txbroker.wire.messages import StreamInfo

PATIENCE = 5.0
"""Seconds for which a deletion that a person has asked for waits for others' locks."""

MOST_BYTES = 64 << 20
"""Bytes of a row's messages for one partition that are read, once they are opened."""


class Place(enum.Enum):
    """Where a row is."""

    UNDELIVERED = "undelivered"
    DELIVERED = "delivered, not deleted yet"
    REFUSED = "refused"
    MARK = "rolled back; the mark is not deleted yet"


class StreamContent(NamedTuple):
    """A stream with rows: ``delivered`` of them are delivered and not deleted yet, ``oldest`` is when the block of the
    lowest number ended, in µs since 1970 UTC by its program's clock (None: its payload cannot be read), and ``known``
    what the broker knows of the stream (None: nothing).
    """

    rows: StreamRows
    delivered: int
    oldest: int | None
    known: StreamInfo | None


class RunContent(NamedTuple):
    """The messages of a row for one partition: ``total`` of them. ``obstacle`` says why they cannot be read, "" if they
    can.
    """

    run: payload.Run
    total: int
    messages: list[Message]
    obstacle: str


class RowContent(NamedTuple):
    """A row, refused or not. ``ended`` is as in :class:`StreamContent`; ``obstacle`` says why its payload cannot be
    read, "" if it can. ``error`` and ``refused_at``, the database's time as it gives it, are of a refused one.
    """

    stream: str
    number: int
    place: Place
    ended: int | None
    runs: list[RunContent]
    obstacle: str = ""
    error: str = ""
    refused_at: str = ""

    @property
    def messages(self) -> int:
        """How many messages it has."""
        return sum(run.total for run in self.runs)

    @property
    def topics(self) -> list[str]:
        """The topics that they are for."""
        return list(dict.fromkeys(run.run.topic for run in self.runs))


class Retried(NamedTuple):
    """What became of a refused row that was put into the outbox again, as number 1 of ``stream``.

    DELIVERED is also what another program has come upon and delivers. ``error`` says why it was refused anew, or is not
    delivered now: then the next sweep tries again.
    """

    stream: str
    place: Place
    error: errors.TxBrokerError | None = None


def streams(table: OutboxTable, broker: Connection) -> list[StreamContent]:
    """Return the streams that have rows for this broker. The broker is asked after the rows were read: what it says is
    delivered then, is.
    """
    found = table.streams(broker.identity)
    name = table.connection.look().name
    known = {info.stream.hex(): info for info in broker.run(list_streams(broker.core, name))}
    return [_stream(table, rows, known.get(rows.stream)) for rows in found]


def _stream(table: OutboxTable, rows: StreamRows, known: StreamInfo | None) -> StreamContent:
    last = 0 if known is None else known.last
    delivered = table.count_up_to(rows.stream, last) if rows.lowest <= last else 0
    return StreamContent(rows, delivered, ended(table, rows.stream, rows.lowest), known)


def ended(table: OutboxTable, stream: str, number: int) -> int | None:
    """Return when the block of a row ended, in µs since 1970 UTC; None if its payload does not say."""
    found = table.payload(stream, number, PATIENCE)
    read, _ = (None, "") if found is None else _unpacked(found, stream, number)
    return None if read is None or read.is_mark else read.at


def row(table: OutboxTable, broker: Connection, stream: str, number: int) -> RowContent | None:
    """Return a row of the outbox, or a refused one; None if there is none."""
    found = table.payload(stream, number, PATIENCE)
    if found is None:
        return refused(table, stream, number)
    read, obstacle = _unpacked(found, stream, number)
    name = table.connection.look().name
    known = broker.run(list_streams(broker.core, name))
    is_delivered = any(info.stream.hex() == stream and info.last >= number for info in known)
    place = Place.DELIVERED if is_delivered else Place.UNDELIVERED
    if read is not None and read.is_mark:
        return RowContent(stream, number, Place.MARK, None, [])
    return RowContent(stream, number, place, read and read.at, _runs(read), obstacle)


def refused(table: OutboxTable, stream: str, number: int) -> RowContent | None:
    """Return a refused row; None if there is none."""
    found = table.refused_row(stream, number)
    if found is None:
        return None
    read, obstacle = _unpacked(found.messages, stream, number)
    at = None if read is None else read.at
    return RowContent(stream, number, Place.REFUSED, at, _runs(read), obstacle, found.error, found.refused_at)


def retry(keeper: Keeper, stream: str, number: int) -> Retried | None:
    """Put a refused row into the outbox again, and deliver it; None if there is no such row.

    Raises what says that it cannot be done now: then nothing was changed.
    """
    table, fresh = keeper.table, secrets.token_bytes(STREAM_BYTES).hex()
    found = table.refused_row(stream, number)
    if found is None:
        return None
    failure = None
    try:
        keeper.deliver_again(found, fresh)
    except (errors.RequestRefused, errors.StorageUnavailable) as error:
        failure = error
    again = table.refused_row(fresh, 1)
    if again is not None:
        return Retried(fresh, Place.REFUSED, errors.RequestRefused(again.error))
    is_there = table.payload(fresh, 1, PATIENCE) is not None
    if failure is not None and not is_there and table.refused_row(stream, number) is not None:
        raise failure
    return Retried(fresh, Place.UNDELIVERED if is_there else Place.DELIVERED, failure if is_there else None)


def _unpacked(data: bytes, stream: str, number: int) -> tuple[Payload | None, str]:
    try:
        return payload.unpack(data, f"number {number} of stream {stream}"), ""
    except errors.InvalidFrame as error:
        return None, str(error)


def _runs(read: Payload | None) -> list[RunContent]:
    found, start = list[RunContent](), 0
    for run in [] if read is None else read.runs:
        assert read is not None
        frames = read.frames[start : start + run.size]
        start += run.size
        found.append(_run(run, frames))
    return found


def _run(run: payload.Run, frames: memoryview) -> RunContent:
    try:
        total = sum(count for *_, count in frame.walk(frames))
    except errors.InvalidFrame as error:
        return RunContent(run, 0, [], str(error))
    try:
        messages, _ = decoded(run.topic, run.partition, frames, 0, MOST_BYTES)
    except (errors.RequestRefused, errors.CorruptData) as error:
        return RunContent(run, total, [], str(error))
    return RunContent(run, total, messages, "")

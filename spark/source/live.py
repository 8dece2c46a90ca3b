"""Logs of a live broker, over its protocol: executors need no disk of the broker."""

from __future__ import annotations

import time as clock
from collections.abc import Callable

import numpy as np

import txbroker
from journal.arguments import LEAST_TIME
from journal.constants import RESTORED_STARTS, STARTS_KEPT
from journal.formats.frame import HEADER_BYTES, walk
from journal.formats.index import MAX_GAP
from journal.records.outcome_entry import OUTCOMES_TOPIC, ArchivedOutcome
from spark.source.logs import Log, MessagesLost, Points, Slice, Start, lost
from spark.source.message_heads import UnsoundBlock
from txbroker import errors
from txbroker.client.blocking import Connection
from txbroker.wire.messages import FormerSession, TopicInfo
from txbroker.wire.secret import Secret


class Broker:
    """The logs of a broker as it describes them when asked. One connection, opened at once."""

    def __init__(self, address: str, timeout: float) -> None:
        self._connection = txbroker.connect(address, client="spark", timeout=timeout)
        self._address = address
        self._known: dict[Start, bool] = {}
        self._by_time: dict[tuple[str, int], dict[int, int]] = {}

    @property
    def identity(self) -> str:
        """Return the name of the broker's data."""
        return self._connection.identity

    @property
    def start(self) -> Start:
        """See :class:`spark.source.logs.Logs`."""
        welcomed = self._connection.core.former
        assert welcomed is not None, "the connection has been open"
        return Start(welcomed.session >> 32, welcomed.start)

    def knows(self, start: Start) -> bool:
        """Do what :class:`spark.source.logs.Logs` says. An open connection ends when the broker's data are set back."""
        age = self.start.number - start.number
        if STARTS_KEPT <= age < RESTORED_STARTS or start == self.start:
            return True  # one so old is forgotten; of another time line, it would be older by far
        if start not in self._known:
            self._known[start] = self._asked(start)
        return self._known[start]

    def _asked(self, start: Start) -> bool:
        """Return whether the broker accepts a client with a former session in this start, which no client has."""
        connection = Connection(self._connection.address, self._connection.core.options)
        connection.core.former = FormerSession(start.number << 32, start.nonce, Secret(b""))
        try:
            connection.run(connection.core.opened(clock.monotonic() + connection.core.options.timeout))
        except errors.BrokerReplaced:
            return False
        finally:
            connection.close()
        return True

    def logs(self, wanted: Callable[[str], bool]) -> list[Log]:
        """See :class:`spark.source.logs.Logs`."""
        self._by_time.clear()
        return [
            Log(topic.name, part.index, part.number, part.start_offset, part.high_watermark, part.bytes)
            for topic in self._topics()
            if wanted(topic.name)
            for part in topic.partitions
        ]

    def offset_for_time(self, log: Log, time: int, *, late: bool) -> int:
        """See :class:`spark.source.logs.Logs`."""
        if (log.topic, time) not in self._by_time:  # the answer is for all partitions of the topic
            found_all = self._connection.offsets_for_time(log.topic, max(time, LEAST_TIME))
            self._by_time[log.topic, time] = found_all
        found = self._by_time[log.topic, time].get(log.index, log.end)
        found = max(log.start, min(found, log.end))
        return self._behind_entry(log, found) if late else found

    def _behind_entry(self, log: Log, offset: int) -> int:
        """Return an offset that is not below where a time begins, for one that the broker returned.

        The broker's is early by the range of an index entry: by the frames that begin in the ``MAX_GAP`` bytes behind
        it.
        """
        looked_at = 0
        while looked_at < MAX_GAP and offset < log.end:
            data = self._connection.read_frames(log.number, offset, MAX_GAP).data
            if not data:
                break  # the log ends earlier by now: its reader reports that
            for position, _, first, count in walk(data):
                if looked_at + position < MAX_GAP:
                    offset = first + count
            looked_at += len(data)
        return min(offset, log.end)

    def first_since(self, log: Log, time: int) -> int:
        """See :class:`spark.source.logs.Logs`."""
        return self.offset_for_time(log, time, late=False)

    def points(self, log: Log, first: int, end: int) -> Points:
        """Do what :class:`spark.source.logs.Logs` says. The broker gives sizes of whole logs only."""
        messages = max(1, log.end - log.start)
        below = [log.bytes * (offset - log.start) // messages for offset in (first, end)]
        return Points(np.array([first, end], np.int64), np.array(below, np.int64))

    def archived_between(self, archive: Log, part: Slice) -> tuple[int, int]:  # noqa: ARG002
        """Do what :class:`spark.source.logs.Logs` says. The times of a live broker's logs are unknown: read all of the
        archive.
        """
        return archive.start, (1 << 63) - 1

    def archive_waiting(self) -> list[ArchivedOutcome]:
        """Do what :class:`spark.source.logs.Logs` says. A broker shows outcomes and entries at once."""
        return []

    def cursor(self, part: Slice) -> FetchCursor:
        """See :class:`spark.source.logs.Logs`."""
        return FetchCursor(self._connection, self._address, part.log)

    def show_progress(self, group: str, offsets: dict[tuple[str, int], int]) -> None:
        """Move a group to these offsets, by topic and index."""
        topics: dict[str, dict[int, int]] = {}
        for (topic, index), offset in offsets.items():
            topics.setdefault(topic, {})[index] = offset
        for topic, partitions in topics.items():
            self._connection.set_offsets(group, topic, partitions)

    def close(self) -> None:
        """Close the connection."""
        self._connection.close()

    def _topics(self) -> list[TopicInfo]:
        """Return all topics. The broker lists its own only if they are named."""
        found = [*self._connection.topics(), *self._connection.topics([OUTCOMES_TOPIC])]
        return sorted({topic.name: topic for topic in found}.values(), key=lambda topic: topic.name)


class FetchCursor:
    """Reads a part of one log by asking the broker for one run of frames after the other."""

    def __init__(self, connection: txbroker.Connection, address: str, log: Log) -> None:
        self._connection = connection
        self._address = address
        self._log = log

    def read(self, offset: int, most: int) -> tuple[bytes, int]:
        """See :class:`spark.source.logs.Cursor`."""
        log = self._log
        try:
            found = self._connection.read_frames(log.number, offset, most)
        except errors.OffsetOutOfRange as error:
            if error.start > offset:
                why = f"retention has taken all below offset {error.start}"
                raise lost(log, offset, min(error.start, log.end) - 1, why) from None
            why = f"the broker's log ends at offset {error.end} now: it has lost messages, or its data are others"
            raise lost(log, offset, log.end - 1, why) from None
        except errors.UnknownPartition:
            raise lost(
                log, offset, log.end - 1, "the topic has been deleted since the query was planned"
            ) from None
        except errors.CorruptSegment as error:
            raise lost(log, offset, min(error.last_offset, log.end - 1), str(error)) from None
        except (errors.StorageUnavailable, errors.OutcomeUnknown, errors.ConnectionUnavailable) as error:
            error.args = (
                f"{log.name} from offset {offset} on, from {self._address}: {error}",
                *error.args[1:],
            )
            raise
        if len(found.data) < HEADER_BYTES:
            why = f"the broker gave {len(found.data)} bytes, though its log goes on to {found.high_watermark}"
            raise lost(log, offset, log.end - 1, why)
        return bytes(found.data), int.from_bytes(found.data[8:16], "big")

    def advance(self, taken: int, offset: int) -> None:
        """See :class:`spark.source.logs.Cursor`."""

    def damaged(self, fault: UnsoundBlock) -> MessagesLost:
        """See :class:`spark.source.logs.Cursor`."""
        last = (fault.end or fault.offset + 1) - 1
        return lost(self._log, fault.offset, last, f"what {self._address} sent is damaged: {fault}")

    def close(self) -> None:
        """See :class:`spark.source.logs.Cursor`."""

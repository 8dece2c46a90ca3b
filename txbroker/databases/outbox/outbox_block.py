"""The outbox's side of one block: the row that its transaction leaves, and what follows when it has ended."""

from __future__ import annotations

import time

from journal.formats.frame import is_compressed
from journal.xid import Xid
from txbroker.client.core.promise import Promise
from txbroker.client.producer.partition_queue import PartitionQueue
from txbroker.databases.adapters.database import OutboxRow
from txbroker.databases.outbox import payload
from txbroker.databases.outbox.stream import Committed, Stream
from txbroker.databases.outbox.streams import Streams
from txbroker.databases.tables import xids


class OutboxBlock:
    """A block whose messages travel in the database. It has a number of its stream from the beginning on.

    After an interrupt each of its ends may be told again.
    """

    def __init__(
        self,
        streams: Streams,
        stream: Stream,
        messages: list[tuple[PartitionQueue, bytes]],
        broker: str,
        now: int,
        stops: bool = False,
    ) -> None:
        """``now`` is in µs since 1970 UTC; ``stops`` says that the stream waits at it if it is refused for ever."""
        self._streams = streams
        self._stream = stream
        self._frames = b"".join([frames for _, frames in messages])
        self._runs = [(queue.number, len(frames)) for queue, frames in messages]
        self._joins = True
        for _, frames in messages:
            if is_compressed(frames):  # nobody has counted what is in there
                self._joins = False
        listed = [
            payload.Run(queue.topic, queue.index, queue.partitions, len(frames)) for queue, frames in messages
        ]
        packed = payload.pack(now, listed, self._frames, stops)
        with streams.lock:
            self.number, self._epoch = stream.begin()
        self.row = OutboxRow(stream.text, self.number, broker, packed, streams.table)

    @property
    def xid(self) -> Xid:
        """What names the block."""
        row = self.row
        return xids.of_row(row.table, row.stream, row.number, row.broker)

    def ended(self, is_committed: bool) -> None:
        """Note how the database has ended it; what is committed is delivered now, if that is possible."""
        if is_committed:
            block = Committed(self.number, self._runs, self._frames, time.monotonic(), self._joins)
            self._streams.committed(self._stream, block, self._epoch)
        else:
            self._streams.rolled_back(self._stream, self.number)

    def unknown(self) -> None:
        """Note that nobody here knows how it ended: its stream is given up, and the row, if it is there, is found."""
        self._streams.give_up(self._stream)

    def shown(self) -> Promise[None]:
        """Return a promise for when its messages are visible."""
        return self._streams.wait(self._stream, self.number)

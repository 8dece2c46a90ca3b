"""Messages as a stream: offsets in Spark's checkpoint, as many at a time as is wanted, none twice and none left out.

An offset of the stream is what Spark keeps in its checkpoint::

    {"identity": "5f3c...", "topics": {"orders": {"0": {"log": 17, "next": 4711}}}}

``log`` is the number of the partition's log, which is never reused: a topic that was deleted and made anew, or another
broker's data behind the same address, are noticed, and never read from an offset that means nothing there.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)
from pyspark.sql.types import StructType

from journal.errors import InvalidSetting
from spark.columns import names_in
from spark.logs import Log, Logs, Losses, lost
from spark.options import NOTHING_READ, ReadOptions
from spark.planning import Range, Task, cut_into_tasks, inside, starting, subscribed
from spark.pushdown import Wanted
from spark.rate_limit import limited
from spark.reading import open_logs, read_parts

Place = tuple[str, int]
"""Topic and index."""


class Position(NamedTuple):
    """Where a stream is in a log: ``next`` is the first offset that it has not had yet.

    ``first``: the log is new to the stream in the batch that ends here, and that begins there in it.
    """

    log: int
    next: int
    first: int | None = None


_UNKNOWN = "Whether all of it had been read is not known; a new checkpointLocation begins anew"
_SET_BACK = "What was sent since has other offsets than before: a new checkpointLocation begins anew"


class MessageStream(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """The driver's side of a streaming read; :meth:`read` is the tasks'."""

    def __init__(self, options: ReadOptions, schema: StructType) -> None:
        if options.ending is not None or options.ending_time is not None:
            raise InvalidSetting(
                f"endingOffsets and endingTimestamp are for batches: a stream has no end; {NOTHING_READ}. "
                "Trigger.AvailableNow reads what is there and stops"
            )
        if options.where:
            raise InvalidSetting(
                f"the option where is for batches; {NOTHING_READ}. Filter the stream's rows with .where()"
            )
        self._options = options
        self._names = names_in(schema)
        self._losses = Losses(options.fail_on_data_loss)
        self._fixed: dict[Place, Log] | None = None
        """Where Trigger.AvailableNow ends, once that has been asked for."""
        self._open: Logs | None = None

    # -- what the driver asks ----------------------------------------------------------------------

    def initialOffset(self) -> dict[str, Any]:
        """Where a new query begins: at the end, unless ``startingOffsets`` or ``startingTimestamp`` say otherwise."""
        logs = self._logs()
        found = subscribed(logs, self._options)
        first = starting(logs, self._options, found, "latest")
        begun = {_place(log): Position(log.number, self._clamped(log, first[log.number])) for log in found}
        return _written(logs.identity, begun)

    def getDefaultReadLimit(self) -> ReadLimit:
        """``maxOffsetsPerTrigger``."""
        most = self._options.max_offsets
        return ReadAllAvailable() if most is None else ReadMaxRows(most)

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        """How far the next batch goes: to the ends of the logs, or a part of the way to each."""
        begun, ends = self._read(start), self._ends()
        self._tell_of_deleted(begun, ends)
        reached = {place: self._begin(log, begun.get(place)) for place, log in sorted(ends.items())}
        behind = {place: ends[place].end - position.next for place, position in reached.items()}
        most = limit.max_rows if isinstance(limit, ReadMaxRows) else sum(behind.values())
        seed = sum(position.next for position in reached.values())  # another one for each batch
        for place, messages in limited(behind, most, seed).items():
            reached[place] = reached[place]._replace(next=reached[place].next + messages)
        return _written(self._logs().identity, reached)

    def prepareForTriggerAvailableNow(self) -> None:
        """Go on to where the logs end now, and no further."""
        self._fixed = self._current()

    def reportLatestOffset(self) -> dict[str, Any]:
        """For the progress of the query: the ends of the logs."""
        ends = {place: Position(log.number, log.end) for place, log in self._current().items()}
        return _written(self._logs().identity, ends)

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        """The tasks of a batch; the same messages whenever Spark asks for the same batch again."""
        logs, begun = self._logs(), self._read(start)
        current = self._current()
        parts: list[Range] = []
        for place, upto in self._read(end).items():
            log, position = current.get(place), begun.get(place)
            if position is None or position.log != upto.log:
                position = Position(upto.log, upto.next if upto.first is None else upto.first)
            if log is None or log.number != upto.log:
                if position.next < upto.next:
                    gone = log or Log(*place, upto.log, 0, 0, 0)
                    why = "its topic has been deleted" + (", and made anew" if log else "")
                    self._losses.take(lost(gone, position.next, upto.next - 1, why))
                continue
            first, last = inside(log, min(position.next, upto.next), upto.next, self._losses)
            if first < last:
                parts.append(Range(log, first, last))
        return list(cut_into_tasks(logs, parts, self._options.min_partitions))

    def commit(self, end: dict[str, Any]) -> None:
        """Nothing: the broker keeps no position for a stream, Spark's checkpoint does."""

    def stop(self) -> None:
        """The query has ended."""
        if self._open is not None:
            self._open.close()
            self._open = None

    # -- what a task does --------------------------------------------------------------------------

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """The batches of one task."""
        assert isinstance(partition, Task)
        return read_parts(self._options, self._names, Wanted(), partition.parts)

    def __getstate__(self) -> dict[str, Any]:
        """To a task go no connections."""
        return {**self.__dict__, "_open": None, "_fixed": None}

    # -- the parts ---------------------------------------------------------------------------------

    def _logs(self) -> Logs:
        """A broker's connection is kept; a directory is looked at anew, for its checkpoint is another each time."""
        if self._options.path:
            return open_logs(self._options)
        if self._open is None:
            self._open = open_logs(self._options)
        return self._open

    def _current(self) -> dict[Place, Log]:
        return {_place(log): log for log in self._logs().logs(self._options.wants)}

    def _ends(self) -> dict[Place, Log]:
        return self._current() if self._fixed is None else self._fixed

    def _read(self, offset: dict[str, Any]) -> dict[Place, Position]:
        """Spark's offset; raises if it is of other data than these."""
        identity = self._logs().identity
        if offset["identity"] != identity:
            raise InvalidSetting(
                f"the query's checkpoint is of the data {offset['identity'] or '(unnamed)'}, and {self._options.place} "
                f"has the data {identity or '(unnamed)'}: its offsets mean nothing there; {NOTHING_READ}. Give the "
                "query a new checkpointLocation, or the broker that it was begun with"
            )
        return {
            (topic, int(index)): Position(at["log"], at["next"], at.get("first"))
            for topic, partitions in offset["topics"].items()
            for index, at in partitions.items()
        }

    def _tell_of_deleted(self, begun: dict[Place, Position], ends: dict[Place, Log]) -> None:
        """A topic that was read and is not there any more is a loss, one that never was there is a mistake."""
        for place, position in begun.items():
            if place not in ends:
                gone = Log(*place, position.log, 0, 0, 0)
                self._losses.take(
                    lost(gone, position.next, position.next, "its topic has been deleted", _UNKNOWN)
                )
        if set(self._options.topics) - {topic for topic, _ in begun.keys() | ends.keys()}:
            subscribed(self._logs(), self._options)

    def _begin(self, log: Log, position: Position | None) -> Position:
        """Where to go on in a log: at the position, or at the start of a log that is new to the stream.

        What retention has taken since is passed over at once; it is told when the batch is planned.
        """
        if position is not None and position.log != log.number:
            why = f"its topic has been deleted and made anew (log {position.log} is now log {log.number})"
            self._losses.take(lost(log, position.next, position.next, why, _UNKNOWN))
            position = None
        if position is None:
            return Position(log.number, log.start, log.start)
        if position.next > log.end:
            why = f"the log ends at offset {log.end} now: it has lost messages, or was set back to an older copy"
            self._losses.take(lost(log, log.end, position.next - 1, why, _SET_BACK))
        return Position(log.number, max(log.start, min(position.next, log.end)))

    def _clamped(self, log: Log, first: int) -> int:
        if first > log.end:
            self._losses.take(
                lost(log, log.end, first - 1, f"the log ends at offset {log.end}", "Give -1 for its end")
            )
        if first < log.start:
            why = f"retention has taken all below offset {log.start}"
            self._losses.take(lost(log, first, log.start - 1, why, "Begin at -2 (earliest)"))
        return min(max(first, log.start), log.end)


def _place(log: Log) -> Place:
    return log.topic, log.index


def _written(identity: str, positions: dict[Place, Position]) -> dict[str, Any]:
    topics: dict[str, dict[str, dict[str, int]]] = {}
    for (topic, index), position in sorted(positions.items()):
        at = {name: value for name, value in position._asdict().items() if value is not None}
        topics.setdefault(topic, {})[str(index)] = at
    return {"identity": identity, "topics": topics}

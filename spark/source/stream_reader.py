"""Messages as a stream: batches of limited size, with no message twice and none left out."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadLimit, SupportsTriggerAvailableNow
from pyspark.sql.types import StructType

from journal.errors import InvalidSetting, TxBrokerError
from spark.source.archive import checked_archive, numbered_entries
from spark.source.batch_limits import BatchLimits
from spark.source.columns import names_in
from spark.source.live import Broker
from spark.source.logs import Log, Logs, Losses, MessagesLost, Slice, lost
from spark.source.options import NOTHING_READ, ReadOptions
from spark.source.partition_plan import Range, Task, chosen, cut_into_tasks, inside, starting, subscribed
from spark.source.pushdown import Wanted
from spark.source.reader import open_logs, read_parts
from spark.source.stream_offset import Place, Position, StreamOffset, offset_in, place_of
from spark.source.whole_transactions import Span, whole_cut

_log = logging.getLogger("txbroker.spark")

_UNKNOWN = "Whether all of it had been read is not known; a new checkpointLocation begins anew"
_SET_BACK = "What was sent since has other offsets than before: a new checkpointLocation begins anew"
_TAKEN = "A new checkpointLocation begins where startingOffsets says"


class MessageStream(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """The driver's side of a streaming read; :meth:`read` is the tasks'."""

    def __init__(self, options: ReadOptions, schema: StructType) -> None:
        if any(each is not None for each in (options.ending, options.ending_time, options.ending_times)):
            raise InvalidSetting(
                "endingOffsets, endingOffsetsByTimestamp and endingTimestamp are for batches: a stream has no end; "
                f"{NOTHING_READ}. Trigger.AvailableNow reads what is there and stops"
            )
        if options.where:
            raise InvalidSetting(
                f"the option where is for batches; {NOTHING_READ}. Filter the stream's rows with .where()"
            )
        self._options = options
        self._names = names_in(schema)
        self._losses = Losses(options.fail_on_data_loss)
        self._limits = BatchLimits(options)
        self._fixed: dict[Place, Log] | None = None
        """Where Trigger.AvailableNow ends, once that has been asked for."""
        self._open: Logs | None = None

    # -- what the driver asks ----------------------------------------------------------------------

    def initialOffset(self) -> dict[str, Any]:
        """Return where a new query begins: at the end, unless ``startingOffsets`` or ``startingTimestamp`` say
        otherwise.
        """
        logs = self._logs()
        if self._options.whole_transactions:
            checked_archive(logs, self._options.place)
        found = subscribed(logs, self._options)
        first = starting(logs, self._options, found, "latest")
        begun = {
            place_of(log): Position(log.number, self._clamped(log, first[log.number]))
            for log in found
            if self._fixed is None or place_of(log) in self._fixed  # else it came since, and is not read yet
        }
        return StreamOffset(logs.identity, logs.start, begun).written()

    def getDefaultReadLimit(self) -> ReadLimit:
        """Return one of the limits of the options, because Spark allows only one."""
        return self._limits.default

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        """Return how far the next batch goes: to the ends of the logs, or a part of the way to each."""
        begun, ends, logs = self._read(start), self._ends(), self._logs()
        known = begun.start is None or logs.knows(begun.start)
        gone = self._tell_of_deleted(begun, ends)
        reached = {
            place: self._begin(log, begun.positions.get(place), known) for place, log in sorted(ends.items())
        }
        if not known:
            self._tell_of_set_back(begun, ends)
        ahead = self._limits.ahead(logs, ends, reached, limit, self._fixed is None)
        found = StreamOffset(logs.identity, logs.start, ahead, gone, begun.archive)
        if self._options.whole_transactions and reached != ahead != _all_of(ends):
            found = self._whole(found, reached, ends)
        # Only an equal offset makes no batch.
        return start if known and found.is_at(begun) else found.written()

    def prepareForTriggerAvailableNow(self) -> None:
        """Read to the present ends of the logs, and no further."""
        self._fixed = self._current()

    def reportLatestOffset(self) -> dict[str, Any]:
        """Return the ends of the logs, for the progress of the query."""
        ends = _all_of(self._current())
        return StreamOffset(self._logs().identity, self._logs().start, ends).written()

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        """Return the tasks of a batch; the same messages whenever Spark asks for the same batch again."""
        logs, begun, ended = self._logs(), self._read(start).positions, self._read(end)
        current = self._current()
        if ended.start is not None and not logs.knows(ended.start):
            self._tell_of_set_back(ended, current)
        parts: list[Range] = []
        for place, upto in ended.positions.items():
            log, position = current.get(place), begun.get(place)
            if position is None or position.log != upto.log:
                position = Position(upto.log, upto.next if upto.first is None else upto.first)
            if log is None or log.number != upto.log:
                if position.next < upto.next:
                    gone = log or Log(*place, upto.log, 0, 0, 0)
                    why = "its topic has been deleted" + (", and made anew" if log else "")
                    self._losses.report(lost(gone, position.next, upto.next - 1, why))
                continue
            first, last = inside(log, min(position.next, upto.next), upto.next, self._losses, _TAKEN)
            if first < last:
                parts.append(Range(log, first, last))
        return list(cut_into_tasks(logs, parts, self._options.min_partitions))

    def commit(self, end: dict[str, Any]) -> None:
        """Move the option's ``group`` at the broker to the stream's positions. The stream itself uses Spark's
        checkpoint only.
        """
        if not self._options.group:
            return
        logs, positions = self._logs(), offset_in(end).positions
        assert isinstance(logs, Broker), "checked with the options"
        current = self._current()
        shown = {
            place: position.next
            for place, position in positions.items()
            if place in current and current[place].number == position.log
        }
        try:
            logs.show_progress(self._options.group, shown)
        except TxBrokerError as error:
            _log.warning(
                "the group %s does not show where the stream is, which goes on: %s",
                self._options.group,
                error,
            )

    def stop(self) -> None:
        """The query has ended."""
        if self._open is not None:
            self._open.close()
            self._open = None

    # -- what a task does --------------------------------------------------------------------------

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the batches of one task."""
        assert isinstance(partition, Task)
        return read_parts(self._options, self._names, Wanted(), partition.parts)

    def __getstate__(self) -> dict[str, Any]:
        """Leave connections out of what a task gets."""
        return {**self.__dict__, "_open": None, "_fixed": None}

    # -- the parts ---------------------------------------------------------------------------------

    def _logs(self) -> Logs:
        """Return the logs: a broker's connection is kept; a directory is opened anew, because its checkpoint
        changes.
        """
        if self._options.path:
            return open_logs(self._options)
        if self._open is None:
            self._open = open_logs(self._options)
        return self._open

    def _current(self) -> dict[Place, Log]:
        return {place_of(log): log for log in chosen(self._logs(), self._options)}

    def _ends(self) -> dict[Place, Log]:
        return self._current() if self._fixed is None else self._fixed

    def _whole(
        self, found: StreamOffset, begun: dict[Place, Position], ends: dict[Place, Log]
    ) -> StreamOffset:
        """Return the offset moved back to where no transaction is cut, or if that is the beginning, forward to such a
        place.
        """
        logs = self._logs()
        archive = checked_archive(logs, self._options.place)
        first = archive.start if found.archive is None else found.archive
        part = Slice(archive, first if archive.start <= first <= archive.end else archive.start, archive.end)
        ranges = {
            position.log: Span(begun[place].next, position.next, ends[place].end)
            for place, position in found.positions.items()
        }
        cut, left_out = whole_cut(numbered_entries(logs, part, self._losses), ranges)
        positions = {
            place: position._replace(next=cut[position.log]) for place, position in found.positions.items()
        }
        return found._replace(positions=positions, archive=archive.end if left_out is None else left_out)

    def _read(self, kept: dict[str, Any]) -> StreamOffset:
        """Return Spark's offset; raises if it is of other data than these."""
        identity, offset = self._logs().identity, offset_in(kept)
        if offset.identity != identity:
            raise InvalidSetting(
                f"the query's checkpoint is of the data {offset.identity or '(unnamed)'}, and {self._options.place} "
                f"has the data {identity or '(unnamed)'}: its offsets mean nothing there; {NOTHING_READ}. Give the "
                "query a new checkpointLocation, or the broker that it was begun with"
            )
        return offset

    def _tell_of_deleted(self, begun: StreamOffset, ends: dict[Place, Log]) -> frozenset[str]:
        """Report deleted topics: one that was read is a loss, one that never existed is a mistake.

        Returns the topics that the stream names and that are known to be deleted.
        """
        for place, position in begun.positions.items():
            if place not in ends:
                gone = Log(*place, position.log, 0, 0, 0)
                self._losses.report(
                    lost(gone, position.next, position.next, "its topic has been deleted", _UNKNOWN)
                )
        missing = set(self._options.topics) - {topic for topic, _ in ends}
        if missing - begun.topics:
            subscribed(self._logs(), self._options)
        return frozenset(missing)

    def _tell_of_set_back(self, offset: StreamOffset, logs: dict[Place, Log]) -> None:
        """Report data that were set back: below the stream's positions there may be later messages, unread."""
        read = {place: log for place, log in logs.items() if place in offset.positions}
        for place, log in sorted(read.items())[:1]:
            at = offset.positions[place].next
            others = f", and of {len(read) - 1} other partitions," if len(read) > 1 else ""
            start = offset.start.number if offset.start else 0
            raised = MessagesLost(
                f"{log.name}: which messages are below offset {at}{others} is not what the stream has read: "
                f"the data of {self._options.place} know nothing of the start {start} in which it was read, so they "
                f"were set back to an older copy. {_SET_BACK}; with failOnDataLoss=false the stream goes on at "
                "its offsets, with a warning, and what was sent since below them is not read",
                log,
                log.start,
                at - 1,
            )
            self._losses.report(raised)

    def _begin(self, log: Log, position: Position | None, known: bool) -> Position:
        """Return where to go on in a log: at the position, or at the start of a log that is new to the stream.

        Messages that retention has removed since are skipped at once; that is reported when the batch is planned.
        """
        if position is not None and position.log != log.number:
            why = f"its topic has been deleted and made anew (log {position.log} is now log {log.number})"
            self._losses.report(lost(log, position.next, position.next, why, _UNKNOWN))
            position = None
        if position is None:
            return Position(log.number, log.start, log.start)
        if position.next > log.end:
            why = (
                "it has lost messages, or was set back to an older copy"
                if known
                else "it was set back to an older copy"
            )
            why = f"the log ends at offset {log.end} now: {why}"
            self._losses.report(lost(log, log.end, position.next - 1, why, _SET_BACK))
        return Position(log.number, max(log.start, min(position.next, log.end)))

    def _clamped(self, log: Log, first: int) -> int:
        if first > log.end:
            self._losses.report(
                lost(log, log.end, first - 1, f"the log ends at offset {log.end}", "Give -1 for its end")
            )
        if first < log.start:
            why = f"retention has taken all below offset {log.start}"
            self._losses.report(lost(log, first, log.start - 1, why, "Begin at -2 (earliest)"))
        return min(max(first, log.start), log.end)


def _all_of(ends: dict[Place, Log]) -> dict[Place, Position]:
    return {place: Position(log.number, log.end) for place, log in ends.items()}

"""The sinks for batches and streams, which write to the broker exactly once; Spark calls them on the driver and
in tasks.
"""

from __future__ import annotations

import logging
import secrets
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from spark.sink import decision, outgoing_rows
from spark.sink.branch_writer import BranchWriter
from spark.sink.branches import Write
from spark.sink.decision import TaskReport, WriteRefused
from spark.sink.leftovers import nameless
from spark.sink.options import SinkOptions
from spark.sink.register import Extent, Register, RegisterState
from txbroker import errors
from txbroker.client.blocking import Connection, connect

log = logging.getLogger("txbroker.spark")

QUERY_ID: Final = "sql.streaming.queryId"
BATCH_ID: Final = "streaming.sql.batchId"
"""The names under which Spark gives a stream's tasks their query and batch."""


@dataclass(frozen=True)
class TaskWritten(WriterCommitMessage):
    """A task's message to the driver through Spark."""

    report: TaskReport


class _Sink:
    """The common part of batch and stream. Spark pickles it, so it holds no connection."""

    in_order = False
    """Whether versions come one after the other, and only the last one is ever repeated."""

    def __init__(self, options: SinkOptions, schema: StructType, overwrite: bool) -> None:
        if overwrite:
            raise errors.InvalidSetting(
                "a topic is a log, to which messages are appended: use mode('append'), or outputMode('append') of a "
                "stream; nothing was written"
            )
        outgoing_rows.check_schema(schema, options.topic)
        self.options = options

    def connect(self, who: str, reports: str = "") -> Connection:
        """Return a new connection for a task or the driver."""
        options = self.options
        return connect(
            options.broker,
            client=f"spark {who}",
            timeout=options.timeout,
            batch_bytes=options.batch_bytes,
            compression=options.compression,
            compression_level=options.compression_level,
            reports=reports,
        )

    def check_topics(self, broker: Connection) -> None:
        """Raise UnknownTopic if a topic of the options does not exist: on the driver, before any task runs."""
        options = self.options
        named = {topic for topic in (options.topic, options.audit_topic) if topic}
        if missing := sorted(named - {found.name for found in broker.topics(sorted(named))}):
            raise errors.UnknownTopic(
                f"there is no topic {', '.join(map(repr, missing))} at {options.broker}; nothing was written. A write "
                "makes none: create it first ('txbroker topics create'), or name another"
            )

    def write_rows(
        self, write: Write, begun: RegisterState | None, batches: Iterator[pa.RecordBatch]
    ) -> TaskWritten:
        """Run T1 to T4. ``begun``: the register's state when the driver began the write, None if unknown."""
        context = TaskContext.get()
        partition = context.partitionId() if context is not None else 0
        with self.connect(f"{write} task {partition}", self.options.audit_topic) as broker:
            register = Register(broker, write.name)
            state = register.read()
            if self.in_order and state.decided > write.version:
                raise _rolled_back(write, state.decided)
            if begun is not None and begun.decided < write.version < state.decided:
                raise decision.overtaken(write, state.decided)
            if state.decided >= write.version:
                log.info("%s is decided: partition %d writes nothing", write, partition)
                same = state.decided == write.version
                extent = outgoing_rows.extent(batches, self.options.topic) if same else Extent()
                return TaskWritten(TaskReport(broker.identity, write, state.epoch, (), extent, skipped=True))
            if begun is not None and begun.epoch != state.epoch:
                raise _passed(write, begun.epoch, state.epoch)
            if not state.exists:
                register.reserve()
            return TaskWritten(self._write_branches(broker, write, state.epoch, partition, batches))

    def _write_branches(
        self, broker: Connection, write: Write, epoch: int, partition: int, batches: Iterator[pa.RecordBatch]
    ) -> TaskReport:
        options = self.options
        writer = BranchWriter(
            broker, write, epoch, partition,
            branch_bytes=options.branch_bytes, branch_seconds=options.branch_seconds, by_key=options.by_key,
        )  # fmt: skip
        try:
            for batch in batches:
                for columns in outgoing_rows.messages(batch, options.topic):
                    writer.send(columns)
            prepared = writer.finish()
            now = Register(broker, write.name).read().epoch
            if now != epoch:
                raise _passed(write, epoch, now)
        except Exception as error:
            _undo(writer, error)
            raise
        keys = tuple(branch.key for branch in prepared)
        return TaskReport(broker.identity, write, epoch, keys, writer.extent)

    def commit_write(self, write: Write, reports: Sequence[TaskReport]) -> None:
        """Run C1 to C6."""
        with self.connect(f"{write} driver") as broker:
            decision.commit(broker, write, reports, in_order=self.in_order)

    def abort_write(self, write: Write, reports: Sequence[TaskReport]) -> None:
        """End an attempt that has failed."""
        with self.connect(f"{write} driver") as broker:
            decision.give_up(broker, write, reports)


def _passed(write: Write, begun: int, now: int) -> WriteRefused:
    return WriteRefused(
        f"{write} was begun in epoch {begun} and now it is {now}: it has been decided, or given up, without this "
        "attempt of a task. Nothing of this attempt will be seen"
    )


def _rolled_back(write: Write, decided: int) -> WriteRefused:
    return WriteRefused(
        f"{write}: batch {decided} of this query is written already. Spark repeats no batch but the last one, so "
        "this checkpoint is older than what was written, restored from a copy perhaps, and its batches may hold "
        "other rows. Nothing was written. Begin with a new checkpoint, at the offsets after what is written"
    )


def _undo(writer: BranchWriter, error: Exception) -> None:
    """Roll back at once the branches of a failing task; if that fails the driver or ``resolve`` does it."""
    try:
        writer.roll_back()
    except errors.TxBrokerError as failure:
        error.add_note(f"and its branches could not be rolled back now ({failure}); the driver sees to them")


def _reports(messages: Sequence[WriterCommitMessage | None]) -> list[TaskReport]:
    return [message.report for message in messages if isinstance(message, TaskWritten)]


class BatchSink(_Sink, DataSourceArrowWriter):
    """The sink of ``df.write.format("txbroker")``. Spark makes one on the driver for each write, and pickles it
    for tasks.
    """

    def __init__(self, options: SinkOptions, schema: StructType, overwrite: bool) -> None:
        super().__init__(options, schema, overwrite)
        self.is_nameless = options.write is None
        self.write_name = options.write or Write(nameless(time.time(), secrets.token_hex(4)), 0)
        self.begun = self._open()

    def _open(self) -> RegisterState:
        """Return the register's state. The register is made before there are rows, and a nameless write begins an
        epoch.

        So a limit of the broker is met early, and late attempts of a nameless write find that it has ended.
        """
        with self.connect(f"{self.write_name} driver") as broker:
            register = Register(broker, self.write_name.name)
            state = register.read()
            if state.decided < self.write_name.version:
                self.check_topics(broker)
            if self.is_nameless:
                generation = register.claim(broker.core.options.client)
                state = register.end_epoch(state, generation)
            elif not state.exists:
                register.reserve()
            return state

    def write(self, iterator: Iterator[Any]) -> WriterCommitMessage:
        """Prepare the rows of a task."""
        return self.write_rows(self.write_name, self.begun, iterator)

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """On the driver: decide, and carry the decision out."""
        self.commit_write(self.write_name, _reports(messages))
        self._forget()

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """On the driver: roll back, unless it is decided after all."""
        self.abort_write(self.write_name, _reports(messages))
        self._forget()

    def _forget(self) -> None:
        if self.is_nameless:
            with self.connect(f"{self.write_name} driver") as broker:
                Register(broker, self.write_name.name).delete()


class StreamSink(_Sink, DataSourceStreamArrowWriter):
    """The sink of ``writeStream.format("txbroker")``. Spark makes one for the tasks of each batch, and one for each
    commit.
    """

    in_order = True

    def __init__(self, options: SinkOptions, schema: StructType, overwrite: bool) -> None:
        super().__init__(options, schema, overwrite)
        if options.write is not None:
            raise errors.InvalidSetting(
                "txnAppId and txnVersion name a batch write: a stream's writes have the query's id and the batch's "
                "number as names, from its checkpoint. Leave them out, or use them within foreachBatch; nothing was "
                "written"
            )

    def begin(self) -> None:
        """On the driver, before the tasks of a batch."""
        if self.options.topic or self.options.audit_topic:
            with self.connect("stream driver") as broker:
                self.check_topics(broker)

    def write(self, iterator: Iterator[Any]) -> WriterCommitMessage:
        """Prepare the rows of a task."""
        context = TaskContext.get()
        query = context.getLocalProperty(QUERY_ID) if context is not None else None
        batch = context.getLocalProperty(BATCH_ID) if context is not None else None
        if query is None or batch is None:
            raise errors.Misuse(
                "Spark does not say for which query and batch this task works, which a write that happens once needs; "
                "nothing was written. Is this a version of Spark that is not tried yet?"
            )
        return self.write_rows(Write(query, int(batch)).check(), None, iterator)

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """On the driver: decide about the batch, and carry the decision out."""
        reports = _reports(messages)
        if not reports:
            # a batch without partitions: the next batch ends branches that an earlier attempt has left
            return
        self.commit_write(Write(reports[0].write.name, batchId), reports)

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """On the driver: roll back, unless the batch is decided after all."""
        reports = _reports(messages)
        if not reports:
            log.warning(
                "batch %d has failed before a task could say its query; the next run ends what is left",
                batchId,
            )
            return
        self.abort_write(Write(reports[0].write.name, batchId), reports)

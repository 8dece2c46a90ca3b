"""The data source: ``spark.dataSource.register(TxBrokerDataSource)``, then ``format("txbroker")``."""

from __future__ import annotations

from collections.abc import Iterator, MutableMapping, Sequence
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    DataSourceWriter,
    InputPartition,
)
from pyspark.sql.types import StructType

from journal.errors import InvalidSetting
from spark.sink.options import parse
from spark.sink.writer import BatchSink, StreamSink
from spark.source.columns import message_schema, names_in
from spark.source.conditions import conditions
from spark.source.options import NOTHING_READ, ReadOptions, View, read_options
from spark.source.partition_plan import Task, cut_into_tasks, ranges, subscribed
from spark.source.reader import open_logs, read_parts
from spark.source.stream_reader import MessageStream
from spark.views import ViewReader, view_schema


class TxBrokerDataSource(DataSource):
    """Reads messages of a broker or of its data directory, and writes messages. ``docs/spark.md`` has the options."""

    def __init__(self, options: MutableMapping[str, str]) -> None:
        super().__init__(options)
        self._is_pickled = False

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_is_pickled": True}

    @classmethod
    def name(cls) -> str:
        """Return the name that ``format`` takes."""
        return "txbroker"

    def schema(self) -> StructType:
        """Return the columns that the options ask for."""
        options = self._read_options()
        return message_schema(options) if options.view is View.MESSAGES else view_schema(options)

    def reader(self, schema: StructType) -> DataSourceReader:
        """Return the reader for ``spark.read``. A schema given by the user selects columns."""
        options = self._read_options()
        return (MessageReader if options.view is View.MESSAGES else ViewReader)(options, schema)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        """Return the reader for ``spark.readStream``."""
        options = self._read_options()
        if options.view is not View.MESSAGES:
            raise InvalidSetting(f"view={options.view.value} cannot be read as a stream; {NOTHING_READ}")
        return MessageStream(options, schema)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        """Return the writer for ``df.write``."""
        return BatchSink(parse(self.options), schema, overwrite)

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:
        """Return the writer for ``df.writeStream``.

        Spark makes a source for the tasks of each batch. When a batch is committed or aborted, Spark asks the source
        that it has pickled for the query, and then a missing topic must not be an error.
        """
        sink = StreamSink(parse(self.options), schema, overwrite)
        if not self._is_pickled:
            sink.begin()
        return sink

    def _read_options(self) -> ReadOptions:
        return read_options(self.options)


class MessageReader(DataSourceReader):
    """Reads the messages that exist when the query is planned. Spark pickles it, so it holds nothing open."""

    def __init__(self, options: ReadOptions, schema: StructType) -> None:
        if options.group:
            raise InvalidSetting(
                f"group is for streams: a batch has no progress; {NOTHING_READ}. Leave it out"
            )
        self._options = options
        self._names = names_in(schema)
        self._wanted = conditions(options.where)

    def partitions(self) -> Sequence[InputPartition]:
        """Return a partition for each task."""
        logs = open_logs(self._options)
        try:
            found = subscribed(logs, self._options)
            parts = ranges(logs, self._options, self._wanted, found)
            # Without any Spark would make one itself, which has no contents.
            return list(cut_into_tasks(logs, parts, self._options.min_partitions)) or [Task(())]
        finally:
            logs.close()

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Yield the batches of one task."""
        assert isinstance(partition, Task)
        return read_parts(self._options, self._names, self._wanted, partition.parts)

"""The rows that are written and read: random, so that they cannot be compressed, and the same ones for all ways.

Each shape has a topic of ours, a topic of Kafka's, and a table in Parquet. Before anything is measured, Spark counts
and sums them up, and all must agree.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final, NamedTuple

import numpy as np
import pyarrow as pa
from pyspark.sql import DataFrame, Row, SparkSession
from pyspark.sql import functions as F

import txbroker
from benchmarks.harness import processes
from benchmarks.peers.jars import classpath
from benchmarks.peers.kafka import KafkaServer

KAFKA_WRITES: Final = {
    "kafka.batch.size": str(256 << 10),
    "kafka.linger.ms": "20",
    "kafka.buffer.memory": str(64 << 20),
}
"""The settings of Kafka's producer: batches as large as our sink's, and otherwise its defaults (acks=all,
idempotent).
"""

SCHEMA: Final = "key BINARY, value BINARY, partition INT"
SOURCES: Final = ("directory", "broker", "kafka", "parquet")


class Shape(NamedTuple):
    """A shape: a number of rows, with values of that many bytes and keys of 8, spread over partitions in turn."""

    bytes: int
    rows: int
    partitions: int

    @property
    def topic(self) -> str:
        return f"rows-{self.bytes}-{self.partitions}"

    @property
    def title(self) -> str:
        size = f"{self.bytes} B" if self.bytes < 1024 else f"{self.bytes // 1024} KiB"
        return f"{size}, {self.partitions} partition{'s' if self.partitions > 1 else ''}"


class Places(NamedTuple):
    """The places of the rows of one shape."""

    shape: Shape
    directory: str
    broker: str
    kafka: str
    parquet: str

    def frame(self, spark: SparkSession, source: str, columns: str, tasks: int) -> DataFrame:
        """Return the rows as one source reads them: ``columns`` is ``value`` or ``all``.

        ``tasks`` is how many tasks Kafka's source is asked for, which by default takes one for each partition.
        """
        if source == "parquet":
            return _chosen(spark.read.parquet(self.parquet), columns)
        if source == "kafka":
            reader = spark.read.format("kafka").option("kafka.bootstrap.servers", self.kafka)
            reader = reader.option("minPartitions", str(tasks))
            return _chosen(reader.option("subscribe", self.shape.topic).load(), columns)
        reader = spark.read.format("txbroker").option("subscribe", self.shape.topic)
        if columns != "all":
            reader = reader.option("columns", columns)
        return (
            reader.load(self.directory)
            if source == "directory"
            else reader.option("broker", self.broker).load()
        )


def _chosen(frame: DataFrame, columns: str) -> DataFrame:
    return frame if columns == "all" else frame.select(columns)


def made(spark: SparkSession, shape: Shape) -> DataFrame:
    """Return the rows, the same ones each time."""
    size, partitions = shape.bytes, shape.partitions

    def make(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            numbers = batch.column(0).to_numpy()
            values = np.random.default_rng(int(numbers[0])).bytes(size * len(numbers))
            yield pa.RecordBatch.from_arrays(
                [
                    _equal(numbers.astype(">i8").tobytes(), 8),
                    _equal(values, size),
                    pa.array((numbers % partitions).astype(np.int32)),
                ],
                names=["key", "value", "partition"],
            )

    return spark.range(0, shape.rows, 1, 8).mapInArrow(make, SCHEMA)


def _equal(data: bytes, size: int) -> pa.Array:
    """Return bytes as values of one size."""
    ends = np.arange(0, len(data) + size, size, dtype=np.int32)
    return pa.Array.from_buffers(pa.binary(), len(ends) - 1, [None, pa.py_buffer(ends), pa.py_buffer(data)])


@contextmanager
def laid_out(spark: SparkSession, shape: Shape, folder: Path, kafka: KafkaServer) -> Iterator[Places]:
    """Write the rows of a shape to all places, by Spark's sinks; yield them with a new broker at rest, all of it on
    disk.
    """
    shutil.rmtree(folder, ignore_errors=True)
    source, data, parquet = (folder / name for name in ("source", "data", "parquet"))
    made(spark, shape).write.parquet(source.as_uri())
    rows = spark.read.schema(SCHEMA).parquet(source.as_uri())
    with processes.broker(data) as server:
        address = f"tcp:127.0.0.1:{server.port}"
        create_topic(address, shape.topic, shape.partitions)
        write(rows, address, shape.topic)
    create_kafka_topic(kafka, shape.topic, shape.partitions)
    write_kafka(rows, kafka.bootstrap, shape.topic)
    reader = spark.read.format("txbroker").option("subscribe", shape.topic)
    reader.load(str(data)).write.parquet(parquet.as_uri())
    with processes.broker(data) as server:
        address = f"tcp:127.0.0.1:{server.port}"
        yield Places(shape, str(data), address, kafka.bootstrap, parquet.as_uri())
    shutil.rmtree(folder)


def write(rows: DataFrame, broker: str, topic: str) -> None:
    """Write by our sink: each row once, forced to disk."""
    rows.write.format("txbroker").mode("append").options(broker=broker, topic=topic).save()


def write_kafka(rows: DataFrame, bootstrap: str, topic: str) -> None:
    """Write by Kafka's sink: each row at least once, acknowledged from memory."""
    writer = rows.write.format("kafka").option("kafka.bootstrap.servers", bootstrap)
    writer.options(topic=topic, **KAFKA_WRITES).save()


def create_topic(address: str, topic: str, partitions: int) -> None:
    with txbroker.connect(address) as broker:
        broker.create_topic(topic, partitions=partitions)


def create_kafka_topic(kafka: KafkaServer, topic: str, partitions: int) -> None:
    kafka.run(
        "java", "-Xmx256m", "-cp", classpath("kafka"), "org.apache.kafka.tools.TopicCommand", "--create",
        "--bootstrap-server", kafka.bootstrap, "--topic", topic, "--partitions", str(partitions),
        "--replication-factor", "1",
    )  # fmt: skip


def checked_alike(spark: SparkSession, places: Places, tasks: int, sources: Sequence[str] = SOURCES) -> Row:
    """Return the sums of the rows, the same from every source; otherwise AssertionError says which one differs."""
    sums = {name: _sums(places.frame(spark, name, "all", tasks)) for name in sources}
    expected = sums[sources[0]]
    if any(found != expected for found in sums.values()) or expected["rows"] != places.shape.rows:
        raise AssertionError(f"{places.shape.rows:,} rows of {places.shape.topic} were written: {sums}")
    return expected


def _sums(frame: DataFrame) -> Row:
    found = frame.agg(
        F.count("*").alias("rows"),
        F.sum("offset").alias("offsets"),
        F.sum("partition").alias("partitions"),
        F.sum(F.crc32("key")).alias("keys"),
        F.sum(F.crc32("value")).alias("values"),
    ).first()
    assert found is not None
    return found

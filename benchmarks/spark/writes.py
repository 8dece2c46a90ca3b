"""The benchmark of writes: our sink writes each row once and forced, Kafka's at least once and from memory, in turn."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Final

from pyspark.sql import SparkSession

import txbroker
from benchmarks.harness import processes
from benchmarks.peers.kafka import KafkaServer
from benchmarks.spark.rows import (
    SCHEMA,
    Shape,
    create_kafka_topic,
    create_topic,
    made,
    write,
    write_kafka,
)
from benchmarks.spark.session import Sample, timed

SINKS: Final = ("txbroker", "kafka")
Writes = dict[tuple[Shape, str], list[Sample]]


def write_all(
    spark: SparkSession, shapes: list[Shape], folder: Path, kafka: KafkaServer, repeat: int
) -> Writes:
    """Write the rows of each shape from a table in Parquet into topics, ``repeat`` times after one write that does not
    count.
    """
    found: Writes = {}
    with processes.broker(folder / "written") as server:
        address = f"tcp:127.0.0.1:{server.port}"
        for shape in shapes:
            topic, table = f"sink-{shape.topic}", (folder / f"source-{shape.topic}").as_uri()
            made(spark, shape).write.mode("overwrite").parquet(table)
            rows = spark.read.schema(SCHEMA).parquet(table)
            create_topic(address, topic, shape.partitions)
            create_kafka_topic(kafka, topic, shape.partitions)
            works = {
                "txbroker": partial(write, rows, address, topic),
                "kafka": partial(write_kafka, rows, kafka.bootstrap, topic),
            }
            for number in range(repeat + 1):
                for sink in SINKS if number % 2 else reversed(SINKS):
                    sample = timed(works[sink])
                    if number:
                        found.setdefault((shape, sink), []).append(sample)
            _check(spark, address, kafka.bootstrap, topic, shape.rows * (repeat + 1))
    return found


def _check(spark: SparkSession, address: str, bootstrap: str, topic: str, expected: int) -> None:
    """Check the counts: ours has exactly that many rows, Kafka's at least that many."""
    with txbroker.connect(address) as broker:
        [described] = broker.topics([topic])
        ours = sum(part.high_watermark - part.start_offset for part in described.partitions)
    reader = spark.read.format("kafka").option("kafka.bootstrap.servers", bootstrap)
    theirs = reader.option("subscribe", topic).load().count()
    if ours != expected or theirs < expected:
        raise AssertionError(
            f"{expected:,} rows were written to {topic}: {ours:,} are there, Kafka has {theirs:,}"
        )

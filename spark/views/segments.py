"""``view=segments``: the files of the logs, as the newest checkpoint has them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from pyspark.sql.datasource import InputPartition
from pyspark.sql.types import (
    BooleanType,
    IntegerType,
    LongType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from spark.source.files import Directory
from spark.source.options import ReadOptions
from spark.source.segment_cursor import segments_of
from spark.views.times import time_of

SCHEMA = StructType(
    [
        StructField("topic", StringType()),
        StructField("partition", IntegerType()),
        StructField("log", LongType()),
        StructField("first_offset", LongType()),
        StructField("end_offset", LongType()),
        StructField("bytes", LongType()),
        StructField("first_appended", TimestampType()),
        StructField("last_appended", TimestampType()),
        StructField("active", BooleanType()),
        StructField("path", StringType()),
        StructField("log_start", LongType()),
        StructField("log_end", LongType()),
    ]
)
"""``log`` is the partition's number, never reused; ends are exclusive; retention has removed all below
``log_start``.
"""


def tasks(options: ReadOptions) -> list[InputPartition]:  # noqa: ARG001
    """Return one task, because all is in one file."""
    return [InputPartition(None)]


def rows(options: ReadOptions, task: InputPartition) -> Iterator[tuple[Any, ...]]:  # noqa: ARG001
    """Yield a row for each segment, by topic, partition and offset."""
    directory = Directory(options.path)
    everything = not (options.topics or options.pattern)
    for log in directory.logs(lambda topic: everything or options.wants(topic)):
        found = segments_of(log)
        for segment in found:
            yield (
                log.topic,
                log.index,
                log.number,
                segment.base_offset,
                segment.end_offset,
                segment.size,
                time_of(segment.first_time + directory.wall_offset),
                time_of(segment.last_time + directory.wall_offset),
                segment is found[-1],
                segment.path,
                log.start,
                log.end,
            )

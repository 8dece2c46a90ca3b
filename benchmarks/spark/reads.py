"""The benchmark of reads: everything is read by every source in turn."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Final

from pyspark.sql import SparkSession

from benchmarks.peers.kafka import KafkaServer
from benchmarks.spark.rows import SOURCES, Places, Shape, checked_alike, laid_out
from benchmarks.spark.session import CORES, Sample, drain, timed
from journal.constants import MIB
from journal.formats.frame import decode_run
from journal.formats.segment_header import SEGMENT_HEADER_BYTES
from journal.vfs.filesystem import OSFilesystem
from journal.walks.segment_walk import partitions, segments

COLUMNS: Final = ("value", "all")
WALK: Final = "walk"
WAYS: Final = (*SOURCES, WALK)
TASKS: Final = 3 * CORES
"""The tasks that our planning makes of a large log; Kafka's source gets as many, so it cuts a single partition for
every core.
"""

Reads = dict[tuple[Shape, str, str], list[Sample]]
"""Samples by shape, columns and way."""


def read_all(
    spark: SparkSession, shapes: list[Shape], folder: Path, kafka: KafkaServer, repeat: int
) -> Reads:
    """Lay out and check each shape, and read it ``repeat`` times in each way in turn, after one read that does not
    count.
    """
    found: Reads = {}
    for shape in shapes:
        with laid_out(spark, shape, folder, kafka) as places:
            checked_alike(spark, places, TASKS)
            for number in range(repeat + 1):
                for columns in COLUMNS:
                    for source in SOURCES if number % 2 else reversed(SOURCES):
                        sample = timed(partial(read, spark, places, source, columns))
                        if number:
                            found.setdefault((shape, columns, source), []).append(sample)
                if number:
                    found.setdefault((shape, COLUMNS[1], WALK), []).append(walked(places.directory, shape))
    return found


def read(spark: SparkSession, places: Places, source: str, columns: str) -> None:
    """Read everything, planning included."""
    drain(places.frame(spark, source, columns, TASKS))


def walked(directory: str, shape: Shape) -> Sample:
    """Read the same files in a plain loop in one Python process, decode every message and verify every checksum."""
    seen: list[int] = []
    sample = timed(lambda: seen.append(count_messages(directory, shape.topic)))
    if seen != [shape.rows]:
        raise AssertionError(f"{shape.rows:,} rows of {shape.topic} were written, the files hold {seen}")
    return sample


def count_messages(directory: str, topic: str) -> int:
    """Decode all messages of a topic, some MiB at a time, and count them."""
    filesystem, messages = OSFilesystem(directory), 0
    for name, place in partitions(filesystem):
        for _, path in segments(filesystem, place) if name.topic == topic else ():
            file = filesystem.open(path, writable=False)
            try:
                position, size = SEGMENT_HEADER_BYTES, file.size()
                while position < size:
                    data = file.read(position, min(4 * MIB, size - position))
                    whole = whole_frames(data)
                    messages += len(decode_run(data[:whole]))
                    position += whole
            finally:
                file.close()
    return messages


def whole_frames(data: bytes) -> int:
    """Return how many of the bytes are whole frames; at least one frame."""
    end = 0
    while end + 4 <= len(data) and end + (length := int.from_bytes(data[end : end + 4])) <= len(data):
        end += length
    assert end, "no frame of these is larger than what is read at a time"
    return end

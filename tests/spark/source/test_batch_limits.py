"""Test how far batches of a stream go: as many messages and bytes as set; over files."""

import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxBytes, ReadMaxRows, ReadMinRows

import journal
from spark.source.batch_limits import BatchLimits
from spark.source.options import read_options
from tests.spark.directories import append, fill
from tests.spark.source.test_streaming_positions import ALL, nexts, offsets, stream_of
from tests.support.builders import small_files

FIRST = {"startingOffsets": "earliest"}


class Clock:
    def __init__(self):
        self.now = 5000.0

    def __call__(self):
        return self.now


@pytest.fixture
def path(tmp_path):
    fill(tmp_path / "d", 3000, partitions=3, segment_bytes=64 << 10)
    return tmp_path / "d"


def more(path, count):
    with journal.open(path, small_files()) as log:
        append(log, range(count))


@pytest.mark.parametrize(
    ("options", "limit"),
    [
        ({}, ReadAllAvailable()),
        ({"minOffsetsPerTrigger": "5"}, ReadMinRows(5)),
        ({"minOffsetsPerTrigger": "5", "maxBytesPerTrigger": "1k"}, ReadMaxBytes(1024)),
        ({"maxOffsetsPerTrigger": "7", "maxBytesPerTrigger": "1k"}, ReadMaxRows(7)),
    ],
)
def test_spark_is_told_one_limit(options, limit):
    assert BatchLimits(read_options({"path": "d", "subscribe": "t", **options})).default == limit


def drained(stream):
    """Sizes of the batches to the end."""
    at, sizes = stream.initialOffset(), []
    while (upto := stream.latestOffset(at, stream.getDefaultReadLimit())) != at:
        sizes.append(len(offsets(stream, at, upto)))
        at = upto
    assert nexts(at) == [1000, 1000, 1000]
    return sizes


@pytest.mark.slow
def test_a_limit_of_bytes_is_kept_about_and_shared_among_the_partitions(path):
    """Messages of 84 bytes in wrappers."""
    sizes = drained(stream_of(path, **FIRST, maxBytesPerTrigger="42k"))
    assert sum(sizes) == 3000
    assert all(350 <= size <= 650 for size in sizes[:-1]), sizes


def test_of_two_limits_the_lower_one_counts(path):
    assert drained(stream_of(path, **FIRST, maxBytesPerTrigger="10m", maxOffsetsPerTrigger="1500")) == [
        1500,
        1500,
    ]
    sizes = drained(stream_of(path, **FIRST, maxBytesPerTrigger="42k", maxOffsetsPerTrigger="2900"))
    assert max(sizes) <= 650


def test_a_limit_of_fewer_bytes_than_a_message_has_lets_one_through(path):
    stream = stream_of(path, **FIRST, maxBytesPerTrigger="1")
    at = stream.initialOffset()
    for count in (1, 2, 3):
        at = stream.latestOffset(at, stream.getDefaultReadLimit())
        assert sum(nexts(at)) == count


def waiting(path, **options):
    stream, clock = stream_of(path, **FIRST, **options), Clock()
    stream._limits = BatchLimits(stream._options, clock)
    return stream, clock


@pytest.mark.slow
def test_few_messages_are_waited_with_until_there_are_enough_or_the_time_is_up(path):
    stream, clock = waiting(path, minOffsetsPerTrigger="100", maxTriggerDelay="30s")
    limit = stream.getDefaultReadLimit()
    first = stream.latestOffset(stream.initialOffset(), limit)
    assert nexts(first) == [1000, 1000, 1000], "the first batch comes at once"
    more(path, 40)
    clock.now += 29.9
    assert stream.latestOffset(first, limit) == first
    clock.now += 0.2
    second = stream.latestOffset(first, limit)
    assert sum(nexts(second)) == 3040
    more(path, 100)
    third = stream.latestOffset(second, limit)
    assert sum(nexts(third)) == 3140, "enough"
    clock.now += 60
    assert stream.latestOffset(third, limit) == third, "nothing is no batch"
    more(path, 1)
    assert sum(nexts(stream.latestOffset(third, limit))) == 3141


def test_nobody_waits_for_more_where_all_is_wanted_or_the_end_is_fixed(path):
    stream, _ = waiting(path, minOffsetsPerTrigger="100")
    at = stream.latestOffset(stream.initialOffset(), ALL)
    more(path, 40)
    limit = stream.getDefaultReadLimit()
    at = stream.latestOffset(at, limit)  # the first one
    more(path, 40)
    assert stream.latestOffset(at, limit) == at
    assert sum(nexts(stream.latestOffset(at, ALL))) == 3080
    stream.prepareForTriggerAvailableNow()
    assert sum(nexts(stream.latestOffset(at, limit))) == 3080

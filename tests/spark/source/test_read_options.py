"""Test the options of a read: they are taken in the forms of Spark's Kafka source, or refused with what to give."""

import pytest

from journal.errors import InvalidSetting
from spark.source.options import View, read_options

FILES = {"path": "d", "subscribe": "t"}


def read(**options):
    return read_options({**FILES, **options})


@pytest.mark.parametrize(
    ("options", "field", "value"),
    [
        ({"SUBSCRIBE": "a, b"}, "topics", ("a", "b")),
        ({"startingOffsets": "Earliest"}, "starting", "earliest"),
        ({"startingoffsets": '{"t": {"0": 5, "1": -2}}'}, "starting", {"t": {0: 5, 1: -2}}),
        ({"endingOffsets": '{"t": {"0": -1}}'}, "ending", {"t": {0: -1}}),
        ({"startingTimestamp": "1700000000000"}, "starting_time", 1_700_000_000_000_000),
        ({"endingTimestamp": "2023-11-14T22:13:20+00:00"}, "ending_time", 1_700_000_000_000_000),
        ({"minPartitions": "12"}, "min_partitions", 12),
        ({"failOnDataLoss": "FALSE"}, "fail_on_data_loss", False),
        ({"includeHeaders": "true"}, "include_headers", True),
        ({"maxOffsetsPerTrigger": "1000"}, "max_offsets", 1000),
        ({"minOffsetsPerTrigger": "10"}, "min_offsets", 10),
        ({"maxTriggerDelay": "90s"}, "max_delay", 90_000_000),
        ({"maxBytesPerTrigger": "64MiB"}, "max_bytes", 64 << 20),
        ({"maxBytesPerTrigger": "70000"}, "max_bytes", 70_000),
        ({"wholeTransactions": "true"}, "whole_transactions", True),
        ({"columnsAs": "Kafka"}, "as_kafka", True),
        (
            {"startingOffsetsByTimestamp": '{"t": {"1": 1700000000000}}'},
            "starting_times",
            {"t": {1: 17 * 10**14}},
        ),
        ({"endingOffsetsByTimestamp": '{"t": {"1": 0}}'}, "ending_times", {"t": {1: 0}}),
        ({"startingOffsetsByTimestampStrategy": "latest"}, "late_start", "latest"),
        ({"maxBytesPerTrigger": "512k"}, "max_bytes", 1 << 19),
        ({"clockSkew": "5m"}, "clock_skew", 300_000_000),
        ({"timeout": "90"}, "timeout", 90.0),
        ({"columns": "value,offset"}, "columns", ("value", "offset")),
        ({"view": "Segments"}, "view", View.SEGMENTS),
    ],
)
def test_an_option_is_taken_whatever_the_case_of_its_name(options, field, value):
    given = {**FILES, **options}
    if "SUBSCRIBE" in options:
        del given["subscribe"]
    assert getattr(read_options(given), field) == value


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"startingOffset": "earliest"}, "did you mean startingOffsets"),
        ({"kafka.bootstrap.servers": "x"}, "known are path, broker"),
        ({"startingOffsets": "five"}, "earliest or latest or an object such as"),
        ({"endingOffsets": "earliest"}, "latest or an object such as"),
        ({"endingOffsets": '{"t": {"0": -2}}'}, "nothing can end"),
        ({"startingOffsets": '{"t": {"0": -3}}'}, "-2 earliest, -1 latest"),
        ({"startingOffsets": '{"t": {"zero": 3}}'}, "an object such as"),
        ({"startingOffsets": '{"t": {"0": true}}'}, "an object such as"),
        ({"startingOffsets": '{"t": 3}'}, "an object such as"),
        ({"startingTimestamp": "yesterday"}, "milliseconds since 1970 UTC"),
        ({"startingTimestamp": "2026-01-01T00:00:00"}, "milliseconds since 1970 UTC"),
        ({"startingTimestamp": "1", "startingOffsets": "latest"}, "contradict each other"),
        ({"minPartitions": "0"}, "a whole number from 1 on"),
        ({"failOnDataLoss": "no"}, "true or false"),
        ({"subscribePattern": "x.*"}, "subscribe and subscribePattern contradict each other"),
        ({"assign": '{"t": [0]}'}, "subscribe and assign contradict each other"),
        (
            {"startingTimestamp": "1", "startingOffsetsByTimestamp": '{"t": {"0": 1}}'},
            "contradict each other",
        ),
        ({"endingOffsets": "latest", "endingOffsetsByTimestamp": '{"t": {"0": 1}}'}, "contradict each other"),
        ({"startingOffsetsByTimestamp": '{"t": {"0": "now"}}'}, "in ms since 1970 UTC"),
        ({"startingOffsetsByTimestamp": '{"t": 5}'}, "in ms since 1970 UTC"),
        ({"endingOffsetsByTimestamp": '{"t": {"0": -1}}'}, "in ms since 1970 UTC"),
        ({"endingOffsetsByTimestamp": '{"t": {"0": 1700000000000000}}'}, "in ms since 1970 UTC"),
        ({"startingOffsetsByTimestampStrategy": "earliest"}, "error or latest is wanted"),
        ({"maxBytesPerTrigger": "0"}, "such as 1048576, 512k, 64m or 1g"),
        ({"minOffsetsPerTrigger": "5", "maxOffsetsPerTrigger": "4"}, "no batch can be both"),
        ({"columnsAs": "pulsar"}, "kafka or txbroker is wanted"),
        ({"group": "g"}, "give broker instead of the path"),
        ({"maxOffsetPerTrigger": "4"}, "no option 'maxOffsetPerTrigger'; did you mean maxOffsetsPerTrigger"),
        ({"subscribe": "a,,b"}, "each once"),
        ({"subscribe": "a,a"}, "each once"),
        ({"clockSkew": "soon"}, "500ms"),
        ({"timeout": "0"}, "at most an hour"),
        ({"timeout": "61m"}, "at most an hour"),
        ({"view": "topics"}, "messages, transactions, journal, segments are known"),
        ({"broker": "tcp:127.0.0.1:7654"}, "both path and broker"),
    ],
)
def test_what_cannot_be_is_refused_and_says_what_would_do(options, told):
    with pytest.raises(InvalidSetting) as caught:
        read(**options)
    assert told in str(caught.value)
    assert "nothing was read" in str(caught.value)


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"subscribe": "t"}, "neither path nor broker"),
        ({"path": "d"}, "no topic is named"),
        ({"path": "d", "subscribePattern": "("}, "no regular expression"),
    ],
)
def test_what_is_lacking_is_asked_for(options, told):
    with pytest.raises(InvalidSetting, match=told):
        read_options(options)


def test_a_pattern_means_whole_names_and_never_the_brokers_own_topics():
    options = read_options({"path": "d", "subscribePattern": "or|orders|txbroker.*"})
    names = ("orders", "or", "order", "floor", "txbroker.outcomes")
    assert [name for name in names if options.wants(name)] == [
        "orders",
        "or",
    ]
    assert read_options({"path": "d", "subscribe": "txbroker.outcomes"}).wants("txbroker.outcomes")


def test_the_segments_need_no_topic():
    assert read_options({"path": "d", "view": "segments"}).topics == ()


def test_a_group_is_a_name_at_a_broker_that_no_write_has():
    given = {"broker": "tcp:127.0.0.1:7654", "subscribe": "t"}
    assert read_options({**given, "group": "to-lake"}).group == "to-lake"
    with pytest.raises(InvalidSetting, match=r"names with spark\. in front are those of the registers"):
        read_options({**given, "group": "spark.orders"})


@pytest.mark.parametrize(
    "value", ["[]", "{}", '{"t": 5}', '{"t": []}', '{"t": [0, 0]}', '{"t": [-1]}', '{"t": [true]}', "t"]
)
def test_partitions_are_assigned_by_number_each_once(value):
    assert read_options({"path": "d", "assign": '{"t": [0, 2], "u": [1]}'}).topics == ("t", "u")
    with pytest.raises(InvalidSetting, match=r'partitions such as \{"orders": \[0, 2\]\} are wanted'):
        read_options({"path": "d", "assign": value})

"""Test how rows become messages: from which columns and types, without losses or guesses."""

import datetime

import pyarrow as pa
import pytest
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DoubleType,
    IntegerType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from spark.sink import outgoing_rows
from spark.source.columns import message_schema
from spark.source.options import ReadOptions
from txbroker.errors import InvalidSetting

KAFKA_HEADERS = ArrayType(StructType([StructField("key", StringType()), StructField("value", BinaryType())]))


def schema(**columns):
    return StructType([StructField(name, kind) for name, kind in columns.items()])


def test_all_columns_of_all_accepted_types_are_accepted():
    full = schema(
        value=StringType(), key=BinaryType(), headers=KAFKA_HEADERS, topic=StringType(), partition=LongType(),
        timestamp=TimestampType(),
    )  # fmt: skip
    outgoing_rows.check_schema(full, "")
    outgoing_rows.check_schema(schema(value=BinaryType(), headers=MapType(StringType(), StringType())), "t")


def test_all_that_this_source_and_that_of_kafka_show_is_accepted():
    """`offset`, `transaction` and so on are passed over."""
    ours = message_schema(
        ReadOptions(path="/data", topics=("t",), include_headers=True, include_transactions=True)
    )
    outgoing_rows.check_schema(ours, "")
    kafkas = schema(
        key=BinaryType(), value=BinaryType(), topic=StringType(), partition=IntegerType(), offset=LongType(),
        timestamp=TimestampType(), timestampType=IntegerType(), headers=KAFKA_HEADERS,
    )  # fmt: skip
    outgoing_rows.check_schema(kafkas, "")


@pytest.mark.parametrize(
    ("columns", "topic", "said"),
    [
        (
            {"value": StringType(), "offset": StringType()},
            "t",
            "'offset' is string, and only as bigint, as it is read",
        ),
        ({"value": DoubleType()}, "t", "column 'value' is double, and it must be binary or string"),
        (
            {"value": StringType(), "key": LongType()},
            "t",
            "column 'key' is bigint, and it must be binary or string",
        ),
        ({"key": StringType()}, "t", r"the frame has columns \['key'\] and no 'value'"),
        ({"value": StringType()}, "", "neither the option 'topic' nor a column 'topic'"),
        (
            {"value": StringType(), "id": LongType()},
            "t",
            "column 'id' is bigint, and no part of a message has that name",
        ),
        ({"value": StringType(), "topic": LongType()}, "t", "it must be string"),
        ({"value": StringType(), "partition": StringType()}, "t", "it must be a whole number"),
        ({"value": StringType(), "timestamp": LongType()}, "t", "it must be a timestamp"),
        ({"value": StringType(), "headers": MapType(StringType(), LongType())}, "t", "or a map"),
        ({"value": StringType(), "headers": ArrayType(StringType())}, "t", "it must be array<struct"),
    ],
)
def test_what_cannot_be_written_is_refused_before_anything_is(columns, topic, said):
    with pytest.raises(InvalidSetting, match=said) as caught:
        outgoing_rows.check_schema(schema(**columns), topic)
    assert "nothing was written" in str(caught.value)


def test_values_keys_partitions_and_times_are_taken_as_they_are():
    when = datetime.datetime(2026, 1, 2, 3, 4, 5, 678901, tzinfo=datetime.UTC)
    batch = pa.record_batch(
        {
            "value": pa.array(["ä", None, ""]),
            "key": pa.array([b"k", None, b""], pa.binary()),
            "partition": pa.array([1, None, 0], pa.int32()),
            "timestamp": pa.array([when, None, when], pa.timestamp("us", "UTC")),
        }
    )
    (columns,) = outgoing_rows.messages(batch, "t")
    wall = round(when.timestamp() * 1_000_000)
    assert columns.topic == "t"
    assert columns.values.to_pylist() == ["ä".encode(), None, b""]
    assert columns.keys.to_pylist() == [b"k", None, b""]
    assert columns.partitions.to_pylist() == [1, None, 0]
    assert columns.timestamps.to_pylist() == [wall, None, wall]
    assert columns.headers is None
    assert columns.bytes > 3


def test_times_before_1973_are_kept_as_what_they_are():
    old = datetime.datetime(1969, 12, 31, 23, 59, 59, 999_999, tzinfo=datetime.UTC)
    batch = pa.record_batch(
        {"value": pa.array([b"1", b"2"]), "timestamp": pa.array([old, None], pa.timestamp("us", "UTC"))}
    )
    (columns,) = outgoing_rows.messages(batch, "t")
    assert columns.timestamps.to_pylist() == [-1, None]


def test_rows_are_divided_by_topic_in_their_order_and_the_option_wins_over_the_column():
    batch = pa.record_batch({"value": pa.array([b"1", b"2", b"3"]), "topic": pa.array(["b", "a", "b"])})

    def divided(option):
        return [(each.topic, each.values.to_pylist()) for each in outgoing_rows.messages(batch, option)]

    assert divided("") == [("b", [b"1", b"3"]), ("a", [b"2"])]
    assert divided("t") == [("t", [b"1", b"2", b"3"])]
    assert list(outgoing_rows.messages(batch.slice(0, 0), "t")) == []
    assert list(outgoing_rows.messages(batch.slice(0, 0), "")) == []


def test_a_row_without_a_topic_stops_the_write():
    batch = pa.record_batch({"value": pa.array([b"1"]), "topic": pa.array([None], pa.string())})
    with pytest.raises(
        InvalidSetting, match="1 rows of a batch have no topic; none of this write will be seen"
    ):
        list(outgoing_rows.messages(batch, ""))


@pytest.mark.parametrize(
    ("kind", "rows"),
    [
        (
            pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())])),
            [[{"key": "a", "value": b"1"}, {"key": "b", "value": b""}], [], None],
        ),
        (pa.map_(pa.string(), pa.binary()), [[("a", b"1"), ("b", b"")], [], None]),
        (pa.map_(pa.string(), pa.string()), [[("a", "1"), ("b", "")], [], None]),
    ],
)
def test_headers_come_as_kafkas_sink_has_them_or_as_a_map(kind, rows):
    batch = pa.record_batch({"value": pa.array([b"1"] * 3), "headers": pa.array(rows, kind)})
    (columns,) = outgoing_rows.messages(batch, "t")
    assert columns.headers == [(("a", b"1"), ("b", b"")), (), None]


def test_a_name_may_come_twice():
    kind = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
    pairs = [{"key": "a", "value": b"1"}, {"key": "", "value": b""}, {"key": "a", "value": b"2"}]
    batch = pa.record_batch({"value": pa.array([b"1"]), "headers": pa.array([pairs], kind)})
    (columns,) = outgoing_rows.messages(batch, "t")
    assert columns.headers == [(("a", b"1"), ("", b""), ("a", b"2"))]


@pytest.mark.parametrize(
    "pairs",
    [
        [{"key": None, "value": b"1"}],
        [{"key": "a", "value": None}],
    ],
)
def test_headers_that_a_message_cannot_have_stop_the_write(pairs):
    kind = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
    batch = pa.record_batch({"value": pa.array([b"1"]), "headers": pa.array([pairs], kind)})
    with pytest.raises(
        InvalidSetting, match="has null as its name or value; none of this write will be seen"
    ):
        list(outgoing_rows.messages(batch, "t"))


def test_an_integer_of_any_width_is_a_partition():
    assert [outgoing_rows._expected("partition", kind()) for kind in (IntegerType, LongType)] == ["", ""]

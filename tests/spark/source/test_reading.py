"""Test batches read by real Spark from data directories, at rest and damaged, with few and many messages."""

import os
from datetime import UTC, datetime

import pytest
from pyspark.errors import AnalysisException, PySparkException
from pyspark.sql import functions as F

import journal
from tests.spark.directories import START, append, fill, flip, numbers_in, segments, value_of
from tests.support.builders import small_files

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    path = tmp_path_factory.mktemp("plain") / "d"
    fill(path, 6000, partitions=3)
    return path


def frame(spark, path, **options):
    given = {name: value for name, value in {"subscribe": "t", **options}.items() if value is not None}
    reader = spark.read.format("txbroker").options(**given)
    return reader.load(str(path))


def test_a_topic_is_a_table(spark, data):
    table = frame(spark, data)
    assert table.schema.simpleString() == (
        "struct<topic:string,partition:int,offset:bigint,timestamp:timestamp,appended:timestamp,key:binary,value:binary>"
    )
    rows = table.orderBy("partition", "offset").collect()
    assert [(row.partition, row.offset) for row in rows] == [(p, o) for p in range(3) for o in range(2000)]
    assert sorted(numbers_in([row.value for row in rows])) == list(range(6000))
    assert {row.topic for row in rows} == {"t"}
    assert {row.key for row in rows} == {None}
    row = rows[0]
    assert row.timestamp.astimezone(UTC) == datetime.fromtimestamp(START / 1e6, UTC)


def test_keys_headers_tombstones_and_topics_chosen_by_a_pattern_come_as_they_were_sent(spark, tmp_path):
    with journal.open(tmp_path / "d", small_files()) as log:
        for topic in ("orders", "orders-late", "other"):
            log.create_topic(topic)
            log.append(topic, b"value", key=b"key", headers={"a": b"1", "b": b""})
            log.append(topic, None, key=b"gone")
            log.append(topic, b"", key=b"")
    table = (
        spark.read.format("txbroker").option("subscribePattern", "orders.*").option("includeHeaders", "true")
    ).load(str(tmp_path / "d"))
    rows = table.orderBy("topic", "offset").select("topic", "key", "value", "headers").collect()
    expected = [
        (bytearray(b"key"), bytearray(b"value"), [("a", bytearray(b"1")), ("b", bytearray(b""))]),
        (bytearray(b"gone"), None, None),
        (bytearray(b""), bytearray(b""), None),
    ]
    assert [tuple(row)[1:] for row in rows] == [
        (key and bytes(key) if key is None else bytes(key), value if value is None else bytes(value), headers)
        for _ in range(2)
        for key, value, headers in [
            (k, v, h and [(name, bytes(content)) for name, content in h]) for k, v, h in expected
        ]
    ]
    assert [row.topic for row in rows] == ["orders"] * 3 + ["orders-late"] * 3


def test_a_schema_or_an_option_chooses_columns_and_nothing_else_travels(spark, data):
    for table in (
        frame(spark, data, columns="value,offset"),
        spark.read.schema("value BINARY, offset BIGINT")
        .format("txbroker")
        .option("subscribe", "t")
        .load(str(data)),
    ):
        assert table.columns == ["value", "offset"]
        assert table.agg(F.sum("offset")).first()[0] == 3 * sum(range(2000))
        assert table.count() == 6000


def test_columns_come_as_sparks_kafka_source_has_them_if_that_is_wanted(spark, data):
    table = frame(
        spark, data, columnsAs="kafka", assign='{"t": [1]}', subscribe=None, endingOffsets='{"t": {"1": 5}}'
    )
    assert table.schema.simpleString() == (
        "struct<key:binary,value:binary,topic:string,partition:int,offset:bigint,timestamp:timestamp,timestampType:int>"
    )
    assert [(row.partition, row.offset, row.timestampType) for row in table.collect()] == [
        (1, offset, 0) for offset in range(5)
    ]
    whole = frame(spark, data, columnsAs="kafka", includeHeaders="true")
    assert whole.columns[-1] == "headers"
    assert whole.schema["headers"].dataType.simpleString() == "array<struct<key:string,value:binary>>"


@pytest.mark.sampled(test=1)
@pytest.mark.parametrize("pushed", ["true", "false"])
def test_queries_of_one_table_do_not_leak_filters_into_each_other(spark, data, pushed):
    """Spark up to 4.3 keeps what a reader made of the last query's filters: with them taken over, 300 for 2002."""
    spark.conf.set("spark.sql.python.filterPushdown.enabled", pushed)
    try:
        table = frame(spark, data)
        after = F.lit(datetime.fromtimestamp(START / 1e6 + 5000, UTC))
        queries = [
            (table.where("offset >= 100 AND offset < 103 AND partition = 1"), 3),
            (table.where("partition IN (0, 2) AND offset = 7"), 2),
            (table.where("topic = 'other'"), 0),
            (
                table.where(
                    (F.col("timestamp") >= after) & (F.col("value").cast("string").startswith("00005"))
                ),
                1000,
            ),
            (table.where("offset = 3 OR partition = 0"), 2002),
            (table.where("offset < 2").union(table.where("offset >= 1999")), 9),
            (table, 6000),
        ]
        assert [query.count() for query, _ in queries] == [count for _, count in queries]
    finally:
        spark.conf.unset("spark.sql.python.filterPushdown.enabled")


def test_conditions_given_as_an_option_decide_what_is_opened_at_all(spark, tmp_path):
    fill(tmp_path / "d", 5000)
    for file in segments(tmp_path / "d")[:-2]:
        file.unlink()
    found = frame(spark, tmp_path / "d", where="offset >= 4990 AND partition = 0").collect()
    assert [row.offset for row in found] == list(range(4990, 5000))
    time = datetime.fromtimestamp(START / 1e6 + 4995, UTC).isoformat()
    found = frame(spark, tmp_path / "d", where=f"offset > 4600 and timestamp >= '{time}'").collect()
    assert [row.offset for row in found] == list(range(4995, 5000))


def test_options_reach_the_plan_and_wrong_ones_are_told_as_they_are(spark, data):
    table = frame(
        spark,
        data,
        startingOffsets='{"t": {"0": 10, "1": -1, "2": 1995}}',
        endingOffsets='{"t": {"0": 12, "1": -1, "2": -1}}',
    )
    assert {(row.partition, row.offset) for row in table.collect()} == {
        (0, 10), (0, 11), *((2, offset) for offset in range(1995, 2000))
    }  # fmt: skip
    with pytest.raises(
        AnalysisException, match=r"there is no option 'startingoffset'; did you mean startingOffsets"
    ):
        frame(spark, data, startingOffset="earliest")
    with pytest.raises(AnalysisException, match=r"there is no topic nope in .*There are: t"):
        frame(spark, data, subscribe="nope").count()
    with pytest.raises(AnalysisException, match=r"column offset is bigint, not string"):
        spark.read.schema("offset STRING").format("txbroker").option("subscribe", "t").load(str(data)).count()


def test_no_messages_are_no_rows(spark, tmp_path):
    fill(tmp_path / "d", 0, partitions=4)
    assert frame(spark, tmp_path / "d").count() == 0


def test_many_partitions_and_one_task_each_give_the_same(spark, data):
    assert frame(spark, data, minPartitions="17").rdd.getNumPartitions() >= 15
    assert frame(spark, data, minPartitions="17").select("offset").distinct().count() == 2000


def test_a_damaged_message_fails_the_query_by_name_or_is_skipped_if_that_is_wanted(spark, tmp_path):
    fill(tmp_path / "d", 5000)
    second = segments(tmp_path / "d")[1]
    flip(second, 9000)
    first = int(second.stem) + 100
    told = rf"MessagesLost: t-0: offsets {first} to {first + 99} cannot be read: partitions/t-0\.1/{second.name} is"
    with pytest.raises(PySparkException, match=told):
        frame(spark, tmp_path / "d").collect()
    assert frame(spark, tmp_path / "d", failOnDataLoss="false").count() == 4900


def test_a_segment_deleted_while_it_is_being_read_is_read_to_its_end_and_the_others_are_missed(
    spark, tmp_path
):
    """20 MB, of which Spark takes a few before the first row is seen; then all files go."""
    path = tmp_path / "d"
    fill(path, 20_000, segment_bytes=1 << 20, value=lambda number: value_of(number) + bytes(1000))
    files = [str(file) for file in segments(path)]

    def delete_all(rows):
        for count, row in enumerate(rows):
            for file in files if count == 0 else ():
                os.unlink(file)
            yield row.offset

    one_task = frame(spark, path, minPartitions="1").coalesce(1).rdd.mapPartitions(delete_all)
    with pytest.raises(
        PySparkException, match=r"MessagesLost: t-0: offsets \d+ to \d+ cannot be read: .* is gone"
    ) as caught:
        one_task.collect()
    assert "though no retention took it" in str(caught.value)


def test_two_queries_of_a_growing_directory_see_each_its_own_end(spark, tmp_path):
    path = tmp_path / "d"
    fill(path, 1000)
    earlier = frame(spark, path)
    assert earlier.count() == 1000
    with journal.open(path, small_files()) as log:
        append(log, range(1000, 1500))
    assert frame(spark, path).count() == 1500
    assert earlier.count() == 1000, "Spark plans a table once"


@pytest.mark.parametrize("messages", [4_000_000, pytest.param(10_000_000, marks=pytest.mark.deep)])
def test_millions_of_messages_are_read_in_bounded_memory(spark, tmp_path, messages):
    fill(
        tmp_path / "d",
        messages,
        partitions=4,
        segment_bytes=64 << 20,
        value=lambda number: value_of(number)[:8],
        per_frame=50_000,
    )
    table = frame(spark, tmp_path / "d", columns="partition,offset,value")
    found = table.agg(
        F.count("*"),
        F.sum("offset"),
        F.sum(F.col("value").cast("string").cast("bigint")),
        F.max(F.length("value")),
    ).first()
    assert tuple(found) == (messages, 4 * sum(range(messages // 4)), sum(range(messages)), 8)

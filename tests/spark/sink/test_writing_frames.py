"""Test frames of real Spark through the sink, and back: every column as it was, in the named topic and partition."""

import datetime
import shutil

import pytest
from pyspark.errors import AnalysisException, PySparkException, StreamingQueryException
from pyspark.sql import Row
from pyspark.sql.functions import col, expr

import txbroker
from tests.spark.sink import writes
from tests.support.broker_process import BrokerProcess
from txbroker.client.core.partitioner import by_key

pytestmark = pytest.mark.slow

WHEN = datetime.datetime(2026, 1, 2, 3, 4, 5, 678901, tzinfo=datetime.UTC)


@pytest.fixture
def process(tmp_path):
    with BrokerProcess(tmp_path / "data") as process:
        with txbroker.connect(process.address) as connection:
            connection.create_topic("rows", partitions=4)
            connection.create_topic("other")
        yield process


def write(frame, process, **options):
    frame.write.format("txbroker").mode("append").options(broker=process.address, **options).save()


def messages(process, topic):
    with txbroker.connect(process.address) as connection:
        return list(connection.consume(topic, start="earliest", follow=False))


def test_every_column_arrives_where_and_as_it_was(spark, process):
    rows = [
        Row(
            topic="rows",
            partition=3,
            key=b"k",
            value=b"v",
            timestamp=WHEN,
            headers=[Row(key="h", value=b"1")],
        ),
        Row(topic="rows", partition=None, key=b"by key", value=None, timestamp=None, headers=None),
        Row(topic="other", partition=None, key=None, value=b"", timestamp=WHEN, headers=[]),
    ]
    schema = (
        "topic string, partition int, key binary, value binary, timestamp timestamp, "
        "headers array<struct<key:string,value:binary>>"
    )
    write(spark.createDataFrame(rows, schema), process)
    named, keyed = sorted(messages(process, "rows"), key=lambda message: message.key != b"k")
    assert (named.partition, named.key, named.value, named.headers) == (3, b"k", b"v", (("h", b"1"),))
    assert named.timestamp == round(WHEN.timestamp() * 1_000_000)
    assert (keyed.partition, keyed.value, keyed.headers) == (by_key(b"by key", 4), None, ())
    assert keyed.timestamp > named.timestamp
    (other,) = messages(process, "other")
    assert (other.key, other.value) == (None, b"")


def test_what_was_written_is_read_back_with_the_same_source(spark, process):
    frame = spark.range(5000, numPartitions=3).select(
        expr("cast(id % 7 as string) key"), expr("cast(id as string) value")
    )
    write(frame, process, topic="rows")
    back = spark.read.format("txbroker").options(broker=process.address, subscribe="rows").load()
    rows = back.select(col("key").cast("string"), col("value").cast("string"), "partition").collect()
    assert sorted(int(row.value) for row in rows) == list(range(5000))
    assert {(row.key, row.partition) for row in rows} == {
        (str(n), by_key(str(n).encode(), 4)) for n in range(7)
    }


def test_a_write_that_cannot_be_says_why_and_writes_nothing(spark, process):
    frame = spark.range(3)
    for wrong, options, said in (
        (frame, {"topic": "rows"}, "no part of a message has that name"),
        (frame.select(expr("'v' value")), {"topic": "rows", "topics": "x"}, "there is no option 'topics'"),
        (frame.select(expr("'v' value")), {"topic": "nowhere"}, "there is no topic 'nowhere'"),
        (
            frame.select(expr("'v' value"), expr("9 partition")),
            {"topic": "rows"},
            "rows has partitions 0 to 3, not 9",
        ),
    ):
        with pytest.raises(PySparkException, match=said):
            write(wrong, process, **options)
    overwriting = frame.select(expr("'v' value")).write.format("txbroker").mode("overwrite")
    with pytest.raises(PySparkException, match="a topic is a log"):
        overwriting.options(broker=process.address, topic="rows").save()
    assert messages(process, "rows") == []
    with txbroker.connect(process.address) as connection:
        assert connection.transactions() == []
        assert [group.name for group in connection.groups()] == []


NOWHERE = [
    (
        {"topic": "nowhere"},
        r"UnknownTopic: there is no topic 'nowhere' at .*; nothing was written\..*create it first",
    ),
    ({"topic": "rows", "auditTopic": "unheard"}, r"UnknownTopic: there is no topic 'unheard' at "),
]


@pytest.mark.sampled(test=1)
@pytest.mark.parametrize(("options", "said"), NOWHERE)
def test_a_write_to_a_topic_that_is_not_there_is_refused_before_any_task_runs(spark, process, options, said):
    frame, jobs = spark.range(3).select(expr("'v' value")), spark.sparkContext.statusTracker()
    spark.sparkContext.setJobGroup("there", "to a topic that is there")
    write(frame, process, topic="rows")
    assert jobs.getJobIdsForGroup("there")
    spark.sparkContext.setJobGroup("nowhere", "to one that is not")
    with pytest.raises(AnalysisException, match=said):
        write(frame, process, **options)
    assert not jobs.getJobIdsForGroup("nowhere")
    assert len(messages(process, "rows")) == 3


def test_all_columns_that_were_read_can_be_written_to_another_topic(spark, process):
    rows = spark.range(200).selectExpr(
        "'rows' topic", "cast(id as string) key", "cast(id as string) value",
        "array(named_struct('key', 'h', 'value', cast(cast(id as string) as binary))) headers",
    )  # fmt: skip
    write(rows, process)
    with txbroker.connect(process.address) as connection:
        connection.create_topic("copy", partitions=4)
    back = spark.read.format("txbroker").options(
        broker=process.address, subscribe="rows", includeHeaders="true"
    )
    write(back.load().select("*"), process, topic="copy")

    def told(topic):
        return sorted((m.partition, m.key, m.value, m.headers, m.timestamp) for m in messages(process, topic))

    assert told("copy") == told("rows")
    with pytest.raises(PySparkException, match="other has partitions 0 to 0, not "):
        write(back.load(), process, topic="other")


@pytest.mark.sampled(test=1)
@pytest.mark.parametrize("mode", ["update", "complete"])
def test_the_advice_to_a_stream_that_does_not_append_is_one_that_helps(spark, process, tmp_path, mode):
    """Spark itself refuses 'update' for a Python sink."""
    (tmp_path / "lines").mkdir()
    (tmp_path / "lines" / "0.txt").write_text("0\n")
    lines = spark.readStream.schema("value STRING").text(str(tmp_path / "lines"))
    counted = lines.groupBy("value").count().select("value")
    query = (
        counted.writeStream.format("txbroker").options(broker=process.address, topic="rows").outputMode(mode)
    )
    said = (
        "txbroker does not support Update mode"
        if mode == "update"
        else r"outputMode\('append'\) of a stream; nothing"
    )
    with pytest.raises((AnalysisException, StreamingQueryException), match=said):
        query.option("checkpointLocation", str(tmp_path / "checkpoint")).start().awaitTermination()


def streamed(spark, process, folder, **options):
    """A stream of the lines that are there; raises what it ends with."""
    lines = spark.readStream.text(str(folder / "lines"))
    query = lines.writeStream.format("txbroker").options(broker=process.address, **options)
    query = query.option("checkpointLocation", str(folder / "checkpoint")).trigger(availableNow=True).start()
    try:
        query.awaitTermination()
    finally:
        jobs = spark.sparkContext.statusTracker().getJobIdsForGroup(str(query.runId))
        query.stop()
    return jobs


@pytest.mark.sampled(test=1)
@pytest.mark.parametrize(("options", "said"), NOWHERE)
def test_a_stream_to_a_topic_that_is_not_there_is_refused_before_any_task_runs(
    spark, process, tmp_path, options, said
):
    (tmp_path / "lines").mkdir()
    (tmp_path / "lines" / "0.txt").write_text("0\n")
    with pytest.raises(StreamingQueryException, match=said) as caught:
        streamed(spark, process, tmp_path, **options)
    assert "Job aborted" not in str(caught.value)
    assert "Task" not in str(caught.value)
    with txbroker.connect(process.address) as connection:
        for topic in ("nowhere", "unheard"):
            connection.create_topic(topic)
    assert streamed(spark, process, tmp_path, **options), "the same query goes on once the topic is there"
    assert [message.value for message in messages(process, options["topic"])] == [b"0"]


def test_a_stream_from_a_checkpoint_that_is_older_by_one_batch_ends_if_that_has_other_rows_now(
    spark, process, tmp_path
):
    """As a restored backup of the checkpoint, or the loss of its last file with the machine."""

    def lines(*names):
        (tmp_path / "lines").mkdir(exist_ok=True)
        for name in names:
            (tmp_path / "lines" / f"{name}.txt").write_text(f"{name}\n")

    lines("0")
    streamed(spark, process, tmp_path, topic="rows")
    shutil.copytree(tmp_path / "checkpoint", tmp_path / "copy")
    lines("1")
    streamed(spark, process, tmp_path, topic="rows")
    lines("2", "3")
    shutil.rmtree(tmp_path / "checkpoint")
    (tmp_path / "copy").rename(tmp_path / "checkpoint")
    with pytest.raises(
        StreamingQueryException, match="is written already, with 1 rows, and this time it has 3"
    ):
        streamed(spark, process, tmp_path, topic="rows")
    assert [message.value for message in messages(process, "rows")] == [b"0", b"1"]


def test_batches_of_a_stream_can_be_written_by_name_in_foreach_batch(spark, process, tmp_path):
    (tmp_path / "lines").mkdir()
    for number in range(3):
        (tmp_path / "lines" / f"{number}.txt").write_text(f"{number}\n")

    def each(frame, number):
        for topic in ("rows", "others") * 2:  # as if it were repeated
            write(frame, process, topic=topic, txnAppId="copy", txnVersion=str(number))

    stream = spark.readStream.option("maxFilesPerTrigger", "1").text(str(tmp_path / "lines"))
    query = stream.writeStream.foreachBatch(each).option("checkpointLocation", str(tmp_path / "checkpoint"))
    with txbroker.connect(process.address) as connection:
        connection.create_topic("others")
    query.trigger(availableNow=True).start().awaitTermination()
    assert writes.seen(process.address) == [b"0", b"1", b"2"]
    assert sorted(message.value for message in messages(process, "others")) == [b"0", b"1", b"2"]

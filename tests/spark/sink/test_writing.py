"""Test the sink's calls, made as Spark makes them, at a real broker; and tasks that come too late."""

import contextlib
import pickle
import time

import pyarrow as pa
import pytest
from pyspark.sql.types import BinaryType, StringType, StructField, StructType

import txbroker
from journal.formats.spark_decision import GROUPS
from spark import TxBrokerDataSource
from spark.sink import branches, leftovers
from spark.sink import decision as deciding
from spark.sink.branches import Write
from spark.sink.decision import WriteRefused
from spark.sink.options import SinkOptions
from spark.sink.writer import BatchSink, StreamSink, TaskWritten
from tests.spark.sink import writes
from tests.support.broker_process import BrokerProcess
from txbroker import errors

pytestmark = pytest.mark.slow

SCHEMA = StructType([StructField("key", StringType()), StructField("value", BinaryType())])


@pytest.fixture(scope="module")
def process(tmp_path_factory):
    with BrokerProcess(tmp_path_factory.mktemp("writing") / "data", "transaction_timeout=2s") as process:
        yield process


@pytest.fixture
def broker(process):
    with txbroker.connect(process.address, timeout=10.0) as broker:
        if broker.topics([writes.TOPIC]):
            branches.end(broker, branches.undecided(broker).prepared, commit=False)
            broker.delete_topic(writes.TOPIC)
        broker.create_topic(writes.TOPIC, partitions=2)
        yield broker


@pytest.fixture
def options(process):
    return SinkOptions(process.address, writes.TOPIC, timeout=10.0)


def batch(*values):
    return pa.record_batch(
        [pa.array(["k"] * len(values)), pa.array(values, pa.binary())], names=["key", "value"]
    )


def test_a_batch_is_written_and_its_register_is_gone_afterwards(broker, process, options):
    sink = BatchSink(options, SCHEMA, overwrite=False)
    messages = [
        sink.write(iter([batch(b"a", b"b"), batch(b"c")])),
        sink.write(iter([])),
        sink.write(iter([batch()])),
    ]
    assert [len(message.report.branches) for message in messages] == [1, 0, 0]
    sink.commit(messages)
    assert writes.seen(process.address) == [b"a", b"b", b"c"]
    assert leftovers.begun_at(sink.write_name.name) is not None
    assert GROUPS + sink.write_name.name not in {group.name for group in broker.groups()}


def test_an_aborted_batch_leaves_nothing(broker, process, options):
    sink = BatchSink(options, SCHEMA, overwrite=False)
    sink.abort([sink.write(iter([batch(b"a")])), None])
    assert branches.undecided(broker) == branches.Listed({}, {})
    assert writes.seen(process.address) == []
    assert GROUPS + sink.write_name.name not in {group.name for group in broker.groups()}


def test_a_task_that_comes_when_its_batch_has_ended_writes_nothing(broker, process, options):
    sink = BatchSink(options, SCHEMA, overwrite=False)
    sink.commit([sink.write(iter([batch(b"a")]))])
    with pytest.raises(WriteRefused, match="Nothing of this attempt will be seen"):
        sink.write(iter([batch(b"late")]))
    assert branches.undecided(broker) == branches.Listed({}, {})


@pytest.mark.parametrize("end", ["commit", "settle"])
def test_a_task_whose_batch_ends_while_it_writes_rolls_back_what_it_has_prepared(broker, options, end):
    """A speculative copy that is slower than the driver."""
    sink = BatchSink(options, SCHEMA, overwrite=False)
    winner = sink.write(iter([batch(b"a")]))

    def slow_rows():
        yield batch(b"late")
        if end == "commit":
            sink.commit([winner])
        else:
            deciding.settle(broker, sink.write_name.name)

    with pytest.raises(WriteRefused, match="it has been decided, or given up, without this attempt"):
        sink.write(slow_rows())
    assert branches.undecided(broker) == branches.Listed({}, {})


def test_a_task_that_fails_rolls_back_what_it_has_prepared(broker, options):
    sink = BatchSink(options._replace(branch_bytes=1), SCHEMA, overwrite=False)

    def failing_rows():
        yield batch(b"a")
        assert len(branches.undecided(broker).prepared) == 1
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        sink.write(failing_rows())
    assert branches.undecided(broker) == branches.Listed({}, {})


def test_a_task_that_waits_for_its_rows_longer_than_the_broker_lets_transactions_stay_open(
    broker, process, options
):
    """The broker of this module rolls back after 2 s what is not prepared."""
    sink = BatchSink(options._replace(branch_seconds=0.3), SCHEMA, overwrite=False)

    def slow_rows():
        yield batch(b"a")
        wait_for(lambda: len(branches.undecided(broker).prepared) == 1)
        yield batch(b"b", b"c")

    message = sink.write(slow_rows())
    assert len(message.report.branches) == 2
    sink.commit([message])
    assert writes.seen(process.address) == [b"a", b"b", b"c"]


def wait_for(condition):
    deadline = time.monotonic() + 10
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_a_named_version_is_written_once_and_one_below_it_too(broker, process, options):
    named = options._replace(write=Write(writes.name(), 5))
    for write, value in ((5, b"five"), (5, b"again"), (4, b"four"), (6, b"six")):
        sink = BatchSink(named._replace(write=named.write._replace(version=write)), SCHEMA, overwrite=False)
        message = sink.write(iter([batch(value)]))
        assert message.report.skipped is (value in (b"again", b"four"))
        sink.commit([message])
    assert writes.seen(process.address) == [b"five", b"six"]


def test_a_named_version_that_is_repeated_with_more_rows_is_refused(broker, process, options):
    """As the batch of a foreachBatch that an older checkpoint plans anew, and wider: those rows vanished."""
    named = options._replace(write=Write(writes.name(), 5))
    for rows, said in (
        (batch(b"a"), None),
        (batch(b"a"), None),
        (batch(b"a", b"b"), "with 1 rows, .* has 2"),
    ):
        sink = BatchSink(named, SCHEMA, overwrite=False)
        messages = [sink.write(iter([rows])), sink.write(iter([]))]
        with pytest.raises(WriteRefused, match=said) if said else contextlib.nullcontext():
            sink.commit(messages)
    sink.abort(messages)
    assert writes.seen(process.address) == [b"a"]


def test_a_named_version_whose_rows_name_another_topic_is_refused(broker, process, options):
    """The second of two frames that go to one topic each vanished, and was called written."""
    named = options._replace(topic="", write=Write(writes.name(), 5))
    schema = StructType([*SCHEMA, StructField("topic", StringType())])

    def run(*topics):
        sink = BatchSink(named, schema, overwrite=False)
        rows = batch(*[b"a"] * len(topics)).append_column("topic", pa.array(topics, pa.string()))
        sink.commit([sink.write(iter([rows]))])

    for topic in ("elsewhere", "here"):
        with contextlib.suppress(errors.TopicExists):
            broker.create_topic(topic)
    run("here", "elsewhere")
    run("elsewhere", "here")
    with pytest.raises(
        WriteRefused, match="to the topics elsewhere, here, and this time its rows name here: it"
    ):
        run("here", "here")
    assert (writes.seen(process.address, "here"), writes.seen(process.address, "elsewhere")) == (
        [b"a"],
        [b"a"],
    )


@pytest.mark.parametrize("moment", ["before its tasks", "while a task is repeated", "before its decision"])
def test_a_version_that_a_later_one_overtakes_fails_and_says_so(broker, process, options, moment):
    """It was called written, with none of its rows."""
    named = options._replace(write=Write(writes.name(), 5))
    sink = BatchSink(named, SCHEMA, overwrite=False)
    message = None if moment == "before its tasks" else sink.write(iter([batch(b"five")]))
    later = BatchSink(named._replace(write=named.write._replace(version=6)), SCHEMA, overwrite=False)
    later.commit([later.write(iter([batch(b"six")]))])
    go_on = (
        (lambda: sink.commit([message])) if moment == "before its decision" else lambda: sink.write(iter([]))
    )
    with pytest.raises(WriteRefused, match="was overtaken: version 6 was decided while it was at work"):
        go_on()
    sink.abort([message])
    assert writes.seen(process.address) == [b"six"]
    assert branches.undecided(broker).prepared == {}


def test_what_is_not_an_append_is_refused(options):
    with pytest.raises(
        errors.InvalidSetting, match=r"mode\('append'\), or outputMode\('append'\) of a stream; nothing"
    ):
        BatchSink(options, SCHEMA, overwrite=True)


def test_a_stream_has_its_own_names_and_takes_none(options):
    """They were taken and meant nothing."""
    named = options._replace(write=Write("nightly", 1))
    with pytest.raises(
        errors.InvalidSetting, match=r"name a batch write: .* within foreachBatch; nothing was written"
    ):
        StreamSink(named, SCHEMA, overwrite=False)


def test_a_stream_that_spark_does_not_name_is_refused(options):
    with pytest.raises(errors.Misuse, match="Spark does not say for which query and batch"):
        StreamSink(options, SCHEMA, overwrite=False).write(iter([batch(b"a")]))


def test_a_stream_ends_what_a_failed_batch_has_left(broker, process, options):
    sink, write = StreamSink(options, SCHEMA, overwrite=False), Write(writes.name(), 3)
    first = sink.write_rows(write, None, iter([batch(b"a")]))
    sink.abort([first, None], 3)
    assert branches.undecided(broker) == branches.Listed({}, {})
    again = sink.write_rows(write, None, iter([batch(b"b")]))
    sink.commit([again], 3)
    sink.commit([], 4)
    sink.abort([None], 4)
    assert writes.seen(process.address) == [b"b"]


def test_a_stream_from_an_older_checkpoint_is_refused_for_its_batches_may_be_others(broker, process, options):
    sink, name = StreamSink(options, SCHEMA, overwrite=False), writes.name()
    for number in (3, 4):
        sink.commit([sink.write_rows(Write(name, number), None, iter([batch(b"%d" % number)]))], number)
    assert sink.write_rows(Write(name, 4), None, iter([batch(b"again")])).report.skipped
    with pytest.raises(
        WriteRefused, match=r"batch 4 of this query is written already.*older than what was written"
    ):
        sink.write_rows(Write(name, 3), None, iter([batch(b"again")]))
    assert writes.seen(process.address) == [b"3", b"4"]


def test_a_batch_of_a_stream_that_is_repeated_with_more_rows_is_refused(broker, process, options):
    """From a checkpoint that is older by one batch it may be planned anew, and wider: those rows vanished."""
    sink, write = StreamSink(options, SCHEMA, overwrite=False), Write(writes.name(), 3)
    sink.commit([sink.write_rows(write, None, iter([batch(b"a", b"b")]))], 3)
    same = [sink.write_rows(write, None, iter([batch(each)])) for each in (b"a", b"b")]
    sink.commit(same, 3)
    wider = [*same, sink.write_rows(write, None, iter([batch(b"c"), batch(b"d")]))]
    with pytest.raises(
        WriteRefused, match=r"is written already, with 2 rows, and this time it has 4: the source"
    ):
        sink.commit(wider, 3)
    assert writes.seen(process.address) == [b"a", b"b"]


def test_an_abort_after_a_decision_carries_it_out(broker, process, options, monkeypatch):
    """Spark calls abort when commit has raised, and commit may have raised because the broker was away."""
    sink, write = StreamSink(options, SCHEMA, overwrite=False), Write(writes.name(), 3)
    message = sink.write_rows(write, None, iter([batch(b"a")]))

    def away(*_given, **_named):
        raise errors.ConnectionUnavailable("the broker is away")

    with monkeypatch.context() as patch:
        patch.setattr(branches, "end", away)
        with pytest.raises(errors.DeliveryPending, match=r"is decided: .* Do not write these rows again"):
            sink.commit([message], 3)
    assert writes.seen(process.address) == []
    sink.abort([message], 3)
    assert writes.seen(process.address) == [b"a"]


def test_a_stream_to_a_topic_that_is_not_there_is_refused_when_a_batch_begins_and_not_when_one_ends(
    broker, process
):
    """Spark asks for a sink of a source that it has pickled when it commits or aborts."""
    source = TxBrokerDataSource({"broker": process.address, "topic": writes.TOPIC})
    pickled = pickle.loads(pickle.dumps(source))
    source.streamWriter(SCHEMA, overwrite=False)
    broker.delete_topic(writes.TOPIC)
    with pytest.raises(errors.UnknownTopic, match=f"there is no topic '{writes.TOPIC}' at {process.address}"):
        source.streamWriter(SCHEMA, overwrite=False)
    sink = pickled.streamWriter(SCHEMA, overwrite=False)
    sink.abort([None], 3)
    source = TxBrokerDataSource({"broker": process.address})
    assert source.streamWriter(StructType([*SCHEMA, StructField("topic", StringType())]), overwrite=False)


def test_a_task_says_it_of_a_topic_that_was_deleted_meanwhile(broker, options):
    sink = BatchSink(options, SCHEMA, overwrite=False)
    broker.delete_topic(writes.TOPIC)
    with pytest.raises(errors.UnknownTopic, match=f"there is no topic '{writes.TOPIC}'"):
        sink.write(iter([batch(b"a")]))
    sink.abort([None])
    assert GROUPS + sink.write_name.name not in {group.name for group in broker.groups()}


def test_a_batch_to_a_topic_that_is_not_there_leaves_no_register(broker, options):
    before = {group.name for group in broker.groups()}
    with pytest.raises(
        errors.UnknownTopic, match=r"there is no topic 'no/such', 'unheard' at .*create it first"
    ):
        BatchSink(options._replace(topic="no/such", audit_topic="unheard"), SCHEMA, overwrite=False)
    assert {group.name for group in broker.groups()} == before


def test_a_version_that_is_written_is_passed_over_though_its_topic_has_gone(broker, options):
    named = options._replace(write=Write(writes.name(), 1))
    sink = BatchSink(named, SCHEMA, overwrite=False)
    sink.commit([sink.write(iter([batch(b"a")]))])
    broker.delete_topic(writes.TOPIC)
    again = BatchSink(named, SCHEMA, overwrite=False)
    message = again.write(iter([batch(b"a")]))
    assert message.report.skipped
    again.commit([message])


def test_each_branch_carries_a_report_of_its_own(broker, process, options):
    with contextlib.suppress(errors.TopicExists):
        broker.create_topic("reports")
    sink = BatchSink(options._replace(audit_topic="reports"), SCHEMA, overwrite=False)
    lost = sink.write(iter([batch(b"never seen")]))
    sink.commit([sink.write(iter([batch(b"a", b"b")]))])
    reports = broker.read("reports", 0, 0)
    assert isinstance(lost, TaskWritten)
    assert len(reports) == 1
    assert b'"sent":[["rows",' in reports[0].value
    assert reports[0].value.count(b",2,") == 1

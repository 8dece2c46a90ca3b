"""Test reads from a live broker: the same rows as from its files; a broker that dies is waited for, or named."""

import time
from dataclasses import replace

import pytest

import txbroker
from journal.errors import UnknownTopic
from spark.source import messages
from spark.source.live import Broker
from spark.source.logs import MessagesLost
from spark.source.options import read_options
from spark.source.partition_plan import cut_into_tasks, ranges, subscribed
from spark.source.pushdown import Wanted
from spark.source.reader import read_parts
from tests.spark.directories import flip, segments
from tests.support.broker_process import BrokerProcess
from txbroker import errors

pytestmark = pytest.mark.slow
COLUMNS = ("topic", "partition", "offset", "key", "value", "headers")


@pytest.fixture
def broker(tmp_path):
    with BrokerProcess(tmp_path / "data") as process:
        with txbroker.connect(process.address) as connection:
            connection.create_topic("t", 3, segment_bytes=1 << 17)
            fill(connection, 3000)
        yield process


def fill(connection, count, start=0):
    for number in range(start, start + count):
        connection.send_async("t", b"%06d" % number + b"." * 100, key=b"%d" % number, partition=number % 3)
    connection.flush()


def options_of(broker, **options):
    return read_options({"broker": broker.address, "subscribe": "t", **options})


def planned(options):
    logs = Broker(options.broker, options.timeout)
    try:
        return cut_into_tasks(
            logs, ranges(logs, options, Wanted(), subscribed(logs, options)), options.min_partitions
        )
    finally:
        logs.close()


def read(options, plan=None):
    plan = planned(options) if plan is None else plan
    return [
        row
        for task in plan
        for batch in read_parts(options, COLUMNS, Wanted(), task.parts)
        for row in batch.to_pylist()
    ]


def numbers(rows):
    return sorted(int(row["value"][:6]) for row in rows)


def test_all_committed_messages_are_read_once_in_as_many_parts_as_wanted(broker):
    with txbroker.connect(broker.address) as connection, connection.transaction() as tx:
        tx.send("t", b"%06d" % 3000, partition=0)
        assert numbers(read(options_of(broker))) == list(range(3000)), "an open transaction shows nothing"
    options = options_of(broker, minPartitions="20")
    plan = planned(options)
    assert len(plan) >= 20
    rows = read(options, plan)
    assert numbers(rows) == list(range(3001))
    assert {row["key"] for row in rows if row["offset"] < 1000} == {b"%d" % n for n in range(3000)}


def test_offsets_and_times_bound_what_is_read(broker):
    begin, end = '{"t": {"0": 990, "1": -1, "2": -2}}', '{"t": {"0": 995, "1": -1, "2": 2}}'
    rows = read(options_of(broker, startingOffsets=begin, endingOffsets=end))
    assert [(r["partition"], r["offset"]) for r in rows] == [
        *((0, n) for n in range(990, 995)),
        (2, 0),
        (2, 1),
    ]
    time.sleep(0.005)
    mark = str(time.time_ns() // 1_000_000)
    with txbroker.connect(broker.address) as connection:
        time.sleep(0.005)
        fill(connection, 300, 3000)
    assert set(numbers(read(options_of(broker, startingTimestamp=mark)))) >= set(range(3000, 3300))
    assert set(numbers(read(options_of(broker, endingTimestamp=mark)))) >= set(range(3000))
    assert numbers(read(options_of(broker, endingTimestamp=mark, startingTimestamp="0")))[:3000] == list(
        range(3000)
    )


@pytest.mark.parametrize("before", [[100] * 20, [100] * 30 + [300_000] * 2 + [100], [20_000] * 30 + [40_000]])
def test_no_message_is_left_out_that_was_appended_before_the_end(broker, before):
    """Neither where the first entry of the index holds all of them, nor behind a frame that is larger than an entry."""
    with txbroker.connect(broker.address) as connection:
        connection.create_topic("times", 1, force_messages=1)
        for size in before:
            connection.send("times", b" " * size)
        time.sleep(0.1)
        mark = str(time.time_ns() // 1_000_000)
        time.sleep(0.1)
        for _ in range(3_000):
            connection.send_async("times", b"later" * 100)
        connection.flush()
        time.sleep(1.0)
    options = read_options({"broker": broker.address, "subscribe": "times", "endingTimestamp": mark})
    found = [row["offset"] for row in read(options)]
    assert sorted(found)[: len(before)] == list(range(len(before)))
    assert len(found) < len(before) + 500


def test_a_log_that_ends_sooner_than_it_did_is_looked_at_no_further(broker):
    """Its broker was set back meanwhile: reading on at the end gives nothing, however often it is asked for."""
    logs = Broker(broker.address, 5.0)
    try:
        log = logs.logs(lambda topic: topic == "t")[0]
        assert logs._behind_entry(replace(log, end=log.end + 100), log.end) == log.end
    finally:
        logs.close()


def test_what_is_not_there_is_named(broker):
    with pytest.raises(
        UnknownTopic, match=rf"no topic nope in {broker.address}; nothing was read\. There are: .*t"
    ):
        read(read_options({"broker": broker.address, "subscribe": "nope"}))
    with pytest.raises(
        MessagesLost, match="t-0: offsets 1000 to 1099 cannot be read: the log ends at offset 1000"
    ):
        read(options_of(broker, endingOffsets='{"t": {"0": 1100, "1": -1, "2": -1}}'))
    with pytest.raises(errors.ConnectionUnavailable, match=r"tcp:127\.0\.0\.1:1"):
        read(read_options({"broker": "tcp:127.0.0.1:1", "subscribe": "t", "timeout": "300ms"}))


def test_a_broker_that_dies_in_mid_read_is_waited_for_and_nothing_is_read_twice(broker, monkeypatch):
    monkeypatch.setattr(messages, "BLOCK_BYTES", 4096)
    options = options_of(broker)
    (task,) = planned(options)
    rows = []
    for number, batch in enumerate(read_parts(options, COLUMNS, Wanted(), task.parts)):
        rows += batch.to_pylist()
        if number in (2, 7):
            broker.kill()
            broker.start()
    assert number > 10
    assert numbers(rows) == list(range(3000))


def test_a_broker_that_does_not_come_back_is_named_with_the_place_that_was_read(broker, monkeypatch):
    monkeypatch.setattr(messages, "BLOCK_BYTES", 4096)
    options = options_of(broker, timeout="500ms")
    batches = read_parts(options, COLUMNS, Wanted(), planned(options)[0].parts)
    first = next(batches)
    last = first.to_pylist()[-1]
    broker.kill()
    with pytest.raises(errors.TxBrokerError) as caught:
        list(batches)
    told = str(caught.value)
    assert f"t-{last['partition']} from offset {last['offset'] + 1} on, from {broker.address}" in told
    assert isinstance(caught.value, errors.ConnectionUnavailable | errors.RequestTimedOut)


def test_a_topic_that_is_deleted_and_made_anew_is_not_taken_for_the_old_one(broker):
    options = options_of(broker)
    plan = planned(options)
    with txbroker.connect(broker.address) as connection:
        connection.delete_topic("t")
        connection.create_topic("t", 3)
        fill(connection, 30)
    with pytest.raises(MessagesLost, match="the topic has been deleted since the query was planned"):
        read(options, plan)
    assert read(options_of(broker, failOnDataLoss="false"), plan) == []


def test_damage_that_the_broker_finds_is_named_or_skipped(broker):
    broker.stop()
    file = segments(broker.data_dir)[0]
    flip(file, file.stat().st_size // 2)
    broker.start()
    with pytest.raises(MessagesLost, match=r"t-0: offsets? \d+.* cannot be read: .* is damaged at byte \d+"):
        read(options_of(broker))
    found = numbers(read(options_of(broker, failOnDataLoss="false")))
    assert 2000 <= len(found) < 3000
    assert {n for n in range(3000) if n % 3} <= set(found)

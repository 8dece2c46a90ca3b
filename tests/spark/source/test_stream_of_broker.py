"""Test the decisions of a stream's driver at a real broker: one that was set back is told from one that went on."""

import contextlib
import json
import shutil
from collections import Counter

import pytest

import txbroker
from journal.errors import InvalidSetting
from spark import TxBrokerDataSource
from spark.source.columns import message_schema
from spark.source.live import Broker
from spark.source.logs import MessagesLost, Start
from spark.source.options import read_options
from spark.source.stream_reader import MessageStream
from tests.spark.source.test_streaming_positions import ALL, nexts, offsets, values
from tests.support.broker_process import BrokerProcess
from txbroker import errors

pytestmark = pytest.mark.slow


def stream_at(broker, **options):
    given = read_options({"broker": broker.address, "subscribe": "t", **options})
    return contextlib.closing(Stream(given, message_schema(given)))


class Stream(MessageStream):
    """One that a test closes."""

    close = MessageStream.stop


def send(broker, count, topic="t"):
    with txbroker.connect(broker.address) as connection:
        for number in range(count):
            connection.send_async(topic, b"%d" % number, partition=0)
        connection.flush()


@pytest.fixture
def broker(tmp_path):
    with BrokerProcess(tmp_path / "data") as process:
        with txbroker.connect(process.address) as connection:
            connection.create_topic("t", 2)
        send(process, 100)
        yield process


def test_a_broker_that_was_restored_from_a_copy_is_named_though_it_has_grown_past_what_was_read(
    broker, tmp_path
):
    broker.stop()
    shutil.copytree(broker.data_dir, tmp_path / "copy")
    broker.start()
    send(broker, 50)
    with stream_at(broker, startingOffsets="earliest") as stream:
        begun = stream.initialOffset()
        at = stream.latestOffset(begun, ALL)
        assert nexts(at) == [150, 0]
        broker.kill()
        shutil.rmtree(broker.data_dir)
        (tmp_path / "copy").rename(broker.data_dir)
        broker.start()
        send(broker, 500)
        with pytest.raises(errors.TxBrokerError, match="its data were set back to an older copy"):
            stream.latestOffset(at, ALL)
    with stream_at(broker) as stream:
        for refused in (lambda: stream.latestOffset(at, ALL), lambda: stream.partitions(begun, at)):
            with pytest.raises(
                MessagesLost, match=r"t-0: which messages are below offset 150.*set back to an"
            ):
                refused()
    with stream_at(broker, failOnDataLoss="false") as stream:
        upto = stream.latestOffset(at, ALL)
        assert [offset for _, offset in offsets(stream, at, upto)] == list(range(150, 600))
        assert stream.latestOffset(upto, ALL) == upto


def test_a_broker_that_was_killed_and_started_again_knows_its_former_starts_and_no_others(broker):
    logs = Broker(broker.address, 10.0)
    first = logs.start
    logs.close()
    for _ in range(2):
        broker.kill()
        broker.start()
    logs = Broker(broker.address, 10.0)
    assert logs.start.number > first.number
    assert logs.knows(first)
    assert logs.knows(logs.start)
    assert not logs.knows(Start(first.number, bytes(16)))
    assert not logs.knows(Start(logs.start.number + 1, first.nonce))
    assert logs.knows(Start(-5000, bytes(16))), "too long ago to be remembered"
    logs.close()


def test_a_time_is_asked_for_once_for_all_partitions_of_a_topic(broker, monkeypatch):
    with txbroker.connect(broker.address) as connection:
        connection.create_topic("wide", 50)
    asked = []
    ask = txbroker.Connection.offsets_for_time

    def counted(self, topic, time):
        asked.append((topic, time))
        return ask(self, topic, time)

    monkeypatch.setattr(txbroker.Connection, "offsets_for_time", counted)
    with stream_at(broker, subscribe="t,wide", startingTimestamp="1700000000000") as stream:
        stream.initialOffset()
    assert sorted(asked) == [("t", 1_700_000_000_000_000), ("wide", 1_700_000_000_000_000)]


def test_the_streams_progress_is_shown_at_the_broker_as_that_of_a_group(broker, caplog):
    with (
        txbroker.connect(broker.address) as connection,
        stream_at(broker, startingOffsets="earliest", group="to-lake") as stream,
    ):
        connection.create_topic("gone")
        at = stream.latestOffset(stream.initialOffset(), ALL)
        stream.commit(at)
        shown = connection.group_offsets("to-lake")
        assert [(each.topic, each.partition, each.offset) for each in shown] == [("t", 0, 100), ("t", 1, 0)]
        send(broker, 7)
        at = stream.latestOffset(at, ALL)
        at["topics"]["t"]["1"]["log"] += 100  # of a topic that was made anew
        stream.commit(at)
        assert [each.offset for each in connection.group_offsets("to-lake")] == [107, 0]
        at["topics"]["t"]["0"]["next"] = 10**9
        stream.commit(at)
        assert "the group to-lake does not show where the stream is" in caplog.text


def test_a_batch_has_no_progress_to_show():
    source = TxBrokerDataSource({"broker": "tcp:127.0.0.1:1", "subscribe": "t", "group": "g"})
    with pytest.raises(InvalidSetting, match="group is for streams"):
        source.reader(source.schema())


def test_without_a_group_none_is_moved(broker):
    with (
        txbroker.connect(broker.address) as connection,
        stream_at(broker, startingOffsets="earliest") as stream,
    ):
        stream.commit(stream.latestOffset(stream.initialOffset(), ALL))
        assert connection.groups() == []


def test_only_the_partitions_that_are_assigned_are_read_and_those_must_be_there(broker):
    given = {"broker": broker.address, "startingOffsets": "earliest"}
    options = read_options({**given, "assign": '{"t": [1]}'})
    with contextlib.closing(Stream(options, message_schema(options))) as stream:
        at = stream.initialOffset()
        assert at["topics"].keys() == {"t"}
        assert at["topics"]["t"].keys() == {"1"}
        with txbroker.connect(broker.address) as connection:
            connection.create_topic("u")
            connection.send("t", b"assigned", partition=1)
            connection.send("t", b"another", partition=0)
        assert offsets(stream, at, stream.latestOffset(at, ALL)) == [(1, 0)]
    options = read_options({**given, "assign": '{"t": [1, 5]}'})
    with (
        contextlib.closing(Stream(options, message_schema(options))) as stream,
        pytest.raises(errors.UnknownPartition, match=r"assign names t-5, which tcp:.* does not have"),
    ):
        stream.initialOffset()


def halves(found):
    """Values that are there an odd number of times: every transaction sent the same one twice, to two topics."""
    return [value for value, count in Counter(found).items() if count % 2]


@pytest.mark.parametrize("where", ["broker", "path"])
def test_batches_hold_whole_transactions_if_that_is_wanted(tmp_path, where):
    with BrokerProcess(tmp_path / "data", "outcome_archive=on") as broker:
        with txbroker.connect(broker.address) as connection:
            connection.create_topic("o", 3)
            connection.create_topic("p", 2)
            for number in range(300):
                if number % 10 == 0:
                    connection.send("o", b"single")
                    connection.send("o", b"single")
                with connection.transaction() as tx:
                    for _ in range(1 + 30 * (number == 150)):
                        tx.send("o", b"%d" % number)
                        tx.send("p", b"%d" % number)
        broker.stop()
        if where == "broker":
            broker.start()
        place = {"broker": broker.address} if where == "broker" else {"path": str(broker.data_dir)}
        cut, whole = (sizes_and_halves(place, wanted) for wanted in ("false", "true"))
    assert sum(cut[0]) == sum(whole[0]) == 720
    assert cut[1], "without it transactions are cut"
    assert not whole[1]
    assert sorted(whole[0])[-2] <= 25
    assert max(whole[0]) >= 62, "the one that is larger than a batch"


def sizes_and_halves(place, whole):
    given = {"subscribe": "o,p", "startingOffsets": "earliest", "maxOffsetsPerTrigger": "25"}
    options = read_options({**place, **given, "wholeTransactions": whole})
    sizes, odd = [], []
    with contextlib.closing(Stream(options, message_schema(options))) as stream:
        at = stream.initialOffset()
        while (upto := stream.latestOffset(json.loads(json.dumps(at)), stream.getDefaultReadLimit())) != at:
            found = [value for value in values(stream, at, upto) if value != b"single"]
            sizes.append(sum(sum(nexts(upto, topic)) - sum(nexts(at, topic)) for topic in "op"))
            odd += halves(found)
            at = upto
    return sizes, odd


def test_whole_transactions_need_the_archive(broker):
    more = {"wholeTransactions": "true", "maxOffsetsPerTrigger": "10"}
    with txbroker.connect(broker.address) as connection, connection.transaction() as tx:
        tx.send("t", b"x")
    with (
        stream_at(broker, startingOffsets="earliest", **more) as stream,
        pytest.raises(errors.UnknownTopic, match="keeps no outcome archive"),
    ):
        stream.initialOffset()


def test_partitions_that_a_topic_gets_are_in_the_next_batch_from_their_start_also_over_a_kill(broker):
    with stream_at(broker, startingOffsets="latest") as stream:
        at = stream.initialOffset()
        with txbroker.connect(broker.address) as connection:
            connection.alter_topic("t", partitions=4)
            for partition in range(4):
                connection.send("t", b"new", partition=partition)
        upto = stream.latestOffset(at, ALL)
        broker.kill()
        broker.start()
        assert sorted(offsets(stream, at, upto)) == [(0, 100), (1, 0), (2, 0), (3, 0)]
        assert stream.latestOffset(upto, ALL) == upto

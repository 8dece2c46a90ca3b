"""What a stream's driver decides at a real broker: one that was set back is told from one that went on."""

import contextlib
import shutil

import pytest

import txbroker
from spark.columns import message_schema
from spark.live import Broker
from spark.logs import MessagesLost, Start
from spark.options import read_options
from spark.streaming import MessageStream
from tests.broker_process import BrokerProcess
from tests.spark.test_streaming_positions import ALL, nexts, offsets
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

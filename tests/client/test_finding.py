"""Test ``find`` of every client against a real broker: messages by key and id, whole and in order."""

import asyncio

import pytest

import txbroker
from tests.support.broker_process import BrokerProcess
from txbroker import errors
from txbroker.client.asyncio import connect

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def broker(tmp_path_factory):
    with BrokerProcess(tmp_path_factory.mktemp("finding") / "data") as broker:
        yield broker


@pytest.fixture
def connection(broker):
    with txbroker.connect(broker.address, timeout=20.0) as connection:
        yield connection


def places(messages):
    return [(message.partition, message.offset) for message in messages]


@pytest.mark.parametrize("compression", [None, "zstd"])
def test_messages_are_found_in_segments_in_memory_and_in_batches(broker, connection, compression):
    topic = f"t-{compression}"
    connection.create_topic(topic, partitions=2, segment_bytes=1 << 20, force_messages=100)
    sent = {}
    with txbroker.connect(broker.address, compression=compression) as sender:
        for number in range(6_000):
            key, id, value = b"k%d" % (number % 1000), f"order-{number}", b"%d" % number * 200
            sent[number] = sender.send_async(topic, value, key=key, id=id)
        sender.flush()
    receipts = {number: future.result() for number, future in sent.items()}
    with connection.transaction() as tx:
        receipt = tx.send(topic, b"last", key=b"k7", partition=1, id=True)
    for number in (0, 2_999, 5_999):
        [found] = connection.find(topic, id=f"order-{number}")
        assert (found.partition, found.offset) == receipts[number][1:3]
        assert (found.topic, found.value) == (topic, b"%d" % number * 200)
    [last] = connection.find(topic, id=receipt.id)
    assert last.value == b"last"
    expected = sorted([*(receipts[7 + 1000 * times][1:3] for times in range(6)), (1, last.offset)])
    assert places(connection.find(topic, key=b"k7")) == expected
    assert places(connection.find(topic, key=b"k7", limit=3)) == expected[:3]
    assert places(connection.find(topic, key=b"k7", partition=1)) == [
        each for each in expected if each[0] == 1
    ]
    start = last.offset
    assert places(connection.find(topic, key=b"k7", start=start)) == [(1, start)]
    assert connection.find(topic, key=b"k7", id="order-8") == []


def test_on_a_loop_it_is_the_same(broker, connection):
    connection.create_topic("loop")
    connection.send("loop", b"v", key=b"k", id="x")

    async def main():
        async with await connect(broker.address) as other:
            return await other.find("loop", key=b"k", id=b"x")

    assert places(asyncio.run(main())) == [(0, 0)]


def test_a_message_that_is_not_committed_is_not_found(connection):
    connection.create_topic("open")
    with connection.transaction() as tx:
        tx.send("open", b"v", id="x")
        assert connection.find("open", id="x") == []
    assert len(connection.find("open", id="x")) == 1


def test_what_is_not_there_is_refused(connection):
    connection.create_topic("there")
    with pytest.raises(errors.UnknownTopic):
        connection.find("nowhere", id="x")
    with pytest.raises(errors.UnknownPartition):
        connection.find("there", id="x", partition=1)
    with pytest.raises(
        errors.Misuse, match="find looks for messages by key=, id= and tag=: say one, or several"
    ):
        connection.find("there")
    assert connection.find("there", id="x") == []

"""Test which partition a message goes to.

Seen to fail: with the hash made positive by its amount; with an index below zero taken as Python does; for ever, with
a partitioner let into the connection that asks it; for ever, with what is no ``Exception`` left to whoever comes by.
"""

import asyncio
import contextlib
import threading
from concurrent.futures import ThreadPoolExecutor
from itertools import groupby

import numpy as np
import pytest

from journal.formats import frame
from tests.client.rig import Rig
from tests.client.scripted_broker import ScriptedBroker, ScriptedServer
from txbroker import connect, errors
from txbroker.client import asyncio as client_asyncio
from txbroker.client.core.partitioner import by_key, murmur2
from txbroker.client.core.promise import start as without_pump
from txbroker.client.transactions.bulk import send_many
from txbroker.wire.messages import Send


@pytest.mark.parametrize(
    ("key", "hashed"),
    [  # of Kafka's own UtilsTest.testMurmur2
        (b"21", -973932308),
        (b"foobar", -790332482),
        (b"a-little-bit-long-string", -985981536),
        (b"a-little-bit-longer-string", -1486304829),
        (b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8", -58897971),
        (b"abc", 479470107),
    ],
)
def test_a_key_hashes_as_in_kafka(key, hashed):
    assert murmur2(key) == hashed & 0xFFFFFFFF


def test_a_negative_hash_is_made_positive_by_its_sign_bit_not_by_its_amount():
    assert by_key(b"21", 7) == (-973932308 & 0x7FFFFFFF) % 7
    assert by_key(b"21", 7) != 973932308 % 7


def test_every_partition_gets_keys():
    assert {by_key(str(number).encode(), 10) for number in range(200)} == set(range(10))


@pytest.mark.parametrize(
    ("key", "index"),
    [(b"", 681), (b"a", 524), (b"ab", 434), (b"abc", 107), (b"123456789", 566), (b"\x00 ", 742)],
)
def test_a_key_lands_where_kafkas_java_client_puts_it_among_a_thousand(key, index):
    """The values are those that other clients of Kafka compare themselves with."""
    assert by_key(key, 1000) == index


# -- the whole choice --------------------------------------------------------------------------------


@pytest.fixture
def broker():
    broker = ScriptedBroker()
    broker.topics[1] = ("t2", (2, 3, 4, 5, 6))
    broker.logs.update({number: [] for number in (4, 5, 6)})
    broker.ends = dict.fromkeys(broker.logs, 0)
    return broker


def index_of(rig, key=None, partition=None, topic="t2"):
    route = rig.producer.known_route(topic) or rig.run(rig.producer.route(topic))
    queue = route.choose(key, partition)
    queue.append(b"v", 1, key, None)
    return queue.index


def test_explicit_goes_before_the_callers_own_and_that_before_the_key(broker):
    rig = Rig(broker, partitioner=lambda topic, key, partitions: 1 if key == b"mine" else None)
    assert index_of(rig, b"mine", 4) == 4
    assert index_of(rig, b"mine") == 1
    assert index_of(rig, b"21") == (-973932308 & 0x7FFFFFFF) % 5


def test_the_callers_own_is_told_topic_key_and_number_of_partitions(broker):
    told = []
    rig = Rig(broker, partitioner=lambda *said: told.append(said) or 0)
    for key, topic in ((b"k", "t2"), (None, "t2"), (b"k", "t")):
        index_of(rig, key, topic=topic)
    assert told == [("t2", b"k", 5), ("t2", None, 5), ("t", b"k", 1)]


def test_without_key_and_choice_a_batch_stays_on_a_partition_and_the_next_goes_on(broker):
    rig = Rig(broker, batch_bytes=300)
    index_of(rig)  # alone: nothing was in flight
    batches = [index_of(rig) for _ in range(48)]
    rig.pump()
    per_batch = 300 // (frame.INNER_HEADER_BYTES + 1)
    stays = [sum(1 for _ in group) for _, group in groupby(batches)]
    assert set(batches) == set(range(5)), "all get some"
    assert max(stays) == per_batch + 1, "a full batch, and the message that found it full"
    assert len(stays) > 5


@pytest.mark.parametrize(
    "wrong", [5, -1, 1 << 40, "1", 1.0, True, b"1", [0], float("nan"), np.float64(1), np.int64(-1)]
)
def test_a_number_that_is_no_partition_is_refused_and_nothing_is_sent(broker, wrong):
    rig = Rig(broker, partitioner=lambda *said: wrong)
    with pytest.raises(errors.Misuse, match=r"gave .* for a message to 't2', which has partitions 0 to 4"):
        index_of(rig, b"k")
    rig.pump()
    assert not any(broker.values(number) for number in broker.logs)
    assert rig.producer.buffered == 0


def test_what_it_raises_reaches_the_caller_with_a_note_and_the_next_message_goes(broker):
    def partitioner(topic, key, partitions):
        return {b"known": 2}[key]

    rig = Rig(broker, partitioner=partitioner)
    with pytest.raises(KeyError) as caught:
        index_of(rig, b"unknown")
    assert "for a message to 't2'; the message was not sent" in caught.value.__notes__[0]
    assert index_of(rig, b"known") == 2


def test_any_integer_will_do_for_a_number(broker):
    assert index_of(Rig(broker, partitioner=lambda *said: np.int64(3)), b"k") == 3


def test_transactions_and_columns_ask_it_too_and_reports_do_not(broker):
    def partitioner(topic, key, partitions):
        assert topic != "t"
        return 4

    rig = Rig(broker, partitioner=partitioner, reports="t", client="meter")
    transaction = rig.transaction()
    rig.run(transaction.send("t2", b"a", b"k", None, None))
    rig.run(send_many(transaction, "t2", [b"b", b"c"], keys=[b"k", None], partitions=[None, 0]))
    rig.run(transaction.commit())
    assert (broker.values(6), broker.values(2)) == ([b"a", b"b"], [b"c"])
    rig.wait(11)
    assert len(broker.values(1)) == 1, "the report, by its key"


def test_every_api_takes_one(broker):
    server = ScriptedServer(broker)
    try:
        with connect(server.url, partitioner=lambda *said: 1) as connection:
            assert connection.send("t2", b"a").partition == 1
            assert connection.send_async("t2", b"a", key=b"k").result().partition == 1
        with connect(server.url, partitioner=lambda *said: 7) as connection:
            for wrong in (connection.send, connection.send_async):
                with pytest.raises(errors.Misuse, match="partitions 0 to 4"):
                    wrong("t2", b"a")

        async def on_a_loop():
            async with await client_asyncio.connect(server.url, partitioner=lambda *said: 2) as connection:
                return (await connection.send("t2", b"a")).partition

        assert asyncio.run(on_a_loop()) == 2
    finally:
        server.close()


# -- a partition that a call names ------------------------------------------------------------------


@pytest.fixture
def server(broker):
    server = ScriptedServer(broker)
    yield server
    server.close()


REFUSAL = r"^partition is .*of type .*; it must be an int, 0 for the first one; nothing was done with it$"
CALLS = {
    "send": lambda connection, wrong: connection.send("t2", b"v", partition=wrong),
    "send_async": lambda connection, wrong: connection.send_async("t2", b"v", partition=wrong),
    "in a transaction": lambda connection, wrong: connection.transaction().send("t2", b"v", partition=wrong),
    "many": lambda connection, wrong: connection.transaction().send_many("t2", [b"v"], partitions=[wrong]),
    "read": lambda connection, wrong: connection.read("t2", wrong, 0),
    "set_offsets": lambda connection, wrong: connection.set_offsets("g", "t2", {wrong: 0}),
    "consume": lambda connection, wrong: connection.consume("t2", partitions=[0, wrong]),
}


@pytest.mark.parametrize("wrong", ["1", True, 1.5, 1.0, b"1", [0], np.float64(1), np.bool_(True)])
def test_a_partition_that_is_no_index_is_refused_and_nothing_is_sent(broker, wrong):
    rig = Rig(broker, partitioner=lambda *said: 0)
    with pytest.raises(errors.Misuse, match=REFUSAL):
        index_of(rig, b"k", wrong)
    rig.pump()
    assert not any(broker.values(number) for number in broker.logs)
    assert rig.producer.buffered == 0


def test_any_integer_will_do_for_a_partition(broker):
    assert index_of(Rig(broker), b"k", np.int64(3)) == 3


@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)
def test_every_call_refuses_a_partition_that_is_no_index_and_the_connection_goes_on(broker, server, call):
    with connect(server.url) as connection:
        for wrong in ("1", True, 1.5):
            with pytest.raises(errors.Misuse, match=REFUSAL):
                call(connection, wrong)
        connection.send("t2", b"next", partition=1)
    assert [broker.values(number) for number in (2, 3)] == [[], [b"next"]]


def test_on_a_loop_a_partition_that_is_no_index_is_refused_too(broker, server):
    async def main():
        async with await client_asyncio.connect(server.url) as connection:
            with pytest.raises(errors.Misuse, match=REFUSAL):
                await connection.send("t2", b"v", partition="1")
            return (await connection.send("t2", b"next", partition=2)).offset

    assert asyncio.run(main()) == 0
    assert (broker.values(3), broker.values(4)) == ([], [b"next"])


# -- a partitioner that does what it must not --------------------------------------------------------


USES = {
    "send": lambda connection, future: connection.send("t2", b"inner", partition=0),
    "send_async": lambda connection, future: connection.send_async("t2", b"inner", partition=0),
    "flush": lambda connection, future: connection.flush(),
    "ping": lambda connection, future: connection.ping(),
    "close": lambda connection, future: connection.close(),
    "transaction": lambda connection, future: connection.transaction(),
    "poll": lambda connection, future: connection.consume("t2").poll(),
    "consumer's close": lambda connection, future: connection.consume("t2").close(),
    "result": lambda connection, future: future.result(),
    "callback": lambda connection, future: future.add_done_callback(print),
}


@pytest.mark.parametrize("use", USES.values(), ids=USES)
def test_it_is_refused_the_connection_that_asks_it_instead_of_waiting_for_itself(broker, server, use):
    """Its thread holds the lock: it waited for that, and with it every thread of the connection, for ever."""
    broker.before = lambda request, data: broker.SWALLOW if held and type(request) is Send else None
    held, futures = [1], []

    def choose(topic, key, partitions):
        if key == b"uses":
            use(connection, futures[0])
        return 3

    with connect(server.url, partitioner=choose, timeout=20.0) as connection:
        futures.append(connection.send_async("t2", b"unanswered", partition=1))
        with ThreadPoolExecutor(1) as thread:
            sending = thread.submit(connection.send, "t2", b"outer", b"uses")
            with pytest.raises(errors.Misuse, match="used the connection that asks it") as caught:
                sending.result(10)
        assert "for a message to 't2'; the message was not sent" in caught.value.__notes__[0]
        held.clear()
        server.cut()
        assert connection.send("t2", b"next").partition == 3
        futures[0].result(10)
    assert (broker.values(5), broker.values(3)) == ([b"next"], [b"unanswered"])


def test_another_thread_may_use_the_connection_that_asks_and_has_its_turn_afterwards(broker, server):
    asked, go = threading.Event(), threading.Event()

    def choose(topic, key, partitions):
        asked.set()
        assert go.wait(10)
        return 3

    with connect(server.url, partitioner=choose) as connection, ThreadPoolExecutor(2) as threads:
        connection.send("t2", b"before", partition=0)
        slow = threads.submit(connection.send, "t2", b"slow")
        assert asked.wait(10)
        other = threads.submit(connection.send, "t2", b"other", partition=0)
        threading.Timer(0.05, go.set).start()
        assert (slow.result(10).partition, other.result(10).partition) == (3, 0)


class Stopped(BaseException):
    """As frameworks have it that stop what runs."""


@pytest.mark.parametrize("kind", [Stopped, SystemExit, KeyboardInterrupt])
def test_whatever_it_raises_ends_its_own_message_and_no_other(broker, kind):
    """The first message to a topic is asked for while answers are taken in: the rest of these must not be lost."""

    def choose(topic, key, partitions):
        if key == b"bad":
            raise kind("enough")
        return 0

    rig = Rig(broker, partitioner=choose)

    async def send(topic, key):
        route = rig.producer.known_route(topic) or await rig.producer.route(topic)
        batch, position = route.choose(key, None).append(b"v", 1, key, None)
        return (await batch).base_offset + position

    sends = [without_pump(send(*each)) for each in (("t", b"bad"), ("t", b"good"), ("t2", b"good"))]
    with contextlib.suppress(kind):
        rig.pump()
    if rig.core.abort:
        assert kind is not Stopped
        assert "interrupted" in rig.core.abort
        rig.cut(rig.core.abort)
        rig.connect()
    assert all(each.done for each in sends)
    assert isinstance(sends[0].error, kind)
    assert [each.result() for each in sends[1:]] == [0, 0]
    assert (broker.values(1), broker.values(2)) == ([b"v"], [b"v"])


def test_on_a_loop_its_use_of_the_connection_is_refused_too(broker, server):
    async def main():
        def choose(topic, key, partitions):
            return connection.send("t2", b"inner", partition=0) and 1

        connection = await client_asyncio.connect(server.url, partitioner=choose)
        async with connection:
            with pytest.raises(errors.Misuse, match="used the connection that asks it"):
                await connection.send("t2", b"outer")
            return (await connection.send("t2", b"next", partition=2)).offset

    assert asyncio.run(main()) == 0
    assert broker.values(2) == []

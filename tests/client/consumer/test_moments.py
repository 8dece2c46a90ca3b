"""Test that a consumer reads moment after moment: where it is whole, every transaction is there whole or not at all."""

import asyncio
import random
import threading
import time

import pytest
from msgspec.structs import replace

import txbroker
from journal.formats import frame
from tests.support.broker_process import BrokerProcess
from txbroker import errors
from txbroker.client import asyncio as asyncio_client
from txbroker.client.consumer.consumer import ConsumerCore
from txbroker.client.consumer.moments import Moments
from txbroker.client.consumer.options import consumer_options
from txbroker.client.core.positions import Position
from txbroker.wire import messages as commands
from txbroker.wire.messages import FetchedPartition

PARTITIONS = 4


def write(address, stop, seed):
    """Transactions with one message in each of some partitions, the last one in all."""
    rng, serial = random.Random(seed), 0
    with txbroker.connect(address) as broker:
        while not stop.is_set():
            serial += 1
            places = rng.sample(range(PARTITIONS), rng.randint(2, PARTITIONS))
            with broker.transaction() as tx:
                for place in places:
                    value = b"%d %d %d" % (seed, serial, len(places))
                    tx.send("t", value + b" " * rng.choice((0, 0, 20_000)), partition=place)
            time.sleep(rng.choice((0, 0, 0, 0.002, 0.02)))


class Seen:
    """How many messages of each transaction have been seen, and of how many."""

    def __init__(self):
        self.wholes = 0
        self._missing = {}

    def take(self, messages):
        for message in messages:
            seed, serial, count = map(int, message.value.split())
            left = self._missing.get((seed, serial), count) - 1
            if left:
                self._missing[seed, serial] = left
            else:
                del self._missing[seed, serial]

    def is_whole(self):
        assert not self._missing
        self.wholes += 1


@pytest.fixture
def busy(tmp_path):
    """A broker, and two who write until it is stopped. Its logs are in segments soon, each of a few messages."""
    stop = threading.Event()
    with BrokerProcess(tmp_path / "data", "low_water_bytes=1MiB") as broker:
        with txbroker.connect(broker.address) as connection:
            connection.create_topic("t", PARTITIONS, segment_bytes=1 << 20)
        writers = [threading.Thread(target=write, args=(broker.address, stop, seed)) for seed in (1, 2)]
        for writer in writers:
            writer.start()
        try:
            yield broker, stop
        finally:
            stop.set()
            for writer in writers:
                writer.join()


@pytest.mark.slow
@pytest.mark.parametrize("max_bytes", [20_000, 1 << 20])
def test_where_a_consumer_is_whole_every_transaction_is(busy, max_bytes):
    broker, stop = busy
    seen, end = Seen(), time.monotonic() + 6.0
    with (
        txbroker.connect(broker.address) as connection,
        connection.consume("t", max_bytes=max_bytes) as consumer,
    ):
        while time.monotonic() < end or not consumer.whole:
            if time.monotonic() > end:
                stop.set()
            seen.take(consumer.poll(0.2))
            if consumer.whole:
                seen.is_whole()
    assert seen.wholes > 5


@pytest.mark.slow
def test_without_following_a_consumer_reads_one_moment(busy):
    broker, _ = busy
    with txbroker.connect(broker.address) as connection:
        for _ in range(20):
            seen = Seen()
            with connection.consume("t", follow=False) as consumer:
                seen.take(consumer)
                assert consumer.whole
            seen.is_whole()


@pytest.mark.slow
def test_on_a_loop_too(busy):
    broker, _ = busy

    async def read():
        seen, end = Seen(), time.monotonic() + 3.0
        async with await asyncio_client.connect(broker.address) as connection:
            consumer = connection.consume("t")
            while time.monotonic() < end or not consumer.whole:
                seen.take(await consumer.poll(0.2))
                if consumer.whole:
                    seen.is_whole()
            consumer.close()
        return seen.wholes

    assert asyncio.run(read()) > 5


# -- the client alone ------------------------------------------------------------------------------------------


@pytest.fixture
def asked(broker):
    """Answers of one message of each partition, as if its segment ended there; what was asked for."""
    asked, hang = [], broker.on_fetch

    def on_fetch(session, request, data):
        asked.append((request.positions, request.max_bytes))
        parts, body = [], b""
        for number, offset, until in request.positions:
            end = broker.ends[number]
            error = (broker.damage, "gone") if broker.damaged == number else ("", "")
            end = 0 if error[0] == "UnknownPartition" else end
            runs = [
                run for base, run in broker.logs[number] if base == offset < (until or end) and not error[0]
            ]
            size = sum(map(len, runs))
            parts.append(FetchedPartition(number, size, offset + len(runs), 0, end, *error))
            body += b"".join(runs)
        if body or broker.damaged:
            return commands.Fetched(request.correlation, parts), body
        return hang(session, request, data)

    broker.damaged, broker.damage = 0, "CorruptSegment"
    broker.on_fetch = on_fetch
    return asked


def append(broker, number, *values):
    for value in values:
        broker.append(number, frame.encode(value, 1))


def consumer(rig, **choices):
    return ConsumerCore(rig.shared_fetch, consumer_options("t2", None, **choices), "me")


def handed_out(rig, core):
    """What comes, with + where it is whole; a failure by its name."""
    found = []
    for _ in range(20):
        try:
            delivery = core.look()
            if delivery is not None:
                found += [message.value.decode() for message in delivery.some()]
                found += ["+"] * core.whole
        except errors.TxBrokerError as error:
            found.append(type(error).__name__)
        rig.pump()
    return " ".join(found)


def test_the_rest_of_a_moment_is_read_before_what_came_later(rig, broker, asked):
    append(broker, 2, b"a", b"b", b"c")
    append(broker, 3, b"d")
    core = consumer(rig, prefetch=1)
    assert not core.whole
    assert core.look() is None
    rig.pump()
    append(broker, 3, b"e")
    assert handed_out(rig, core) == "d a b c + e +"
    assert [sorted(positions) for positions, _ in asked] == [
        [(2, 0, 0), (3, 0, 0)],
        [(2, 1, 3)],
        [(2, 2, 3)],
        [(2, 3, 0), (3, 1, 0)],
        [(2, 3, 0), (3, 2, 0)],
    ]


def test_a_long_backlog_keeps_what_is_new_waiting_for_so_many_bytes(rig, broker, asked):
    size = len(frame.encode(b"0", 1))
    append(broker, 2, *(b"%d" % number for number in range(6)))
    core = consumer(rig, prefetch=1, max_bytes=2 * size)
    assert core.look() is None
    rig.pump()
    append(broker, 3, b"new")
    assert handed_out(rig, core) == "0 1 new 2 3 4 5 +"
    assert [most for positions, most in asked if len(positions) == 1] == [size, size]


def test_what_cannot_be_read_does_not_keep_the_others_from_going_on(rig, broker, asked):
    append(broker, 2, b"a")
    append(broker, 3, b"d", b"e")
    broker.damaged = 2
    core = consumer(rig, prefetch=1)
    found = handed_out(rig, core)
    assert found.replace("CorruptSegment ", "").startswith("d e")
    append(broker, 3, b"f")
    found += handed_out(rig, core)
    assert "f" in found
    assert "+" not in found
    assert found.count("CorruptSegment") > 2
    broker.damaged = 0
    assert handed_out(rig, core).endswith("a +")


@pytest.mark.parametrize(("damage", "last"), [("CorruptSegment", "a +"), ("UnknownPartition", "a")])
def test_without_following_what_cannot_be_read_is_told_again_and_again(rig, broker, asked, damage, last):
    append(broker, 2, b"a")
    append(broker, 3, b"d")
    broker.damaged = 2
    broker.damage = damage
    core = consumer(rig, follow=False, prefetch=1)
    found = handed_out(rig, core)
    assert found.count(damage) > 2
    assert not core.finished
    broker.damaged = 0
    assert handed_out(rig, core).removeprefix(f"{damage} ") == last, "told once more of what was read before"
    assert core.finished


def test_without_following_the_moment_is_that_of_the_first_fetch(rig, broker, asked):
    """Who has just committed reads what that was: it may have become visible only since the topics were described."""
    append(broker, 2, b"a")
    on_describe = broker.on_describetopics

    def then_more(session, request, data):
        answer = on_describe(session, request, data)
        append(broker, 3, b"b")
        return answer

    broker.on_describetopics = then_more
    core = consumer(rig, follow=False, prefetch=1)
    assert handed_out(rig, core) in ("a b +", "b a +")
    append(broker, 3, b"c")
    assert core.finished


def test_it_is_not_whole_without_a_position_that_an_undecided_transaction_holds(rig, broker, asked):
    scripted = broker.on_fetch

    def on_fetch(session, request, data):
        found = scripted(session, request, data)
        if found is None:
            return None
        parts = [
            replace(part, waiting=b"\x02\x01") if part.partition == 2 else part
            for part in found[0].partitions
        ]
        return commands.Fetched(request.correlation, parts), found[1]

    broker.on_fetch = on_fetch
    append(broker, 2, b"a")
    append(broker, 3, b"d", b"e")
    core = ConsumerCore(rig.shared_fetch, consumer_options("t2", "g", prefetch=1), "me")
    assert handed_out(rig, core) == "d e"


def test_partitions_take_turns_at_being_first_also_while_another_is_held():
    """To look whether all are held is no turn: with an even number of others half of them would never be first."""
    moments = Moments(follow=True, max_bytes=1)
    positions = [Position("t", number, number, 0) for number in range(5)]
    positions[4].left.block(0)
    first = set()
    for _ in range(4):
        first.add(moments.wanted(positions, 1000).positions[0][0])
    assert first == {0, 1, 2, 3}


def test_more_positions_than_a_fetch_may_have_take_turns():
    moments, positions = Moments(True, 1000), [Position("t", number, number, 0) for number in range(25)]
    asked = set()
    for _ in range(3):
        wanted = moments.wanted(positions, 10)
        assert wanted.is_part
        assert len(wanted.positions) == 10
        asked.update(number for number, _, _ in wanted.positions)
    assert asked == set(range(25))
    assert not moments.wanted(positions, 25).is_part

"""Test reads between the senders' times: exactly the messages that a look at every message would give."""

import random

import pytest

import txbroker
from journal.errors import InvalidSetting, UnknownPartition
from spark.source.by_time import first_since
from spark.source.logs import Losses
from spark.source.options import read_options
from spark.source.partition_plan import ending, starting, subscribed
from spark.source.reader import open_logs
from tests.spark.directories import START, fill, flip, segments
from tests.support.broker_process import BrokerProcess

pytestmark = pytest.mark.slow
SECOND = 1_000_000


@pytest.fixture(scope="module")
def sent(tmp_path_factory):
    """A broker, the times of its messages by partition, and its data.

    Some senders' times are behind the broker's, up to some seconds, and a few are in the past. None is ahead.
    """
    chance = random.Random(16)
    with BrokerProcess(tmp_path_factory.mktemp("by-time") / "data", "checkpoint_interval=100ms") as broker:
        with txbroker.connect(broker.address) as connection:
            connection.create_topic("t", 2, segment_bytes=1 << 17)
            for number in range(6000):
                late = chance.choice([0, 0, 0, chance.randrange(20_000), chance.randrange(10**9)])
                timestamp = connection.core.wall() - late
                connection.send_async(
                    "t", b"%06d" % number + b"." * 60, partition=number % 2, timestamp=timestamp
                )
                if number % 500 == 0:
                    connection.flush()
            connection.flush()
            times = {
                index: [message.timestamp for message in all_of(connection, index)] for index in range(2)
            }
        broker.stop()
        broker.start()
        yield broker, times


def all_of(connection, index):
    found = []
    while len(found) < 3000:
        found += connection.read("t", index, len(found), 1 << 20)
    return found


def places(sent):
    broker, times = sent
    yield {"broker": broker.address}, times
    yield {"path": str(broker.data_dir)}, times


def by_time(place, option, times, **more):
    options = read_options({"subscribe": "t", **place, option: str(times).replace("'", '"'), **more})
    logs = open_logs(options)
    try:
        found = subscribed(logs, options)
        named = (
            starting(logs, options, found, "earliest")
            if option.startswith("s")
            else ending(logs, options, found)
        )
        return [named[log.number] for log in found]
    finally:
        logs.close()


def first(times, wanted):
    return next((offset for offset, time in enumerate(times) if time >= wanted), len(times))


def milliseconds(times):
    """Such as stand in the middle of what was sent, and around it."""
    wanted = sorted(times)
    ends = [wanted[0] // 1000 - 5, wanted[-1] // 1000 + 5000]
    return ends + [wanted[len(wanted) * part // 12] // 1000 + 1 for part in range(1, 12)]


def test_the_first_message_of_a_time_is_found_exactly(sent):
    for place, times in places(sent):
        for wanted in milliseconds(times[0]):
            expected = [first(times[index], wanted * 1000) for index in range(2)]
            asked = {"t": {"0": wanted, "1": wanted}}
            assert by_time(place, "endingOffsetsByTimestamp", asked) == expected
            late = {"startingOffsetsByTimestampStrategy": "latest"}
            assert by_time(place, "startingOffsetsByTimestamp", asked, **late) == expected


def test_each_partition_has_its_own_time(sent):
    for place, times in places(sent):
        early, late = milliseconds(times[0])[3], milliseconds(times[1])[9]
        found = by_time(place, "startingOffsetsByTimestamp", {"t": {"0": early, "1": late}})
        assert found == [first(times[0], early * 1000), first(times[1], late * 1000)]


def test_a_start_that_no_message_has_is_refused_and_told_with_what_would_do(sent):
    for place, times in places(sent):
        late = max(times[0]) // 1000 + 5000
        with pytest.raises(
            InvalidSetting, match=r"no message of t-1 has .*Strategy=latest begins at the end there"
        ):
            by_time(place, "startingOffsetsByTimestamp", {"t": {"0": 0, "1": late}})


def test_every_partition_must_have_a_time(sent):
    for place, _ in places(sent):
        with pytest.raises(
            UnknownPartition, match=r"startingOffsetsByTimestamp must name every .* it lacks t-1"
        ):
            by_time(place, "startingOffsetsByTimestamp", {"t": {"0": 0}})


def test_a_sender_whose_clock_is_ahead_is_found_with_the_difference_that_is_allowed(tmp_path):
    with BrokerProcess(tmp_path / "data") as broker, txbroker.connect(broker.address) as connection:
        connection.create_topic("t", 1)
        for _ in range(2):  # an hour ahead, far below the entry of the index that is looked at
            now = connection.core.wall()
            connection.send("t", b"ahead", timestamp=now + 3600 * SECOND)
            for _ in range(400):
                connection.send_async("t", b"." * 300)
            connection.flush()
        late = (connection.core.wall() + 600 * SECOND) // 1000
        place, asked = {"broker": broker.address}, {"t": {"0": late}}
        assert by_time(place, "endingOffsetsByTimestamp", asked) == [802]
        assert by_time(place, "endingOffsetsByTimestamp", asked, clockSkew="2h") == [0]


def test_it_is_found_wherever_the_parts_begin_in_which_it_is_looked_for_and_not_in_what_is_damaged(tmp_path):
    fill(tmp_path / "d", 300, wrapped=False, value=lambda number: b"%08d" % number + b"." * 2000)
    logs = open_logs(read_options({"path": str(tmp_path / "d"), "subscribe": "t"}))
    [log] = logs.logs(lambda topic: topic == "t")
    for number in range(300):
        assert first_since(logs, log, START + number * SECOND, 0, Losses(True)) == number
    assert first_since(logs, log, START + 300 * SECOND, 0, Losses(True)) is None
    flip(segments(tmp_path / "d")[-1], segments(tmp_path / "d")[-1].stat().st_size - 20)
    assert first_since(logs, log, START + 299 * SECOND, 0, Losses(False)) is None
    logs.close()

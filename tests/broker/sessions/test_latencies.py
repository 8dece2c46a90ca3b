"""Test what is measured for those who watch: some requests of each kind, and the age of what is read."""

import pytest

from tests.support.broker_room import Room, frames
from txbroker.broker.sessions.histogram import LATENCIES, Histogram
from txbroker.broker.sessions.latencies import SKIPPED
from txbroker.wire import messages


@pytest.fixture
def room():
    return Room()


def counts(room):
    return {name: sum(found.counts) for name, found in room.broker.latencies.requests.items()}


def publish(room):
    """Force everything, and have the next requests measured."""
    room.engine.sync()
    room.broker.latencies.go_on()


def test_the_next_request_of_a_kind_is_measured_from_when_it_was_accepted(room):
    peer, [partition] = room.peer(), room.topic()
    publish(room)
    for _ in range(5):
        peer.tell(messages.Send, partition, data=frames(b"x"))
    peer.tell(
        messages.Commit, peer.session.number, 1, runs=[(partition, len(frames(b"x")))], data=frames(b"x")
    )
    assert counts(room) == {"send": 0, "prepare": 0, "commit": 0}
    room.clock.advance(30_000)
    room.engine.sync()
    assert counts(room) == {"send": 1, "prepare": 0, "commit": 1}
    found = room.broker.latencies.requests["send"]
    assert found.total == pytest.approx(0.03)
    assert found.counts[LATENCIES.index(0.05)] == 1
    peer.tell(messages.Send, partition, data=frames(b"x"))
    room.engine.sync()
    assert counts(room)["send"] == 1, "the time has not come yet"
    publish(room)
    peer.tell(messages.Send, partition, data=frames(b"x"))
    room.engine.sync()
    assert counts(room)["send"] == 2


def test_a_refusal_on_an_idle_broker_is_not_taken_for_a_fast_send(room):
    peer, [partition] = room.peer(), room.topic()
    publish(room)
    assert isinstance(peer.ask(messages.Send, 77, data=frames(b"x")), messages.Refused)
    assert counts(room)["send"] == 0
    peer.ask(messages.Send, partition, data=frames(b"x"))
    assert counts(room)["send"] == 1


def test_the_age_of_what_is_read_is_that_of_its_first_message(room):
    peer, [partition] = room.peer(), room.topic()
    peer.ask(messages.Send, partition, data=frames(b"x"))
    room.clock.advance(2_000_000)
    peer.ask(messages.Send, partition, data=frames(b"y"))
    for _ in range(SKIPPED + 1):
        peer.ask(messages.Fetch, [(partition, 0, 0)])
    ages = room.broker.latencies.ages
    assert sum(ages.counts) == 1
    assert ages.total == pytest.approx(2.0)
    for _ in range(SKIPPED + 1):
        peer.ask(messages.Fetch, [(partition, 2, 0)])
    assert sum(ages.counts) == 1, "nothing was read"


@pytest.mark.parametrize(
    ("value", "place"), [(-1.0, 0), (0.0, 0), (0.0001, 0), (0.00011, 1), (10.0, 14), (11.0, 15)]
)
def test_bounds_belong_to_what_is_below_them(value, place):
    histogram = Histogram(LATENCIES)
    histogram.observe(value)
    assert histogram.counts.index(1) == place
    assert sum(histogram.counts) == 1
    assert histogram.total == max(value, 0.0)

"""Test that everything that waits for a force is on its session's account, and that a session over its limit is not
read.
"""

import pytest

from tests.broker.door import Door
from tests.support.broker_room import frames
from txbroker.broker.sessions.accounts import SMALL, UNCOUNTED
from txbroker.broker.sessions.scheduler import REQUEST
from txbroker.wire import messages
from txbroker.wire.codec import encode

BUDGET = 100_000


def unforced():
    """A door whose broker has a message that is not forced yet."""
    door = Door()
    door.room.topic("wide", 500)
    door.carry()
    intake = door.connections.intake
    intake.pending = door.protocol._pending = BUDGET
    door.protocol.dataReceived(encode(messages.Send(7, door.partitions[0]), frames(b"x")))
    return door


def held(door):
    return door.room.broker.accounts.held


def waiting(door):
    """Bytes of the answers that wait."""
    return sum(len(answer) for _, answer in door.room.engine._newest.waiters if isinstance(answer, bytes))


@pytest.mark.parametrize(
    "request_",
    [
        messages.AskStatus(9),
        messages.AskOutcome(9, 1, 1),
        messages.DescribeTopics(9, ["orders"]),
        messages.DescribeTopics(9, ["wide"]),
        messages.OpenProducer(9, "loader"),
        messages.CommitOffsets(9, "g", []),
        messages.Forget(9, 1, 1),
    ],
    ids=lambda request: type(request).__name__,
)
def test_whoever_asks_on_while_a_force_takes_long_is_not_read_on(request_):
    door = unforced()
    paused = []
    door.protocol.transport.pauseProducing = lambda: paused.append(held(door))
    request = encode(request_)
    asked = 0
    while not paused and asked < 2000:
        asked += 1
        door.protocol.dataReceived(request)
    assert BUDGET // 2 < paused[0] < BUDGET
    assert waiting(door) <= held(door) + UNCOUNTED
    assert asked <= (BUDGET // 2 + UNCOUNTED) // REQUEST + 1
    door.carry()
    assert (held(door), door.protocol.session.held) == (0, 0)


def test_a_request_counts_with_its_bytes_and_for_its_answer_until_that_is_out():
    door = unforced()
    before = held(door) + door.protocol.session.uncounted
    request = encode(messages.Send(8, door.partitions[0]), frames(bytes(1000)))
    for sent in range(1, 20):
        door.protocol.dataReceived(request)
        uncounted = door.protocol.session.uncounted
        assert uncounted < UNCOUNTED
        assert held(door) + uncounted - before == sent * (len(request) + REQUEST)
    door.carry()
    assert held(door) == 0


def test_what_need_not_wait_is_not_counted():
    door = unforced()
    door.carry()
    door.transport.clear()
    [described] = door.read(encode(messages.DescribeTopics(9, ["wide"])))
    assert len(described.topics[0].partitions) == 500
    assert held(door) == 0


def test_what_a_fetch_tells_of_an_unforced_decision_is_counted_too():
    door = unforced()
    [first, second] = door.partitions
    door.read(encode(messages.Send(7, first), frames(bytes(30 * SMALL))))
    door.protocol.dataReceived(encode(messages.Send(8, second), frames(b"x")))
    door.protocol.dataReceived(encode(messages.Fetch(9, [(first, 0, 0), (999, 0, 0)])))
    assert held(door) > 30 * SMALL
    door.carry()
    assert held(door) == 0

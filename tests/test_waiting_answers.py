"""Large answers that wait for a force count as what waits for the disk, and who asks for them is not read on."""

from tests.broker_room import frames
from tests.whole_scene import Door
from txbroker import commands
from txbroker.codec import encode
from txbroker.waiting_answers import LARGE


def test_whoever_asks_for_large_answers_while_a_force_takes_long_is_not_read_on():
    door = Door()
    room = door.room
    room.topic("wide", 500)
    limit = room.broker.settings.pending_bytes
    paused = []
    door.protocol.transport.pauseProducing = lambda: paused.append(room.broker.answers.bytes)
    door.protocol.factory.intake._pending = 100 * LARGE
    door.protocol.dataReceived(encode(commands.Send(7, door.partitions[0]), frames(b"x")))
    asked = 0
    while not paused and asked < 1000:
        asked += 1
        door.protocol.dataReceived(encode(commands.DescribeTopics(9, ["wide"])))
    assert LARGE < 100 * LARGE < paused[0] < 100 * LARGE + 100_000 < limit
    assert room.broker.pending_bytes >= room.broker.answers.bytes
    door.carry()
    assert room.broker.answers.bytes == 0
    assert room.broker.pending_bytes == 0


def test_an_answer_that_need_not_wait_is_not_counted_and_small_ones_never_are():
    door = Door()
    door.room.topic("wide", 500)
    [described] = door.read(encode(commands.DescribeTopics(9, ["wide"])))
    assert len(described.topics[0].partitions) == 500
    assert door.room.broker.answers.bytes == 0
    door.protocol.dataReceived(encode(commands.Send(7, door.partitions[0]), frames(b"x")))
    door.protocol.dataReceived(encode(commands.DescribeTopics(9, ["orders"])))
    assert door.room.broker.answers.bytes == 0


def test_what_a_fetch_tells_of_an_unforced_decision_is_counted_too():
    door = Door()
    [first, second] = door.partitions
    door.read(encode(commands.Send(7, first), frames(bytes(3 * LARGE))))
    door.protocol.dataReceived(encode(commands.Send(8, second), frames(b"x")))
    door.protocol.dataReceived(encode(commands.Fetch(9, [(first, 0, 0), (999, 0, 0)])))
    assert door.room.broker.answers.bytes > 3 * LARGE
    door.carry()
    assert door.room.broker.answers.bytes == 0

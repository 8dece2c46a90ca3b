"""Test queues with priorities, and gets, while others are served, messages read, or queues deleted: faults that a
reader of the code has found.
"""

import pytest

from journal.records.queue_entries import QUEUE_GROUP
from journal.testing import MemoryFile
from tests.broker.queues.scene import (
    SECOND,
    SELF,
    ReadingRoom,
    Scene,
    expiring,
    framed,
    pass_time,
    settled,
    values_of,
)
from tests.broker.queues.test_priorities import Levels, with_priorities
from tests.support.broker_room import Room
from tests.support.counted_calls import calls
from txbroker.broker.queues.removals import Removals
from txbroker.broker.queues.takes import SERVED_AT_ONCE
from txbroker.queues.expiry import EXPIRATION
from txbroker.wire import messages
from txbroker.wire.queues import PRIORITY


def short(value, priority, after=SECOND):
    return framed("q", value, headers={PRIORITY: b"%d" % priority, EXPIRATION: b"%d" % after})


def told(peer, correlation):
    return [each for each in peer.answers if each.correlation == correlation]


@pytest.fixture
def looks(monkeypatch):
    """The partitions that are looked at for what ends by itself."""
    found, look = [], Removals._look

    def counted(self, state):
        found.append(state.store.number)
        assert len(found) < 1000, "it looks without end"
        return look(self, state)

    monkeypatch.setattr(Removals, "_look", counted)
    return found


@pytest.fixture
def slow_disk(monkeypatch):
    """A room in which reads of the disk wait, and in which nothing ends by itself."""
    monkeypatch.setattr(MemoryFile, "read_now", lambda *_: None)
    room = ReadingRoom()
    room.broker.removal_passes.stop()
    return room


# -- work -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("most", [0, 1, 9])
def test_too_many_unacknowledged_messages_and_one_who_waits_are_not_looked_at_for_ever(looks, most):
    levels = Levels(most=most, max_length=1)
    scene = levels.scene
    for number in range(3):
        levels.put((b"%d" % number, 0))
        scene.take(levels.queue)
    scene.other.tell(messages.TakeMessages, levels.queue, 1, max_wait=30 * SECOND)
    scene.acknowledge(levels.queue, 0)
    pass_time(scene, 1000)
    assert len(looks) < 10


@pytest.mark.parametrize("most", [0, 9])
def test_a_queue_in_which_nothing_happens_is_not_looked_at(looks, most):
    levels = Levels(most=most, message_ttl=3600 * SECOND)
    scene = levels.scene
    asked = scene.other.tell(messages.TakeMessages, levels.queue, 1, max_wait=60 * SECOND)
    levels.put((b"a", 0))
    scene.acknowledge(scene.other.answer(asked).partition, 0, peer=scene.other)
    scene.other.tell(messages.TakeMessages, levels.queue, 1, max_wait=60 * SECOND)
    pass_time(scene, SECOND)
    looks.clear()
    for _ in range(100):
        pass_time(scene, SECOND // 10)
    assert len(looks) < 5


def cost(what, most, **settings):
    """How many calls something takes that concerns all priorities."""
    levels = Levels(most=most, **settings)
    scene, queue, peer = levels.scene, levels.queue, levels.scene.room.peer("10.0.0.3:7")
    everything = with_priorities("q", *[(b"x", number) for number in range(most + 1)])
    if what != "publish":
        scene.peer.ask(messages.Send, SELF, data=everything)
    taken = range(most) if what in ("acknowledge", "leave") else ()
    had = [answer.partition for _ in taken if (answer := scene.take(queue, 1, peer)).runs]
    while what != "purge" and scene.take(queue, 1, scene.other).runs:
        pass
    if what != "purge":
        scene.other.tell(messages.TakeMessages, queue, 1, max_wait=30 * SECOND)

    def leave():
        peer.leave()
        for _ in range(20):
            pass_time(scene, 0)

    work = {
        "acknowledge": lambda: peer.ask(
            messages.CommitOffsets, QUEUE_GROUP, [], settled=[settled(each, 0) for each in had]
        ),
        "purge": lambda: peer.ask(messages.PurgeQueue, "q"),
        "publish": lambda: peer.ask(messages.Send, SELF, data=everything),
        "leave": leave,
    }
    return len(calls(work[what]))


@pytest.mark.parametrize(
    "settings", [{}, {"max_length": 100_000}, {"max_length": 1}, {"message_ttl": SECOND}]
)
@pytest.mark.parametrize("what", ["acknowledge", "purge", "publish"])
def test_what_concerns_all_priorities_costs_so_much_for_each(settings, what):
    few, many = cost(what, 15, **settings), cost(what, 127, **settings)
    assert many < 16 * few, "eight times as many: not the square"


@pytest.mark.parametrize("settings", [{}, {"message_ttl": SECOND}])
def test_the_end_of_a_session_costs_so_much_for_each_priority(settings):
    few, many = cost("leave", 15, **settings), cost("leave", 127, **settings)
    assert many < 16 * few


# -- gets in their turn ---------------------------------------------------------------------------


@pytest.mark.parametrize("count", [1, SERVED_AT_ONCE, SERVED_AT_ONCE + 1, 20, 2 * SERVED_AT_ONCE + 1])
def test_each_of_many_gets_that_wait_for_a_force_gets_what_there_is(count):
    room = Room()
    scene = Scene(room)
    queue = scene.queue()
    peers = [room.peer(f"10.0.0.9:{number}") for number in range(count + 3)]
    scene.peer.tell(messages.Send, SELF, data=framed("q", *[b"%d" % number for number in range(count)]))
    asked = [peer.tell(messages.TakeMessages, queue, 1) for peer in peers]
    room.engine.sync()
    pass_time(scene, 1000)
    got = [told(*each)[0].runs for each in zip(peers, asked, strict=True)]
    assert got == [[(number, 1)] for number in range(count)] + [[]] * 3
    assert not scene.room.broker.queues.takes._last_looks


@pytest.mark.parametrize("count", [16, 17, 30, 32])
def test_each_of_many_gets_of_one_session_whose_messages_are_read_gets_one(slow_disk, count):
    scene = Scene(slow_disk)
    queue = scene.queue()
    scene.publish("q", *[b"%d" % number for number in range(30)])
    slow_disk.flush()
    asked = [scene.peer.tell(messages.TakeMessages, queue, 1) for _ in range(count)]
    for _ in range(5):
        slow_disk.read()
        pass_time(scene, 10_000)
    got = [told(scene.peer, each)[0].runs for each in asked]
    assert [bool(each) for each in got] == [number < 30 for number in range(count)]


def test_a_get_of_a_consumer_that_stands_by_is_told_that_there_is_nothing():
    scene = Scene()
    queue = scene.queue(single_active=True)
    for peer in (scene.peer, scene.other):
        peer.ask(messages.Consume, queue, 1)
    scene.peer.tell(messages.Send, SELF, data=framed("q", b"a"))
    asked = scene.other.tell(messages.TakeMessages, queue, 1, consumer=1)
    scene.room.engine.sync()
    assert scene.other.answer(asked).runs == []
    assert scene.taken(queue, consumer=1) == [b"a"]


# -- while messages are read ----------------------------------------------------------------------


@pytest.mark.parametrize("wait", [0, 30 * SECOND])
def test_nothing_is_given_of_a_queue_that_was_deleted_while_expired_messages_were_read(slow_disk, wait):
    levels = Levels(room=slow_disk)
    scene = levels.scene
    scene.peer.ask(messages.Send, SELF, data=short(b"old", 5) + with_priorities("q", (b"low", 1)))
    slow_disk.flush()
    slow_disk.clock.advance(2 * SECOND)
    asked = scene.peer.tell(messages.TakeMessages, levels.queue, 10, max_wait=wait)
    assert slow_disk.reads
    assert scene.other.ask(messages.DeleteQueue, "q", levels.queue).messages == 2
    for _ in range(8):
        slow_disk.read()
        pass_time(scene, 1000)
    assert told(scene.peer, asked)[0].runs == []


def test_nothing_is_given_of_a_plain_queue_either(slow_disk):
    scene = Scene(slow_disk)
    queue = scene.queue()
    scene.peer.ask(messages.Send, SELF, data=expiring("q", SECOND, b"old"))
    slow_disk.flush()
    slow_disk.clock.advance(2 * SECOND)
    asked = scene.peer.tell(messages.TakeMessages, queue, 10)
    assert slow_disk.reads
    scene.publish("q", b"new")
    scene.other.ask(messages.DeleteQueue, "q", queue)
    for _ in range(8):
        slow_disk.read()
        pass_time(scene, 1000)
    assert told(scene.peer, asked)[0].runs == []


@pytest.mark.parametrize("wait", [0, 30 * SECOND])
@pytest.mark.parametrize("count", [1, 16, 40])
def test_what_lies_below_many_priorities_that_have_expired_is_given(wait, count):
    levels = Levels(most=255)
    scene = levels.scene
    data = b"".join(short(b"old", 255 - number) for number in range(count))
    scene.peer.ask(messages.Send, SELF, data=data + with_priorities("q", (b"low", 1)))
    scene.room.clock.advance(2 * SECOND)
    asked = scene.peer.tell(messages.TakeMessages, levels.queue, 10, max_wait=wait)
    scene.room.engine.sync()
    [answer] = told(scene.peer, asked)
    assert (answer.partition, values_of(answer, scene.peer)) == (levels.queue + 1, [b"low"])


def test_who_finds_nothing_is_told_so_of_the_queue():
    levels = Levels()
    levels.scene.peer.ask(messages.Send, SELF, data=short(b"old", 5))
    levels.scene.room.clock.advance(2 * SECOND)
    assert levels.scene.take(levels.queue).partition == levels.queue


@pytest.mark.parametrize("how", ["cancel", "stop"])
def test_who_takes_no_more_gets_nothing_of_a_lower_priority(slow_disk, how):
    levels = Levels(room=slow_disk, single_active=True)
    scene = levels.scene
    for peer in (scene.peer, scene.other):
        peer.ask(messages.Consume, levels.queue, 1)
    scene.peer.ask(messages.Send, SELF, data=short(b"old", 5) + with_priorities("q", (b"low", 1)))
    slow_disk.flush()
    slow_disk.clock.advance(2 * SECOND)
    asked = scene.peer.tell(messages.TakeMessages, levels.queue, 10, max_wait=30 * SECOND, consumer=1)
    assert slow_disk.reads
    if how == "cancel":
        scene.peer.tell(messages.Cancel, asked)
    else:
        scene.peer.ask(messages.StopConsuming, 1)
    for _ in range(8):
        slow_disk.read()
        slow_disk.engine.sync()
    assert told(scene.peer, asked)[0].runs == []


def test_a_get_of_a_session_that_does_not_read_is_answered_and_one_that_waits_is_not():
    scene = Scene()
    queue = scene.queue()
    scene.other.session.congested = True
    scene.peer.tell(messages.Send, SELF, data=framed("q", b"a", b"b"))
    waits = scene.other.tell(messages.TakeMessages, queue, 1, max_wait=SECOND)
    asked = scene.other.tell(messages.TakeMessages, queue, 1)
    scene.room.engine.sync()
    pass_time(scene, 1000)
    assert (told(scene.other, waits), values_of(scene.other.answer(asked), scene.other)) == ([], [b"a"])


@pytest.mark.parametrize("how", ["served", "leave", "cancel", "delete"])
def test_nothing_is_kept_of_gets_that_have_left_a_queue_in_which_there_always_is_something(how):
    room = Room()
    scene = Scene(room)
    queue = scene.queue()
    count = SERVED_AT_ONCE + 3
    peers = [room.peer(f"10.0.9.{number}:1") for number in range(count)]
    scene.peer.tell(messages.Send, SELF, data=framed("q", *[b"x"] * (10 * count)))
    asked = [peer.tell(messages.TakeMessages, queue, 1) for peer in peers]
    room.engine.sync()
    takes = room.broker.queues.takes
    assert len(takes._last_looks[queue]) == 3
    if how == "delete":
        scene.peer.ask(messages.DeleteQueue, "q", queue)
    for peer, number in zip(peers[-3:], asked[-3:], strict=True):
        if how == "leave":
            peer.leave()
        elif how == "cancel":
            peer.tell(messages.Cancel, number)
    pass_time(scene, 1000)
    assert not takes._last_looks
    assert not takes._lines

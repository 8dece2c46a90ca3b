"""Test queues whose messages have priorities: each has a log of its own, under one name (decision 0060)."""

import pytest
from crc32c import crc32c

from journal.check.verification import Level, verify
from journal.formats.offset_set_bytes import encode_offsets
from journal.records.queue_entries import Overflow, QueueSettings
from journal.transaction_states import Totals
from journal.xid import Xid
from tests.broker.queues.scene import (
    SECOND,
    SELF,
    ReadingRoom,
    Scene,
    acknowledged,
    framed,
    offsets,
    pass_time,
    values_of,
)
from tests.support.broker_room import Room, refused
from txbroker.queues.expiry import EXPIRATION
from txbroker.wire import messages
from txbroker.wire.queues import PRIORITY

XID = Xid(1, b"order 7", b"")


def with_priorities(key, *each):
    """Frames of messages: (value, priority)."""
    return b"".join(framed(key, value, headers={PRIORITY: b"%d" % priority}) for value, priority in each)


class Levels:
    """A scene with a queue of priorities."""

    def __init__(self, most=5, room=None, **settings):
        self.scene = Scene(room)
        self.most = most
        self.queue = self.scene.queue(max_priority=most, **settings)

    def put(self, *each, key="q"):
        answer = self.scene.peer.ask(messages.Send, SELF, data=with_priorities(key, *each))
        assert isinstance(answer, messages.Sent), answer

    def got(self, most=100, peer=None):
        """All that can be got, take by take: (priority, values)."""
        found, peer = [], peer or self.scene.peer
        while (answer := self.scene.take(self.queue, most, peer)).runs:
            found.append((answer.partition - self.queue, values_of(answer, peer)))
        return found


@pytest.fixture
def levels():
    return Levels()


def test_those_of_a_higher_priority_are_got_first_and_of_one_in_their_order(levels):
    levels.put((b"a", 0), (b"b", 5), (b"c", 3), (b"d", 0), (b"e", 5))
    assert levels.got() == [(5, [b"b", b"e"]), (3, [b"c"]), (0, [b"a", b"d"])]


def test_a_message_without_a_priority_has_the_lowest_and_none_is_above_the_queue(levels):
    levels.scene.publish("q", b"plain")
    levels.put((b"high", 255), (b"top", 5))
    assert levels.got() == [(5, [b"high", b"top"]), (0, [b"plain"])]


def test_a_queue_that_has_no_priorities_gives_all_in_their_order():
    scene = Scene()
    queue = scene.queue()
    scene.peer.ask(messages.Send, SELF, data=with_priorities("q", (b"a", 1), (b"b", 9), (b"c", 0)))
    assert scene.taken(queue) == [b"a", b"b", b"c"]


@pytest.mark.parametrize("said", [b"", b"256", b"-1", b"1.0", b"0255", b"x"])
def test_what_is_no_priority_is_refused_and_nothing_is_sent(levels, said):
    frames = framed("q", b"a") + framed("q", b"b", headers={PRIORITY: said})
    told = refused(levels.scene.peer.ask(messages.Send, SELF, data=frames), "InvalidFrame")
    assert "from 0 to 255" in told
    assert levels.scene.counts() == (0, 0, 0, 0)


def test_what_is_returned_comes_before_the_others_of_its_priority(levels):
    levels.put((b"a", 3), (b"b", 3), (b"c", 5))
    levels.got()
    levels.scene.give_up(levels.queue + 3, 1)
    levels.put((b"d", 3), (b"e", 4))
    assert levels.got() == [(4, [b"e"]), (3, [b"b", b"d"])]


def test_who_waits_gets_the_highest_when_it_comes(levels):
    scene = levels.scene
    asked = scene.other.tell(messages.TakeMessages, levels.queue, 1, max_wait=SECOND)
    levels.put((b"low", 0), (b"high", 4))
    answer = scene.other.answer(asked)
    assert (answer.partition, values_of(answer, scene.other)) == (levels.queue + 4, [b"high"])
    assert levels.got() == [(0, [b"low"])]


def test_a_queue_is_named_by_its_first_partition(levels):
    peer = levels.scene.peer
    told = refused(peer.ask(messages.TakeMessages, levels.queue + 1, 1), "UnknownQueue")
    assert f"whose number is {levels.queue}" in told
    refused(peer.ask(messages.Consume, levels.queue + 1, 1), "UnknownQueue")
    assert isinstance(peer.ask(messages.Consume, levels.queue, 1), messages.Done)
    refused(peer.ask(messages.DeleteQueue, "q", levels.queue + 1), "UnknownQueue")


def test_all_that_is_told_of_a_queue_is_of_all_its_priorities(levels):
    scene = levels.scene
    levels.put((b"a", 0), (b"b", 5), (b"c", 5), (b"d", 2))
    scene.take(levels.queue, 1)
    assert scene.counts() == (4, 3, 1, 0)
    assert scene.info().bytes == sum(len(with_priorities("q", (b"x", n))) for n in (0, 5, 5, 2))
    assert scene.peer.ask(messages.DeclareQueue, "q", passive=True).ready == 3
    told = refused(scene.peer.ask(messages.DeleteQueue, "q", levels.queue, if_empty=True), "QueueInUse")
    assert "4 messages" in told
    assert scene.peer.ask(messages.DeleteQueue, "q", levels.queue).messages == 4
    assert scene.queue() > levels.queue + levels.most, "their numbers are not given again"


def test_a_purge_finds_all_priorities(levels):
    levels.put((b"a", 0), (b"b", 5), (b"c", 2))
    levels.scene.take(levels.queue, 1)
    assert levels.scene.peer.ask(messages.PurgeQueue, "q").messages == 2
    assert levels.scene.counts() == (1, 0, 1, 0)


def test_another_number_of_priorities_is_another_queue(levels):
    told = refused(levels.scene.peer.ask(messages.DeclareQueue, "q"), "DeclaredOtherwise")
    assert "max_priority 5, not 0" in told


def test_a_start_keeps_them(levels):
    levels.put((b"a", 1), (b"b", 4), (b"c", 1))
    assert levels.got(most=1)[0] == (4, [b"b"])
    levels.scene.acknowledge(levels.queue + 4, 0)
    levels.put((b"d", 4))
    levels.scene.restart()
    again = levels.scene.take(levels.queue)
    assert (again.partition, again.redelivered) == (levels.queue + 4, [(1, 1)])
    assert levels.got() == [(1, [b"a", b"c"])]


def test_a_checkpoint_keeps_them(levels):
    levels.put((b"a", 1), (b"b", 4))
    levels.scene.room.engine.housekeeping.checkpoint_inline()
    levels.scene.restart()
    assert levels.got() == [(4, [b"b"]), (1, [b"a"])]
    assert levels.scene.info().settings.max_priority == 5
    levels.scene.acknowledge(levels.queue + 4, 0)
    found = verify(levels.scene.room.filesystem.kill_clone(), Level.DEEP)
    assert [str(each) for each in found if not each.harmless] == []


def test_a_transaction_sends_and_acknowledges_them(levels):
    scene = levels.scene
    levels.put((b"a", 2), (b"b", 5))
    levels.got()
    data = with_priorities("q", (b"c", 1), (b"d", 5))
    scene.peer.tell(messages.Add, 1, SELF, data=data)
    both = acknowledged(levels.queue + 2, 0) + acknowledged(levels.queue + 5, 0)
    settled = [each for positions in both for each in positions.settled]
    positions = [type(both[0])(both[0].group, b"", [], settled)]
    totals = Totals(2, 1, crc32c(data))
    prepared = scene.peer.ask(messages.Prepare, 1, XID, totals, positions=positions)
    assert isinstance(prepared, messages.Done), prepared
    assert refused(scene.peer.ask(messages.DeleteQueue, "q", levels.queue), "QueueInUse")
    scene.restart()
    assert scene.counts() == (2, 0, 0, 2)
    scene.peer.ask(messages.Commit, xid=XID)
    assert levels.got() == [(5, [b"d"]), (1, [b"c"])]


def test_the_lowest_go_first_where_there_are_too_many():
    levels = Levels(max_length=3)
    levels.put((b"a", 2), (b"b", 5), (b"c", 0), (b"d", 0), (b"e", 2), (b"f", 5))
    pass_time(levels.scene, 1)
    assert levels.got() == [(5, [b"b", b"f"]), (2, [b"e"])]


def test_one_that_comes_later_is_too_much_beside_one_of_another_priority():
    levels = Levels(2, max_length=1)
    levels.put((b"low", 0))
    levels.got()
    levels.scene.give_up(levels.queue, 0, after=SECOND)
    levels.put((b"high", 2))
    pass_time(levels.scene, SECOND // 2)
    assert levels.scene.info().messages == 2
    pass_time(levels.scene, SECOND)
    assert levels.got() == [(2, [b"high"])]
    assert levels.scene.info().messages == 1


def test_who_sends_too_many_is_refused_over_all_priorities():
    levels = Levels(max_length=2, overflow=Overflow.REJECT_PUBLISH)
    levels.put((b"a", 0), (b"b", 5))
    told = levels.scene.peer.ask(messages.Send, SELF, data=with_priorities("q", (b"c", 3)))
    assert refused(told, "QueueFull")
    levels.scene.take(levels.queue, 1)
    levels.put((b"c", 3))
    told = levels.scene.peer.ask(messages.Send, SELF, data=with_priorities("q", (b"d", 1), (b"e", 4)))
    assert refused(told, "QueueFull")


def test_each_priority_expires_by_itself():
    levels = Levels(message_ttl=2 * SECOND)
    levels.put((b"a", 5), (b"b", 0))
    pass_time(levels.scene, SECOND)
    levels.put((b"c", 5), (b"d", 3))
    pass_time(levels.scene, SECOND + 100_000)
    assert levels.scene.counts() == (2, 2, 0, 0)
    assert levels.got() == [(5, [b"c"]), (3, [b"d"])]


def test_who_finds_only_what_has_expired_in_one_priority_gets_of_the_next():
    room = ReadingRoom()
    levels = Levels(room=room)
    high = framed("q", b"old", headers={PRIORITY: b"5", EXPIRATION: b"%d" % SECOND})
    levels.scene.peer.ask(messages.Send, SELF, data=high + with_priorities("q", (b"low", 1)))
    room.clock.advance(2 * SECOND)
    asked = levels.scene.peer.tell(messages.TakeMessages, levels.queue, 10)
    for _ in range(5):
        room.engine.sync()
        room.read()
    answer = levels.scene.peer.answer(asked)
    assert (answer.partition, values_of(answer, levels.scene.peer)) == (levels.queue + 1, [b"low"])


def test_who_waits_and_finds_only_what_has_expired_waits_on_and_gets_of_the_next():
    levels = Levels()
    scene = levels.scene
    short = framed("q", b"old", headers={PRIORITY: b"5", EXPIRATION: b"%d" % SECOND})
    scene.peer.ask(messages.Send, SELF, data=short)
    got = scene.take(levels.queue)
    asked = scene.other.tell(messages.TakeMessages, levels.queue, 10, max_wait=60 * SECOND)
    scene.room.clock.advance(SECOND)
    scene.peer.tell(messages.GiveBack, got.partition, encode_offsets(offsets(0), 0), 0)
    scene.room.engine.sync()
    assert not [each for each in scene.other.answers if each.correlation == asked]
    levels.put((b"low", 1))
    assert values_of(scene.other.answer(asked), scene.other) == [b"low"]


def test_what_is_returned_for_later_comes_when_it_is_due(levels):
    scene = levels.scene
    levels.put((b"a", 4))
    levels.got()
    scene.give_up(levels.queue + 4, 0, after=SECOND)
    asked = scene.other.tell(messages.TakeMessages, levels.queue, 1, max_wait=5 * SECOND)
    pass_time(scene, SECOND // 2)
    assert not [each for each in scene.other.answers if each.correlation == asked]
    pass_time(scene, SECOND)
    assert values_of(scene.other.answer(asked), scene.other) == [b"a"]


def test_a_session_that_ends_returns_what_it_has_of_each(levels):
    levels.put((b"a", 4), (b"b", 1))
    levels.got(peer=levels.scene.other)
    levels.scene.other.leave()
    pass_time(levels.scene, 1)
    first = levels.scene.take(levels.queue)
    assert (first.partition, first.attempts) == (levels.queue + 4, [(0, 1)])
    assert levels.got() == [(1, [b"b"])]


def test_a_dead_letter_keeps_its_priority():
    levels = Levels(dead_letter_exchange="", dead_letter_key="dead")
    scene = levels.scene
    dead = scene.queue("dead", max_priority=9)
    levels.put((b"a", 4), (b"b", 1))
    levels.got()
    for priority in (1, 4):
        scene.give_up(levels.queue + priority, 0, dead=True)
    pass_time(scene, 1)
    assert [scene.take(dead).partition - dead for _ in range(2)] == [4, 1]


def test_a_queue_that_is_not_durable_goes_with_all_of_them():
    levels = Levels(durable=False)
    levels.put((b"a", 4), (b"b", 0))
    levels.scene.restart()
    refused(levels.scene.peer.ask(messages.DeclareQueue, "q", passive=True), "UnknownQueue")
    assert levels.scene.queue("q", durable=False) > levels.queue + 5


def test_one_that_an_undecided_transaction_needs_goes_with_the_process():
    levels = Levels(durable=False)
    scene = levels.scene
    data = with_priorities("q", (b"a", 3))
    scene.peer.tell(messages.Add, 1, SELF, data=data)
    assert isinstance(scene.peer.ask(messages.Prepare, 1, XID, Totals(1, 1, crc32c(data))), messages.Done)
    refused(scene.peer.ask(messages.DeleteQueue, "q", levels.queue), "QueueInUse")
    scene.restart()
    refused(scene.peer.ask(messages.DeclareQueue, "q", passive=True), "UnknownQueue")
    refused(scene.peer.ask(messages.TakeMessages, levels.queue, 1), "UnknownQueue")
    assert isinstance(scene.peer.ask(messages.Commit, xid=XID), messages.Committed)
    refused(scene.peer.ask(messages.DeclareQueue, "q", passive=True), "UnknownQueue")


def test_exclusive_and_single_active_consumers_have_all_of_them():
    levels = Levels(single_active=True)
    scene = levels.scene
    scene.peer.ask(messages.Consume, levels.queue, 1)
    scene.other.ask(messages.Consume, levels.queue, 1)
    waits = scene.other.tell(messages.TakeMessages, levels.queue, 9, max_wait=SECOND, consumer=1)
    levels.put((b"a", 5), (b"b", 1))
    assert not [each for each in scene.other.answers if each.correlation == waits]
    taken = [scene.take(levels.queue, consumer=1).partition - levels.queue for _ in range(2)]
    assert taken == [5, 1]


def test_each_priority_counts_against_the_limit_of_queues():
    levels = Levels(room=Room(max_queues=10))
    told = refused(
        levels.scene.peer.ask(messages.DeclareQueue, "more", QueueSettings(max_priority=4)), "LimitExceeded"
    )
    assert "1 queues, which count as 6" in told
    assert levels.scene.queue("less", max_priority=3) == levels.queue + 6

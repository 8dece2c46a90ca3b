"""Queues in moments in which not all is forced, and just after a start: faults that random histories have found
(tests/queues).
"""

from __future__ import annotations

import msgspec
import pytest

from journal.formats import frame
from journal.formats.offset_set_bytes import encode_offsets
from journal.records.group_entries import Retried
from journal.records.queue_entries import QUEUE_GROUP, Overflow
from journal.testing import MemoryFile
from journal.transaction_states import Totals
from journal.xid import Xid
from tests.broker.queues.scene import (
    SECOND,
    SELF,
    ReadingRoom,
    Scene,
    acknowledged,
    expiring,
    framed,
    offsets,
    pass_time,
    settled,
    values_of,
)
from tests.support.broker_room import refused
from txbroker.broker.fetches.stepwise_answers import MOST_AT_ONCE
from txbroker.queues.deaths import DEATHS
from txbroker.wire import messages

XID = Xid(1, b"order 7", b"")


def test_what_was_prepared_and_rolled_back_before_one_force_comes_again():
    """It came to nobody until the next start: the hold was gone before anybody had seen it."""
    scene = Scene()
    queue = scene.queue()
    scene.publish("q", b"task")
    scene.taken(queue)
    scene.peer.tell(messages.Prepare, 1, XID, Totals(0, 0, 0), positions=acknowledged(queue, 0))
    assert isinstance(scene.peer.ask(messages.Rollback, xid=XID), messages.Done)
    assert scene.counts() == (1, 1, 0, 0)
    assert scene.taken(queue, peer=scene.other) == [b"task"]


def test_what_is_committed_and_not_forced_is_not_subtracted_twice_from_what_is_ready():
    scene = Scene()
    queue = scene.queue()
    scene.publish("q", b"task", b"other")
    scene.taken(queue, 1)
    scene.peer.ask(messages.Prepare, 1, XID, Totals(0, 0, 0), positions=acknowledged(queue, 0))
    scene.peer.tell(messages.Commit, xid=XID)
    assert scene.peer.ask(messages.DeclareQueue, "q").ready == 1


def test_what_is_due_later_is_not_ready_after_a_start_either():
    scene = Scene()
    queue = scene.queue()
    scene.publish("q", b"a", b"b")
    scene.taken(queue)
    scene.give_up(queue, 0, after=5_000_000)
    scene.restart()
    assert scene.counts() == (2, 1, 0, 0)
    assert scene.taken(queue) == [b"b"]
    scene.room.clock.advance(5_100_000)
    assert scene.counts() == (2, 1, 1, 0)
    assert scene.taken(queue) == [b"a"]


def test_nobody_gives_up_what_another_session_has_by_saying_an_older_return_again():
    scene = Scene()
    dead, queue = scene.queue("dead"), scene.queue(dead_letter_exchange="", dead_letter_key="dead")
    scene.publish("q", b"a")
    scene.taken(queue)
    again = scene.give_up(queue, 0)
    scene.taken(queue, peer=scene.other)
    assert isinstance(again, messages.Done)
    for is_dead in (True, False):
        said = [settled(queue, retried=(Retried(0, 0, 0, "why", is_dead),))]
        answer = scene.peer.ask(messages.CommitOffsets, QUEUE_GROUP, [], settled=said)
        if is_dead:
            refused(answer, "DeliveryLost")
        else:
            assert isinstance(answer, messages.Done), "a repetition, whose answer was lost"
    assert scene.counts() == (1, 0, 1, 0)
    assert scene.taken(dead) == []
    assert isinstance(scene.acknowledge(queue, 0, peer=scene.other), messages.Done)


def test_a_queue_is_not_empty_that_has_taken_a_message_a_moment_ago():
    """The message was answered, and deleted with its queue by a request that asked for an empty one."""
    scene = Scene()
    queue = scene.queue()
    sent = scene.peer.tell(messages.Send, SELF, data=framed("q", b"a"))
    refused(scene.other.ask(messages.DeleteQueue, "q", queue, if_empty=True), "QueueInUse")
    assert isinstance(scene.peer.answer(sent), messages.Sent)
    assert scene.taken(queue) == [b"a"]


def test_a_take_gets_what_lies_behind_expired_messages():
    """It was answered with nothing: the one message that it was to get had expired."""
    scene = Scene()
    queue = scene.queue()
    scene.peer.ask(messages.Send, SELF, data=expiring("q", SECOND, b"a", b"b") + framed("q", b"c"))
    scene.room.broker.removal_passes.stop()
    scene.room.clock.advance(SECOND)
    assert scene.taken(queue, 1) == [b"c"]
    assert scene.counts() == (1, 0, 1, 0)


def test_who_waits_is_not_answered_because_of_a_message_that_has_expired_already():
    scene = Scene()
    queue = scene.queue()

    def comes_back(offset, value):
        scene.other.ask(messages.Send, SELF, data=expiring("q", SECOND, value))
        scene.take(queue, peer=scene.other)
        waits = scene.peer.tell(messages.TakeMessages, queue, max_wait=5 * SECOND)
        scene.room.clock.advance(SECOND)
        scene.other.tell(messages.GiveBack, queue, encode_offsets(offsets(offset), offset), offset)
        scene.room.engine.sync()
        return waits

    waits = comes_back(0, b"a")
    assert scene.peer.answer(waits) is None
    assert scene.counts() == (0, 0, 0, 0)
    scene.publish("q", b"b")
    assert scene.peer.answer(waits).runs == [(1, 1)]
    again = comes_back(2, b"c")
    pass_time(scene, 5 * SECOND)
    assert scene.peer.answer(again).runs == []


def test_what_is_first_once_a_message_was_taken_expires_in_time():
    """It waited for the time at which the taken one would have expired, or for ever if that one would not."""
    scene = Scene()
    queue = scene.queue()
    scene.peer.ask(messages.Send, SELF, data=framed("q", b"a") + expiring("q", SECOND, b"b"))
    scene.taken(queue, 1)
    pass_time(scene, SECOND)
    assert scene.counts() == (1, 0, 1, 0)


def test_what_comes_when_the_first_was_taken_may_expire_before_that_one():
    scene = Scene()
    queue = scene.queue(message_ttl=9 * SECOND)
    scene.publish("q", b"a")
    scene.taken(queue)
    scene.peer.ask(messages.Send, SELF, data=expiring("q", SECOND, b"b"))
    pass_time(scene, SECOND)
    assert scene.counts() == (1, 0, 1, 0)


def test_what_was_returned_for_later_ends_when_it_is_due():
    scene = Scene()
    queue = scene.queue(message_ttl=2 * SECOND)
    scene.publish("q", b"a")
    scene.taken(queue)
    scene.give_up(queue, 0, after=3 * SECOND)
    pass_time(scene, 2 * SECOND)
    assert scene.counts() == (1, 0, 0, 0), "it is not at the head"
    pass_time(scene, SECOND + 1000)
    assert scene.counts() == (0, 0, 0, 0)


def test_what_was_returned_for_later_counts_when_it_is_due():
    scene = Scene()
    queue = scene.queue(max_length=1)
    scene.publish("q", b"a")
    scene.taken(queue)
    scene.give_up(queue, 0, after=SECOND)
    scene.publish("q", b"b")
    assert scene.counts() == (2, 1, 0, 0)
    pass_time(scene, SECOND + 1000)
    assert scene.taken(queue) == [b"b"]
    assert scene.counts() == (1, 0, 1, 0)


def test_who_waits_gets_what_is_due_before_it_is_one_too_many():
    scene = Scene()
    queue = scene.queue(max_length=0)
    waits = [scene.peer.tell(messages.TakeMessages, queue, max_wait=9 * SECOND) for _ in "ab"]
    scene.publish("q", b"a")
    assert scene.peer.answer(waits[0]).runs == [(0, 1)]
    scene.give_up(queue, 0, after=SECOND)
    pass_time(scene, 2 * SECOND)
    assert scene.peer.answer(waits[1]).runs == [(0, 1)]


def test_what_comes_after_a_purge_expires_in_time():
    """After a start it stayed until the time at which what was purged would have expired."""
    scene = Scene()
    scene.queue()
    scene.peer.ask(messages.Send, SELF, data=expiring("q", 60 * SECOND, b"a"))
    scene.restart()
    scene.room.broker.removal_passes.wake()
    pass_time(scene, SECOND)
    assert scene.peer.ask(messages.PurgeQueue, "q").messages == 1
    scene.peer.ask(messages.Send, SELF, data=expiring("q", SECOND, b"b"))
    pass_time(scene, 2 * SECOND)
    assert scene.counts() == (0, 0, 0, 0)


def test_who_waits_gets_what_another_one_gives_back_before_it_is_too_much():
    """The second one got nothing: what the first had looked at, behind an expired message, was dropped at once."""
    scene = Scene()
    queue = scene.queue(max_length=0)
    third = scene.room.peer()
    third.tell(messages.Send, SELF, data=expiring("q", 0, b"a") + framed("q", b"b", b"c"))
    first = scene.peer.tell(messages.TakeMessages, queue)  # who does not wait gets nothing that has expired
    second = scene.other.tell(messages.TakeMessages, queue, max_wait=5 * SECOND)
    scene.room.engine.sync()
    assert scene.peer.answer(first).runs == [(1, 1)]
    assert scene.other.answer(second) is not None
    assert scene.other.answer(second).runs == [(2, 1)]
    assert scene.counts() == (2, 0, 2, 0)


def test_what_was_prepared_before_a_start_expires_after_it():
    """Nobody looked: that messages may expire was known of those alone that were in the queue at the start."""
    scene = Scene()
    scene.queue()
    data = expiring("q", SECOND, b"a")
    runs = [(SELF, len(data))]
    assert isinstance(scene.peer.ask(messages.Prepare, 1, XID, None, runs=runs, data=data), messages.Done)
    scene.restart()
    assert isinstance(scene.peer.ask(messages.Commit, xid=XID), messages.Committed)
    assert scene.counts() == (1, 1, 0, 0)
    pass_time(scene, SECOND)
    assert scene.counts() == (0, 0, 0, 0)


def test_a_dead_letter_that_goes_in_a_circle_does_not_wait_for_room_there():
    scene = Scene()
    queue = scene.queue(
        max_length=1,
        overflow=Overflow.REJECT_PUBLISH,
        dead_letter_exchange="",
        dead_letter_key="q",
        delivery_limit=0,
    )
    scene.publish("q", b"a")
    scene.taken(queue)
    scene.publish("q", b"b")
    scene.give_up(queue, 0)
    assert scene.counts() == (1, 1, 0, 0)


def test_a_queue_is_used_up_to_the_end_of_a_wait_and_not_by_a_request_that_is_refused():
    scene = Scene()
    queue = scene.queue(expires=2 * SECOND)
    waits = scene.peer.tell(messages.TakeMessages, queue, max_wait=SECOND)
    pass_time(scene, SECOND)
    assert scene.peer.answer(waits).runs == []
    pass_time(scene, SECOND)
    scene.room.broker.queues.expire(scene.room.engine.now())
    refused(scene.peer.ask(messages.TakeMessages, queue, 0), "InvalidSetting")
    pass_time(scene, SECOND)
    scene.room.broker.queues.expire(scene.room.engine.now())
    refused(scene.peer.ask(messages.TakeMessages, queue), "UnknownQueue")


def test_who_cancels_while_expired_messages_are_read_does_not_wait_on(monkeypatch):
    monkeypatch.setattr(MemoryFile, "read_now", lambda *_: None)
    scene = Scene(ReadingRoom())
    queue = scene.queue()
    scene.peer.ask(messages.Send, SELF, data=expiring("q", SECOND, b"a"))
    scene.room.broker.removal_passes.stop()
    scene.room.flush()
    scene.room.clock.advance(SECOND)
    waits = scene.peer.tell(messages.TakeMessages, queue, max_wait=9 * SECOND)
    assert scene.peer.answer(waits) is None
    scene.peer.tell(messages.Cancel, waits)
    scene.room.read()
    assert scene.peer.answer(waits).runs == []


def test_a_death_is_told_with_its_time_and_not_with_that_of_the_first_return():
    scene = Scene()
    dead, queue = scene.queue("dead"), scene.queue(dead_letter_exchange="", dead_letter_key="dead")
    scene.publish("q", b"a")
    scene.taken(queue)
    scene.give_up(queue, 0)
    scene.room.clock.advance(9 * SECOND)
    scene.taken(queue)
    scene.give_up(queue, 0, dead=True)
    answer = scene.take(dead)
    [letter] = frame.decode_run(scene.peer.data[scene.peer.answers.index(answer)])
    [(_, _, _, first, *_)] = msgspec.json.decode(letter.header(DEATHS))
    assert first == scene.room.clock.wall()


def test_a_take_is_answered_though_its_messages_are_not_where_they_should_be(monkeypatch):
    def nothing(*_):
        return b""
        yield

    scene = Scene()
    queue = scene.queue()
    scene.publish("q", b"a")
    monkeypatch.setattr("txbroker.broker.queues.giving.read", nothing)
    assert scene.taken(queue, max_wait=SECOND) == []
    monkeypatch.undo()
    assert scene.taken(queue) == [b"a"]


def test_who_sends_a_message_and_asks_for_one_gets_it():
    scene = Scene()
    queue = scene.queue()
    scene.peer.tell(messages.Send, SELF, data=framed("q", b"a"))
    asked = scene.peer.tell(messages.TakeMessages, queue, 2)
    scene.peer.tell(messages.Send, SELF, data=framed("q", b"b"))
    none = scene.peer.tell(messages.TakeMessages, queue + 1, 1)
    scene.room.engine.sync()
    assert scene.peer.answer(asked).runs[0][0] == 0
    assert refused(scene.peer.answer(none), "UnknownQueue")


def test_who_asks_while_nothing_comes_is_told_so_once_all_is_forced():
    scene = Scene()
    queue = scene.queue()
    scene.queue("other")
    scene.peer.tell(messages.Send, SELF, data=framed("other", b"a"))
    asked = scene.peer.tell(messages.TakeMessages, queue, 1)
    assert not [each for each in scene.peer.answers if each.correlation == asked]
    scene.room.engine.sync()
    assert scene.peer.answer(asked).runs == []
    scene.publish("q", b"later")
    assert scene.taken(queue, peer=scene.other) == [b"later"], "it waits no longer"


def test_a_purge_finds_what_was_sent_before_it_and_nothing_that_was_sent_after_it():
    scene = Scene()
    queue = scene.queue()
    scene.peer.tell(messages.Send, SELF, data=framed("q", b"a", b"b"))
    purged = scene.peer.tell(messages.PurgeQueue, "q")
    scene.peer.tell(messages.Send, SELF, data=framed("q", b"c"))
    scene.room.engine.sync()
    assert scene.peer.answer(purged).messages == 2
    assert scene.taken(queue) == [b"c"]


def test_more_purges_than_may_be_under_way_are_refused_when_they_come():
    scene = Scene()
    scene.queue()
    scene.peer.tell(messages.Send, SELF, data=framed("q", b"a"))
    purges = [scene.peer.tell(messages.PurgeQueue, "q") for _ in range(MOST_AT_ONCE + 1)]
    scene.room.engine.sync()
    *purged, one_more = [scene.peer.answer(each) for each in purges]
    assert [each.messages for each in purged] == [1] + [0] * (MOST_AT_ONCE - 1)
    assert refused(one_more, "LimitExceeded")


@pytest.mark.parametrize("durable", [True, False])
@pytest.mark.parametrize("is_first", [True, False])
def test_who_has_sent_a_message_gets_it_though_all_that_was_there_had_expired(durable: bool, is_first: bool):
    scene = Scene()
    queue = scene.queue(message_ttl=SECOND, durable=durable)
    scene.publish("q", b"old", b"older")
    if not is_first:
        assert scene.taken(queue, peer=scene.other) == [b"old", b"older"]
    scene.room.clock.advance(2 * SECOND)
    scene.peer.tell(messages.Send, SELF, data=framed("q", b"new"))
    asked = scene.peer.tell(messages.TakeMessages, queue, 10)
    if not is_first:
        scene.other.tell(messages.GiveBack, queue, encode_offsets(offsets(0, 1), 0), 0)
    for _ in range(3):
        scene.room.engine.sync()
        scene.room.timers.advance(0.001)
    answer = scene.peer.answer(asked)
    assert values_of(answer, scene.peer) == [b"new"]
    nothing = scene.peer.tell(messages.TakeMessages, queue, 10)
    scene.room.engine.sync()
    assert scene.peer.answer(nothing).runs == []


def test_who_gets_nothing_hears_so_though_expired_messages_came_back_meanwhile():
    scene = Scene()
    queue = scene.queue(message_ttl=SECOND)
    scene.queue("other")
    scene.publish("q", b"old")
    assert scene.taken(queue, peer=scene.other) == [b"old"]
    scene.room.clock.advance(2 * SECOND)
    scene.peer.tell(messages.Send, SELF, data=framed("other", b"x"))
    asked = scene.peer.tell(messages.TakeMessages, queue, 10)
    scene.other.tell(messages.GiveBack, queue, encode_offsets(offsets(0), 0), 0)
    for _ in range(3):
        scene.room.engine.sync()
        scene.room.timers.advance(0.001)
    assert scene.peer.answer(asked).runs == []

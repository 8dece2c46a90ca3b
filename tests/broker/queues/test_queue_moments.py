"""Queues in moments in which not all is forced, and just after a start: faults that random histories have found
(tests/queues).
"""

from __future__ import annotations

from journal.records.group_entries import Retried
from journal.records.queue_entries import QUEUE_GROUP
from journal.transaction_states import Totals
from journal.xid import Xid
from tests.broker.queues.scene import SELF, Scene, acknowledged, framed, settled
from tests.support.broker_room import refused
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

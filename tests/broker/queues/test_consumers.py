"""Test that consumers of queues are known: who may be one, what they share, and what ends with them (decision 0057).

Seen to fail: each test with the guard that it is about taken out of ``consumers.py``, ``take_line.py`` or ``takes.py``.
"""

from __future__ import annotations

import pytest

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
    pass_time,
    values_of,
)
from tests.support.broker_room import Peer, refused
from txbroker.broker.queues import consumers, takes
from txbroker.broker.queues.consumers import MAX_CONSUMERS
from txbroker.wire import messages

LONG = 100 * SECOND


def consume(peer: Peer, queue: int, number: int = 1, **more: object) -> None:
    answer = peer.ask(messages.Consume, queue, number, **more)
    assert isinstance(answer, messages.Done), answer


def stop(peer: Peer, number: int = 1) -> None:
    assert isinstance(peer.ask(messages.StopConsuming, number), messages.Done)


def wait(peer: Peer, queue: int, number: int = 0, most: int = 100) -> int:
    """Wait for messages for a consumer; return the request's number."""
    correlation = peer.tell(messages.TakeMessages, queue, most, max_wait=LONG, consumer=number)
    assert peer.answer(correlation) is None
    return correlation


def given(peer: Peer, correlation: int) -> list[bytes] | None:
    """What a request that waited was answered with; None if it still waits."""
    answer = peer.answer(correlation)
    return None if answer is None else values_of(answer, peer)


def is_gone(scene: Scene, name: str = "q") -> bool:
    answer = scene.room.peer().ask(messages.DeclareQueue, name, passive=True)
    return isinstance(answer, messages.Refused) and answer.error == "UnknownQueue"


# -- who may be one -------------------------------------------------------------------------------


def test_consumers_are_counted_where_queues_are_declared_and_listed():
    scene = Scene()
    queue = scene.queue()
    consume(scene.peer, queue, 1)
    consume(scene.peer, queue, 2)
    consume(scene.other, queue, 1)
    assert scene.info().consumers == 3
    assert scene.peer.ask(messages.DeclareQueue, "q").consumers == 3
    assert scene.room.broker.queues.gauges()["queue_consumers"] == 3
    stop(scene.peer, 2)
    scene.other.leave()
    assert scene.info().consumers == 1


def test_a_number_is_one_consumers_in_its_session_until_that_ends():
    scene = Scene()
    queue, other = scene.queue(), scene.queue("other")
    consume(scene.peer, queue, 7)
    for partition in (queue, other):
        told = refused(scene.peer.ask(messages.Consume, partition, 7), "InvalidSetting")
        assert "has a consumer of number 7 already; nothing has changed" in told
    assert (scene.info().consumers, scene.info("other").consumers) == (1, 0)
    stop(scene.peer, 7)
    consume(scene.peer, other, 7)


@pytest.mark.parametrize("number", [0, -1])
def test_a_number_is_at_least_one(number):
    scene = Scene()
    queue = scene.queue()
    refused(scene.peer.ask(messages.Consume, queue, number), "InvalidSetting")
    assert scene.info().consumers == 0


def test_a_queue_that_is_not_there_has_no_consumers():
    scene = Scene()
    [topic] = scene.room.topic()
    for partition in (topic, 99, -2):
        refused(scene.peer.ask(messages.Consume, partition, 1), "UnknownQueue")


def test_an_exclusive_consumer_is_the_only_one():
    scene = Scene()
    queue = scene.queue()
    consume(scene.peer, queue, exclusive=True)
    assert "has an exclusive consumer" in refused(scene.other.ask(messages.Consume, queue, 1), "QueueInUse")
    refused(scene.peer.ask(messages.Consume, queue, 2), "QueueInUse")
    scene.publish("q", b"a")
    assert scene.taken(queue, peer=scene.other) == [b"a"], "without a consumer all may take"
    stop(scene.peer)
    consume(scene.other, queue)
    told = refused(scene.peer.ask(messages.Consume, queue, 1, exclusive=True), "QueueInUse")
    assert "has consumers (1)" in told
    assert scene.info().consumers == 1


def test_an_exclusive_queue_is_consumed_by_its_session_alone():
    scene = Scene()
    queue = scene.queue(exclusive=True)
    refused(scene.other.ask(messages.Consume, queue, 1), "QueueInUse")
    consume(scene.peer, queue)


def test_a_session_has_so_many_consumers_at_most(monkeypatch):
    monkeypatch.setattr(consumers, "MAX_CONSUMERS", 3)
    scene = Scene()
    queue = scene.queue()
    for number in range(1, 4):
        consume(scene.peer, queue, number)
    refused(scene.peer.ask(messages.Consume, queue, 4), "LimitExceeded")
    consume(scene.other, queue, 4)
    stop(scene.peer, 2)
    consume(scene.peer, queue, 4)
    assert MAX_CONSUMERS == 10_000


def test_each_consumer_of_a_session_may_wait(monkeypatch):
    monkeypatch.setattr(takes, "MAX_WAITING", 1)
    scene = Scene()
    queue = scene.queue()
    for number in range(1, 4):
        consume(scene.peer, queue, number)
        wait(scene.peer, queue, number)
    wait(scene.peer, queue)
    refused(scene.peer.ask(messages.TakeMessages, queue, max_wait=LONG), "LimitExceeded")


# -- takes for consumers --------------------------------------------------------------------------


def test_messages_are_taken_for_a_consumer_of_the_session_and_of_the_queue():
    scene = Scene()
    queue, other = scene.queue(), scene.queue("other")
    scene.publish("q", b"a", b"b")
    consume(scene.peer, other, 1)
    consume(scene.other, queue, 2)
    for number in (1, 2, 3, -1):
        told = refused(scene.peer.ask(messages.TakeMessages, queue, consumer=number), "InvalidSetting")
        assert "nothing was taken" in told
    consume(scene.peer, queue, 3)
    assert scene.taken(queue, 1, consumer=3) == [b"a"]
    assert scene.taken(queue, 1) == [b"b"]


def test_what_a_consumer_waits_for_is_answered_before_its_end():
    scene = Scene()
    queue = scene.queue()
    consume(scene.peer, queue, 1, priority=2)
    consume(scene.peer, queue, 2, priority=2)
    waits = [wait(scene.peer, queue, number) for number in (1, 2, 1)]
    done = scene.peer.tell(messages.StopConsuming, 1)
    scene.room.engine.sync()
    assert [each.correlation for each in scene.peer.answers[-3:]] == [waits[0], waits[2], done]
    assert [given(scene.peer, each) for each in waits] == [[], None, []]
    scene.publish("q", b"a")
    assert given(scene.peer, waits[1]) == [b"a"]


def test_what_is_being_answered_for_a_consumer_that_ends_does_not_wait_on(monkeypatch):
    monkeypatch.setattr(MemoryFile, "read_now", lambda *_: None)
    scene = Scene(ReadingRoom())
    queue = scene.queue()
    for number in (1, 2):
        consume(scene.peer, queue, number)
    scene.peer.ask(messages.Send, SELF, data=expiring("q", SECOND, b"a", b"b"))
    scene.room.broker.removal_passes.stop()
    scene.room.flush()
    scene.room.clock.advance(SECOND)
    waits = [wait(scene.peer, queue, number, most=1) for number in (1, 2)]
    stop(scene.peer, 1)
    scene.room.read()
    assert [given(scene.peer, each) for each in waits] == [[], None]


def test_what_a_consumer_has_taken_stays_its_sessions():
    scene = Scene()
    queue = scene.queue()
    consume(scene.peer, queue)
    scene.publish("q", b"a")
    scene.taken(queue, consumer=1)
    stop(scene.peer)
    assert scene.counts() == (1, 0, 1, 0)
    assert isinstance(scene.acknowledge(queue, 0), messages.Done)


def test_to_end_a_consumer_that_is_not_there_is_done():
    scene = Scene()
    queue = scene.queue()
    consume(scene.other, queue, 5)
    for number in (5, 0, -1):
        stop(scene.peer, number)
    assert scene.info().consumers == 1


def test_the_consumers_of_a_deleted_queue_are_gone():
    scene = Scene()
    queue = scene.queue()
    consume(scene.peer, queue)
    waits = wait(scene.peer, queue, 1)
    assert isinstance(scene.other.ask(messages.DeleteQueue, "q", queue), messages.Counted)
    refused(scene.peer.answer(waits), "UnknownQueue")
    refused(scene.peer.ask(messages.TakeMessages, queue, consumer=1), "UnknownQueue")
    again = scene.queue()
    assert scene.info().consumers == 0
    consume(scene.peer, again)


# -- shares and priorities ------------------------------------------------------------------------


def test_those_that_wait_share_what_comes():
    scene = Scene()
    queue = scene.queue()
    peers = [scene.peer, scene.other, scene.room.peer("10.0.0.3:7")]
    for peer in peers:
        consume(peer, queue)
    waits = [wait(peer, queue, 1) for peer in peers]
    scene.publish("q", *[b"%d" % number for number in range(8)])
    found = [given(peer, each) for peer, each in zip(peers, waits, strict=True)]
    assert found == [[b"0", b"1", b"2"], [b"3", b"4", b"5"], [b"6", b"7"]]
    waits = [wait(peer, queue, 1) for peer in peers]
    scene.publish("q", b"8")
    scene.publish("q", b"9")
    assert [given(peer, each) for peer, each in zip(peers, waits, strict=True)] == [[b"8"], [b"9"], None]


def test_a_share_is_no_more_than_was_asked_for():
    scene = Scene()
    queue = scene.queue()
    waits = [wait(scene.peer, queue, most=1), wait(scene.other, queue), wait(scene.peer, queue)]
    scene.publish("q", *[b"%d" % number for number in range(7)])
    found = [
        given(peer, each) for peer, each in zip((scene.peer, scene.other, scene.peer), waits, strict=True)
    ]
    assert found == [[b"0"], [b"1", b"2", b"3"], [b"4", b"5", b"6"]]


def test_who_cannot_be_served_now_has_no_share():
    scene = Scene()
    queue = scene.queue()
    third = scene.room.peer("10.0.0.3:7")
    waits = [wait(peer, queue) for peer in (scene.peer, scene.other, third)]
    scene.other.session.congested = True
    scene.publish("q", b"0", b"1", b"2")
    assert [given(scene.peer, waits[0]), given(third, waits[2])] == [[b"0", b"1"], [b"2"]]
    assert given(scene.other, waits[1]) is None


def test_who_comes_while_others_cannot_be_served_is_served():
    scene = Scene()
    queue = scene.queue()
    waits = wait(scene.peer, queue)
    scene.peer.session.congested = True
    scene.publish("q", b"0")
    assert scene.taken(queue, peer=scene.other) == [b"0"]
    scene.peer.session.congested = False
    scene.publish("q", b"1")
    assert given(scene.peer, waits) == [b"1"]


def test_those_of_a_higher_priority_are_served_first():
    scene = Scene()
    queue = scene.queue()
    for number, priority in ((1, -1), (2, 5), (3, 0), (4, 5)):
        consume(scene.peer, queue, number, priority=priority)
    waits = {number: wait(scene.peer, queue, number, 2) for number in (1, 3, 0, 4, 2)}
    scene.publish("q", *[b"%d" % number for number in range(3)])
    assert (given(scene.peer, waits[4]), given(scene.peer, waits[2])) == ([b"0", b"1"], [b"2"])
    scene.publish("q", *[b"%d" % number for number in range(5)])
    assert (given(scene.peer, waits[3]), given(scene.peer, waits[0])) == ([b"0", b"1"], [b"2", b"3"])
    assert given(scene.peer, waits[1]) == [b"4"]


def test_shares_are_those_of_one_priority():
    scene = Scene()
    queue = scene.queue()
    for number, priority in ((1, 9), (2, 0), (3, 0)):
        consume(scene.peer, queue, number, priority=priority)
    waits = [wait(scene.peer, queue, number, 2 if number == 1 else 9) for number in (1, 2, 3)]
    scene.publish("q", *[b"%d" % number for number in range(6)])
    assert [given(scene.peer, each) for each in waits] == [[b"0", b"1"], [b"2", b"3"], [b"4", b"5"]]


def test_who_comes_with_a_higher_priority_does_not_wait_for_those_who_are_served_later():
    scene = Scene()
    queue = scene.queue()
    consume(scene.peer, queue, priority=1)
    low = [wait(scene.other, queue, most=1) for _ in range(takes.SERVED_AT_ONCE + 1)]
    scene.publish("q", *[b"x"] * (takes.SERVED_AT_ONCE + 1))
    assert given(scene.other, low[-1]) is None, "that is for a later turn"
    get = scene.other.tell(messages.TakeMessages, queue, 1)
    assert scene.taken(queue, consumer=1) == [b"x"]
    pass_time(scene, 1)
    assert (given(scene.other, low[-1]), given(scene.other, get)) == (None, [])


def test_what_was_left_without_messages_waits_on_before_those_of_its_priority():
    scene = Scene()
    queue = scene.queue(message_ttl=SECOND)
    consume(scene.peer, queue, 1, priority=1)
    consume(scene.other, queue, 1, priority=1)
    scene.publish("q", b"old")
    scene.room.clock.advance(2 * SECOND)
    first = scene.peer.tell(messages.TakeMessages, queue, max_wait=LONG, consumer=1)
    second = wait(scene.other, queue, 1)
    low = wait(scene.other, queue)
    assert scene.peer.answer(first) is None
    scene.publish("q", b"new")
    assert given(scene.peer, first) == [b"new"]
    scene.publish("q", b"newer")
    assert (given(scene.other, second), given(scene.other, low)) == ([b"newer"], None)


# -- one active consumer --------------------------------------------------------------------------


def test_one_active_consumer_gets_all_until_it_ends():
    scene = Scene()
    queue = scene.queue(single_active=True)
    for peer in (scene.peer, scene.other):
        consume(peer, queue)
    waits = wait(scene.other, queue, 1)
    scene.publish("q", b"0")
    assert given(scene.other, waits) is None
    assert scene.taken(queue, consumer=1) == [b"0"]
    active = wait(scene.peer, queue, 1)
    scene.publish("q", b"1")
    assert given(scene.peer, active) == [b"1"]
    scene.publish("q", b"2")
    stop(scene.peer)
    assert given(scene.other, waits) == [b"2"]


def test_the_active_consumer_stays_it_while_its_peer_takes_nothing():
    scene = Scene()
    queue = scene.queue(single_active=True)
    for peer in (scene.peer, scene.other):
        consume(peer, queue)
    waits, others = wait(scene.peer, queue, 1), wait(scene.other, queue, 1)
    scene.peer.session.congested = True
    scene.publish("q", b"0")
    assert (given(scene.peer, waits), given(scene.other, others)) == (None, None)
    scene.peer.session.congested = False
    scene.room.broker.queues.takes.drained(scene.peer.session)
    assert given(scene.peer, waits) == [b"0"]


def test_the_next_active_consumer_is_the_first_of_the_highest_priority():
    scene = Scene()
    queue = scene.queue(single_active=True)
    for number, priority in ((1, 0), (2, 0), (3, 4), (4, 4)):
        consume(scene.peer, queue, number, priority=priority)
    waits = {number: wait(scene.peer, queue, number) for number in (2, 3, 4)}
    scene.publish("q", b"0")
    assert all(given(scene.peer, each) is None for each in waits.values()), "the first that came is active"
    stop(scene.peer, 1)
    assert given(scene.peer, waits[3]) == [b"0"]
    stop(scene.peer, 2)
    scene.publish("q", b"1")
    assert given(scene.peer, waits[4]) is None
    stop(scene.peer, 3)
    assert given(scene.peer, waits[4]) == [b"1"]


def test_what_rests_for_a_consumer_is_answered_before_its_end():
    scene = Scene()
    queue = scene.queue(single_active=True)
    for number in (1, 2):
        consume(scene.peer, queue, number)
    waits = wait(scene.peer, queue, 2)
    stop(scene.peer, 2)
    assert given(scene.peer, waits) == []


def test_the_next_consumer_is_active_after_the_end_of_a_session():
    scene = Scene()
    queue = scene.queue(single_active=True)
    for number in (1, 2):
        consume(scene.peer, queue, number)
    consume(scene.other, queue)
    waits = wait(scene.other, queue, 1)
    scene.publish("q", b"0")
    scene.peer.leave()
    assert given(scene.other, waits) == [b"0"]


def test_takes_without_a_consumer_are_served_beside_the_active_one():
    scene = Scene()
    queue = scene.queue(single_active=True)
    for peer in (scene.peer, scene.other):
        consume(peer, queue)
    rests = wait(scene.other, queue, 1)
    scene.publish("q", b"0", b"1")
    assert scene.taken(queue, 1, peer=scene.other) == [b"0"]
    assert given(scene.other, rests) is None
    assert scene.taken(queue, peer=scene.other, consumer=1) == [], "it is not the active one"
    assert scene.taken(queue, peer=scene.other) == [b"1"]


def test_a_consumer_that_rests_waits_no_longer_than_it_said():
    scene = Scene()
    queue = scene.queue(single_active=True)
    for peer in (scene.peer, scene.other):
        consume(peer, queue)
    waits = scene.other.tell(messages.TakeMessages, queue, max_wait=SECOND, consumer=1)
    cancelled = wait(scene.other, queue, 1)
    assert scene.info().waiting == 2
    scene.room.timers.advance(1.1)
    scene.other.ask(messages.Cancel, cancelled)
    assert (given(scene.other, waits), given(scene.other, cancelled)) == ([], [])
    assert scene.info().waiting == 0


# -- what ends with them --------------------------------------------------------------------------


def test_a_queue_goes_with_its_last_consumer_and_not_before_it_had_one():
    scene = Scene()
    queue = scene.queue(auto_delete=True)
    scene.publish("q", b"a")
    scene.taken(queue)
    scene.room.broker.queues.expire(scene.room.engine.now())
    assert not is_gone(scene)
    for number in (1, 2):
        consume(scene.other, queue, number)
    stop(scene.other, 1)
    assert not is_gone(scene)
    stop(scene.other, 2)
    assert is_gone(scene)


def test_a_queue_goes_with_the_session_of_its_last_consumer():
    scene = Scene()
    queue = scene.queue(auto_delete=True)
    for number in (1, 2):
        consume(scene.other, queue, number)
    waits = wait(scene.peer, queue)
    scene.other.leave()
    scene.room.engine.sync()
    assert is_gone(scene)
    refused(scene.peer.answer(waits), "UnknownQueue")


def is_kept(scene: Scene, name: str = "q") -> bool:
    """Whether there is a queue of that name for the broker, though nobody sees it."""
    return name in scene.room.broker.queues.declarations.fold.queues


def test_a_queue_that_goes_with_its_last_consumer_is_hidden_while_a_transaction_needs_it():
    scene = Scene()
    queue = scene.queue(auto_delete=True)
    scene.peer.ask(messages.Add, 1, SELF, data=framed("q", b"x"))
    consume(scene.other, queue)
    stop(scene.other)
    scene.room.broker.queues.expire(scene.room.engine.now())
    assert is_gone(scene)
    assert is_kept(scene)
    scene.peer.ask(messages.Rollback, serial=1)
    scene.room.broker.queues.expire(scene.room.engine.now())
    assert not is_kept(scene)


def test_no_consumer_comes_meanwhile():
    scene = Scene()
    queue = scene.queue(auto_delete=True)
    scene.peer.ask(messages.Add, 1, SELF, data=framed("q", b"x"))
    consume(scene.other, queue)
    stop(scene.other)
    refused(scene.other.ask(messages.Consume, queue, 2), "UnknownQueue")


def test_after_a_start_a_queue_needs_a_consumer_again_before_it_goes():
    scene = Scene()
    queue = scene.queue(auto_delete=True)
    consume(scene.peer, queue)
    scene.restart()
    scene.room.broker.queues.expire(scene.room.engine.now())
    assert scene.info().consumers == 0
    consume(scene.peer, queue)
    stop(scene.peer)
    assert is_gone(scene)


def test_no_queue_goes_because_the_broker_stops():
    scene = Scene()
    queue = scene.queue(auto_delete=True)
    consume(scene.other, queue)
    scene.room.broker.answer_waiting()
    scene.other.leave()
    scene.restart()
    assert not is_gone(scene)


def test_a_queue_with_a_consumer_is_used():
    scene = Scene()
    queue = scene.queue(expires=5 * SECOND)
    consume(scene.peer, queue)
    told = refused(scene.peer.ask(messages.DeleteQueue, "q", queue, if_unused=True), "QueueInUse")
    assert "is used: 1 consumer, 0 waiting" in told
    scene.room.clock.advance(9 * SECOND)
    scene.room.broker.queues.expire(scene.room.engine.now())
    stop(scene.peer)
    scene.room.clock.advance(4 * SECOND)
    scene.room.broker.queues.expire(scene.room.engine.now())
    assert not is_gone(scene)
    assert isinstance(scene.peer.ask(messages.DeleteQueue, "q", queue, if_unused=True), messages.Counted)


def test_the_end_of_a_consumer_was_use():
    scene = Scene()
    queue = scene.queue(expires=5 * SECOND)
    consume(scene.peer, queue)
    scene.room.clock.advance(9 * SECOND)
    stop(scene.peer)
    scene.room.clock.advance(4 * SECOND)
    scene.room.broker.queues.expire(scene.room.engine.now())
    assert not is_gone(scene)
    scene.room.clock.advance(SECOND)
    scene.room.broker.queues.expire(scene.room.engine.now())
    assert is_gone(scene)


def test_a_prepared_acknowledgement_keeps_a_hidden_queue_whose_last_consumer_has_ended():
    scene = Scene()
    queue = scene.queue(auto_delete=True)
    scene.publish("q", b"a")
    consume(scene.peer, queue)
    scene.taken(queue, consumer=1)
    xid = Xid(1, b"order 7", b"")
    scene.peer.ask(messages.Prepare, 1, xid, Totals(0, 0, 0), positions=acknowledged(queue, 0))
    scene.peer.leave()
    scene.room.engine.sync()
    assert is_gone(scene)
    assert is_kept(scene)
    assert isinstance(scene.other.ask(messages.Commit, xid=xid), messages.Committed)
    scene.room.broker.queues.expire(scene.room.engine.now())
    assert not is_kept(scene)


def test_nothing_is_left_of_consumers_that_have_ended():
    scene = Scene()
    known = scene.room.broker.queues.takes.consumers
    for number in range(1, 4):
        queue = scene.queue(f"q{number}", auto_delete=number == 1, single_active=True)
        consume(scene.other, queue, number)
        wait(scene.other, queue, number)
    stop(scene.other, 1)
    scene.peer.ask(messages.DeleteQueue, "q2", queue - 1)
    scene.other.leave()
    scene.room.engine.sync()
    assert (known._of_session, known._at, known._active, known._left) == ({}, {}, {}, {})
    assert scene.room.broker.queues.takes._lines == {}

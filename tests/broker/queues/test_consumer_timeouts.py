"""Test queues with a timeout for consumers: who loses which deliveries when, and who does not."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from journal.records.queue_entries import QUEUE_GROUP
from journal.xid import Xid
from tests.broker.queues.scene import SECOND, SELF, Scene, acknowledged, framed, offsets, pass_time, settled
from tests.support.broker_room import refused
from txbroker.broker.queues import consumer_timeouts
from txbroker.queues.delivery_ages import GENERATIONS, DeliveryAges
from txbroker.queues.level import ROLLED_BACK, range_of
from txbroker.wire import messages
from txbroker.wire.queues import PRIORITY

TIMEOUT = GENERATIONS * SECOND
"""So what is delivered within a second is late together."""
LATE = TIMEOUT + SECOND
XID = Xid(1, b"order", b"")


def timed(scene: Scene, *values: bytes, **more: Any) -> int:
    queue = scene.queue(consumer_timeout=TIMEOUT, **more)
    if values:
        scene.publish("q", *values)
    return queue


def attempts(scene: Scene, queue: int) -> dict[int, int]:
    state = scene.room.broker.queues.takes.deliveries.at(queue)
    return dict(state.attempts_of(0, 1 << 20))


# -- who loses what ------------------------------------------------------------------------------------


def test_what_is_not_acknowledged_in_time_is_returned_with_an_attempt_and_its_acknowledgement_is_refused():
    scene = Scene()
    queue = timed(scene, b"a", b"b", b"c")
    assert scene.taken(queue) == [b"a", b"b", b"c"]
    scene.acknowledge(queue, 1)
    pass_time(scene, TIMEOUT - 1)
    assert scene.counts() == (2, 0, 2, 0), "nobody loses a message early"
    pass_time(scene, SECOND + 1)
    assert scene.counts() == (2, 2, 0, 0)
    assert attempts(scene, queue) == {0: 1, 2: 1}
    refused(scene.acknowledge(queue, 0), "DeliveryLost")
    answer = scene.take(queue, peer=scene.other)
    assert (answer.attempts, answer.redelivered) == ([(0, 1), (2, 1)], [(0, 1), (2, 1)])
    assert isinstance(scene.acknowledge(queue, 0, 2, peer=scene.other), messages.Done)
    assert scene.room.broker.queues.gauges()["queue_timed_out"] == 2


def test_a_queue_without_a_timeout_waits_for_ever():
    scene = Scene()
    queue = scene.queue()
    scene.publish("q", b"a")
    scene.taken(queue)
    pass_time(scene, 1000 * TIMEOUT)
    assert scene.counts() == (1, 0, 1, 0)


def test_the_session_goes_on_and_who_waits_gets_what_is_returned():
    scene = Scene()
    queue = timed(scene, b"a")
    scene.taken(queue)
    waiting = scene.other.tell(messages.TakeMessages, queue, 10, max_wait=60 * SECOND)
    pass_time(scene, LATE)
    assert scene.other.answer(waiting).runs == [(0, 1)]
    scene.publish("q", b"b")
    assert scene.taken(queue) == [b"b"]
    assert not scene.peer.closed


def test_each_delivery_has_its_own_time():
    scene = Scene()
    queue = timed(scene, b"a", b"b")
    scene.taken(queue, 1)
    pass_time(scene, TIMEOUT // 2)
    scene.taken(queue, 1, peer=scene.other)
    pass_time(scene, LATE - TIMEOUT // 2)
    assert scene.counts() == (2, 1, 1, 0)
    pass_time(scene, TIMEOUT // 2)
    assert scene.counts() == (2, 2, 0, 0)


@pytest.mark.parametrize("is_other", [False, True])
def test_a_message_that_was_returned_and_is_delivered_again_has_all_its_time_again(is_other):
    scene = Scene()
    queue = timed(scene, b"a")
    again = scene.other if is_other else scene.peer
    scene.taken(queue)
    pass_time(scene, TIMEOUT // 2)
    scene.give_up(queue, 0)
    scene.taken(queue, peer=again)
    pass_time(scene, LATE - TIMEOUT // 2)
    assert scene.counts() == (1, 0, 1, 0)
    pass_time(scene, TIMEOUT // 2)
    assert scene.counts() == (1, 1, 0, 0)
    assert attempts(scene, queue) == {0: 2}


def test_a_session_that_has_ended_loses_nothing_twice():
    scene = Scene()
    queue = timed(scene, b"a")
    scene.taken(queue)
    pass_time(scene, TIMEOUT - 1)
    scene.peer.leave()
    scene.peer = scene.room.peer()
    pass_time(scene, 2 * SECOND)
    assert (scene.counts(), attempts(scene, queue)) == ((1, 1, 0, 0), {0: 1})


def test_returned_too_often_by_time_is_a_dead_letter():
    scene = Scene()
    dead = scene.queue("dead")
    queue = timed(scene, b"a", delivery_limit=1, dead_letter_exchange="", dead_letter_key="dead")
    for _ in range(2):
        scene.taken(queue)
        pass_time(scene, LATE)
    pass_time(scene, SECOND)
    assert scene.counts() == (0, 0, 0, 0)
    assert scene.taken(dead) == [b"a"]


def test_deliveries_of_each_priority_are_late():
    scene = Scene()
    queue = timed(scene, max_priority=2)
    for priority in (2, 0):
        scene.peer.ask(messages.Send, SELF, data=framed("q", b"x", headers={PRIORITY: b"%d" % priority}))
        scene.taken(queue)
    pass_time(scene, LATE)
    assert scene.counts() == (2, 2, 0, 0)


def test_many_late_deliveries_are_returned_in_turns_while_others_are_served(monkeypatch):
    monkeypatch.setattr(consumer_timeouts, "RETURNED_AT_ONCE", 10)
    scene = Scene()
    queue = timed(scene, *[b"x"] * 35)
    scene.taken(queue, 20)
    scene.taken(queue, 15, peer=scene.other)
    scene.room.clock.advance(LATE)
    turns = scene.room.broker.queues.timeouts.run()
    next(turns)
    assert scene.counts()[1] == 10, "not all in one turn"
    acknowledging = scene.acknowledge(queue, 19)
    assert isinstance(acknowledging, messages.Done), "what was not returned yet can be acknowledged"
    assert len(list(turns)) == 4
    assert scene.counts() == (34, 34, 0, 0)


# -- who does not --------------------------------------------------------------------------------------


@pytest.mark.parametrize("commits", [False, True])
def test_what_a_prepared_transaction_has_acknowledged_is_never_late(commits):
    scene = Scene()
    queue = timed(scene, b"a", b"b")
    scene.taken(queue)
    assert isinstance(
        scene.peer.ask(messages.Prepare, 1, XID, positions=acknowledged(queue, 0)), messages.Done
    )
    pass_time(scene, 10 * TIMEOUT)
    assert scene.counts() == (2, 1, 0, 1)
    scene.peer.ask(messages.Commit if commits else messages.Rollback, xid=XID)
    pass_time(scene, 0)
    assert scene.counts()[0] == (1 if commits else 2)
    assert attempts(scene, queue) == ({1: 1} if commits else {0: 1, 1: 1})


@pytest.mark.parametrize("is_told", [False, True])
def test_what_an_active_transaction_acknowledges_is_late_and_then_it_cannot_be_prepared(is_told):
    scene = Scene()
    queue = timed(scene, b"a")
    scene.taken(queue)
    if is_told:
        scene.peer.ask(messages.AddOffsets, 1, QUEUE_GROUP, [], settled=[settled(queue, 0)])
    pass_time(scene, LATE)
    assert scene.counts() == (1, 1, 0, 0)
    positions = [] if is_told else acknowledged(queue, 0)
    answer = scene.peer.ask(messages.Prepare, 1, XID, positions=positions)
    assert "is not delivered to this session" in refused(answer, "DeliveryLost")
    assert scene.taken(queue, peer=scene.other) == [b"a"]


def test_who_takes_a_delivery_over_has_all_the_time_from_then_on_and_loses_it_too():
    scene = Scene()
    queue = timed(scene, b"a", b"b")
    scene.taken(queue)
    leases = scene.room.broker.queues.leases
    lease = leases.grant(scene.peer.session, queue, 0, bool)
    pass_time(scene, TIMEOUT // 2)
    assert isinstance(scene.other.ask(messages.TakeOver, lease), messages.TakenOver)
    pass_time(scene, LATE - TIMEOUT // 2)
    assert scene.counts() == (2, 1, 1, 0), "the other one is late"
    pass_time(scene, TIMEOUT // 2)
    assert scene.counts() == (2, 2, 0, 0)
    refused(scene.acknowledge(queue, 0, peer=scene.other), "DeliveryLost")


def test_a_lease_of_a_late_delivery_is_none_any_more():
    scene = Scene()
    queue = timed(scene, b"a")
    scene.taken(queue)
    lease = scene.room.broker.queues.leases.grant(scene.peer.session, queue, 0, bool)
    pass_time(scene, LATE)
    refused(scene.other.ask(messages.TakeOver, lease), "DeliveryLost")


def test_nothing_is_late_after_a_start():
    scene = Scene()
    queue = timed(scene, b"a")
    scene.taken(queue)
    scene.restart()
    assert scene.counts() == (1, 1, 0, 0)
    pass_time(scene, LATE)
    assert attempts(scene, queue) == {}
    scene.taken(queue)
    pass_time(scene, LATE)
    assert attempts(scene, queue) == {0: 1}


def test_a_queue_that_was_deleted_is_not_looked_at():
    scene = Scene()
    queue = timed(scene, b"a")
    scene.taken(queue)
    scene.peer.ask(messages.DeleteQueue, "q", queue)
    pass_time(scene, LATE)
    assert scene.room.broker.queues.gauges()["queue_timed_out"] == 0
    assert scene.room.broker.queues.timeouts.next_in() is None


def test_a_broker_that_stops_returns_nothing():
    scene = Scene()
    queue = timed(scene, b"a")
    scene.taken(queue)
    scene.room.broker.answer_waiting()
    pass_time(scene, LATE)
    assert attempts(scene, queue) == {}


def test_what_a_prepared_transaction_has_just_given_back_is_not_late_once_more():
    scene = Scene()
    queue = timed(scene, b"a")
    scene.taken(queue)
    state = scene.room.broker.queues.takes.deliveries.at(queue)
    state.delivered[ROLLED_BACK] = state.delivered.pop(scene.peer.session.number)
    assert state.late(scene.room.engine.now() + LATE) == {}, "whoever rolls back returns it"


def test_nothing_is_kept_of_what_was_acknowledged():
    scene = Scene()
    queue = timed(scene, *[b"x"] * 40)
    for number in range(30):
        scene.taken(queue, 1)
        scene.acknowledge(queue, number)
        pass_time(scene, SECOND)
    generations = scene.room.broker.queues.takes.deliveries.at(queue).ages._generations
    assert len(generations) == 30
    assert sum(bool(each) for _, each in generations) == 1


def test_no_time_is_refused():
    scene = Scene()
    with pytest.raises(AssertionError, match="consumer_timeout is 0"):
        scene.queue(consumer_timeout=0)


# -- the structure -------------------------------------------------------------------------------------

DELIVERIES = st.lists(
    st.tuples(st.sampled_from("dddfp"), st.integers(0, 99), st.integers(1, 30), st.integers(0, 500)),
    max_size=60,
)


@given(st.integers(1, 1000), DELIVERIES)
def test_no_delivery_is_late_early_or_much_too_late(timeout, steps):
    ages, now, at = DeliveryAges(timeout), 0, dict[int, int]()
    width = max(1, timeout // GENERATIONS)
    for step, first, count, later in steps:
        now += later
        ages.pass_time(now)
        some = {each for each in range(first, first + count) if each not in at}
        if step == "d":
            ages.delivered(offsets(*some), now)
            at |= dict.fromkeys(some, now)
        else:
            gone = [each for each in range(first, first + count) if each in at]
            ages.forget(offsets(*gone))
            for each in gone:
                del at[each]
        for each, since in at.items():
            age = now - since
            if age < timeout:
                assert each not in ages.late
            elif age >= timeout + width:
                assert each in ages.late
        assert len(ages._generations) <= GENERATIONS + 2 or timeout < GENERATIONS


def test_a_million_deliveries_take_little_memory_and_no_scan():
    ages = DeliveryAges(TIMEOUT)
    for number in range(4096):
        ages.delivered(range_of(256 * number, 256 * number + 256), number * TIMEOUT // 4096)
    size = sum(chunk.__sizeof__() for _, known in ages._generations for chunk in known._chunks.values())
    assert size < 1 << 20
    worst = DeliveryAges(TIMEOUT)
    spread = [[each for each in range(1 << 15) if each % 32 == part] for part in range(32)]
    for part in range(32):
        worst.delivered(offsets(*spread[part]), part * SECOND)
    size = sum(chunk.__sizeof__() for _, known in worst._generations for chunk in known._chunks.values())
    assert size < 32 * 5000, "a bitmap of 4 KiB for 32,768 messages in each generation"

"""Test delayed exchanges and the schedule: what waits is listed and taken back, within limits, by which clock, and when
something is short (decision 0066).
"""

from __future__ import annotations

import pytest

from journal.constants import MAX_ATTRIBUTE
from journal.formats import frame
from journal.formats.envelope import Clock, seal
from journal.message_headers import last_value
from journal.scheduled_id import State
from journal.transaction_states import Totals
from journal.transactions.limits import TransactionLimits
from journal.xid import Xid
from tests.broker.queues.delayed.delays import Delays, delayed
from tests.broker.queues.scene import SECOND, framed, pass_time
from tests.support.broker_room import Room, refused
from tests.support.builders import small_files
from txbroker.wire import messages

DAY = 24 * 3600 * SECOND
TEN_YEARS = 3653 * DAY


def test_what_waits_is_listed_shown_and_taken_back():
    scene = Delays()
    [topic] = scene.room.topic()
    scene.wait(5_000, b"a")
    scene.wait(6_000, b"b")
    first, second = scene.listed()
    assert (first.topic, first.exchange, first.partition) == ("", "d", scene.to)
    assert scene.listed(exchange="d") == [first, second]
    assert scene.listed(exchange="other") == scene.listed(topic="orders") == []
    shown = scene.peer.ask(messages.ShowScheduled, [first.id], True)
    assert (shown.states[0].state, shown.states[0].exchange) == (State.WAITS, "d")
    [message] = frame.decode_run(scene.peer.data[scene.peer.answers.index(shown)])
    assert (message.key, message.value, last_value(message.headers, "x-delay")) == (b"k", b"a", b"-5000")
    taken_back = scene.peer.ask(messages.CancelScheduled, [first.id])
    assert [each.state for each in taken_back.states] == [State.CANCELLED]
    pass_time(scene, 10 * SECOND)
    assert scene.taken(scene.q) == [b"b"]
    sent = scene.peer.ask(messages.CancelScheduled, [first.id, second.id])
    assert [(each.state, each.offset) for each in sent.states] == [(State.CANCELLED, -1), (State.SENT, -1)]
    assert topic


def test_what_waits_is_taken_back_in_a_transaction():
    scene = Delays()
    scene.wait(5_000, b"a")
    [waits] = scene.listed()
    xid = Xid(1, b"order 7", b"")
    scene.peer.ask(messages.ShowScheduled, [waits.id])
    ready = scene.peer.ask(messages.Prepare, 1, xid, Totals(0, 0, 0), cancels=[waits.id])
    assert isinstance(ready, messages.Done), ready
    scene.restart()
    pass_time(scene, 10 * SECOND)
    assert scene.taken(scene.q) == [], "it is held"
    assert isinstance(scene.peer.ask(messages.Rollback, xid=xid), messages.Done)
    pass_time(scene, 2 * SECOND)
    assert scene.taken(scene.q) == [b"a"]


def test_a_client_schedules_nothing_for_an_exchange_by_itself():
    scene = Delays()
    told = scene.peer.ask(messages.AskSchedule)
    sealed = seal(framed("k", b"x"), scene.to, Clock.ELAPSED, told.now + 1)
    refused(scene.peer.ask(messages.Send, told.partitions[0], data=sealed), "UnknownPartition")


def test_no_more_messages_wait_than_may():
    scene = Delays(max_scheduled=3)
    assert isinstance(scene.wait(5_000, b"a", b"b"), messages.Sent)
    answer = scene.peer.ask(messages.Send, scene.to, data=delayed("k", 5_000, b"c", b"d"))
    assert "max_scheduled" in refused(answer, "LimitExceeded")
    assert isinstance(scene.wait(5_000, b"c"), messages.Sent)
    refused(scene.peer.ask(messages.Send, scene.to, data=delayed("k", 5_000, b"d")), "LimitExceeded")
    assert isinstance(scene.peer.ask(messages.Send, scene.to, data=framed("k", b"now")), messages.Sent)
    pass_time(scene, 6 * SECOND)
    assert sorted(scene.taken(scene.q)) == [b"a", b"b", b"c", b"now"]
    assert isinstance(scene.wait(5_000, b"d"), messages.Sent)


def jump(scene: Delays) -> None:
    """Set the wall clock an hour forward, and let the journal be told that the broker was not stopped in it."""
    scene.room.clock.set_wall(scene.room.clock.wall() + 3600 * SECOND)
    scene.room.broker.passes[0].wake()
    pass_time(scene, 0)


def comes_after_a_minute(scene: Delays) -> bool:
    """Return whether the message that was to wait a minute does, counted from a start."""
    scene.restart()
    assert scene.scheduled() == 1
    pass_time(scene, 59 * SECOND)
    assert scene.taken(scene.q) == []
    pass_time(scene, 2 * SECOND)
    return scene.taken(scene.q) == [b"a"]


@pytest.mark.parametrize("checkpoint", [False, True])
def test_nothing_comes_early_because_the_wall_clock_has_jumped_before_a_crash(checkpoint: bool):
    scene = Delays()
    scene.room.broker.passes[-1].stop()
    scene.wait(60_000, b"a")
    if checkpoint:
        scene.room.engine.housekeeping.checkpoint_inline()
    jump(scene)
    assert comes_after_a_minute(scene)


def test_nothing_comes_early_that_has_waited_since_a_run_before_that_of_the_checkpoint():
    scene = Delays()
    scene.room.broker.passes[-1].stop()
    scene.wait(60_000, b"a")
    jump(scene)
    scene.room.restart()
    scene.room.broker.passes[-1].stop()
    scene.room.engine.housekeeping.checkpoint_inline()
    assert comes_after_a_minute(scene)


def test_limits_of_transactions_hold_back_nothing_that_was_accepted():
    limits = TransactionLimits(messages=2, bytes=1000, partitions=1, total_messages=2, total_bytes=1000)
    scene = Delays(room=Room(small_files(limits=limits)))
    values = [b"%d" % number * 500 for number in range(9)]
    assert isinstance(scene.wait(5_000, *values), messages.Sent)
    assert scene.scheduled() == 9
    pass_time(scene, 6 * SECOND)
    assert scene.taken(scene.q) == values


def test_unscheduled_ones_count_too_and_what_a_transaction_brings_does_not():
    scene = Delays(max_scheduled=2)
    data, xid = delayed("k", 5_000, b"a", b"b"), Xid(1, b"order 7", b"")
    scene.peer.ask(messages.Prepare, 1, xid, Totals(0, 0, 0), runs=[(scene.to, len(data))], data=data)
    scene.peer.tell(messages.Send, scene.to, data=delayed("k", 5_000, b"c", b"d"))
    refused(scene.peer.ask(messages.Send, scene.to, data=delayed("k", 5_000, b"e")), "LimitExceeded")
    assert isinstance(scene.peer.ask(messages.Commit, xid=xid), messages.Committed)
    pass_time(scene, 0)
    assert scene.scheduled() == 4


def test_a_message_without_room_for_what_is_said_of_it_is_refused_before_it_waits():
    scene = Delays()
    big = b"x" * (MAX_ATTRIBUTE - 200)
    data = framed("k", b"a", headers={"x-delay": b"1000", "big": big})
    refused(scene.peer.ask(messages.Send, scene.to, data=data), "MessageTooLarge")
    data = framed("k", b"a", headers={"x-delay": b"-1000", "big": big})
    assert isinstance(scene.peer.ask(messages.Send, scene.to, data=data), messages.Sent)


def test_the_longest_delay_is_ten_years():
    scene = Delays()
    scene.wait(10**15, b"a")
    [waits] = scene.listed()
    told = scene.peer.ask(messages.AskSchedule)
    assert TEN_YEARS - SECOND <= waits.due - told.now <= TEN_YEARS


def test_a_full_disk_lets_what_waits_wait_on():
    scene = Delays()
    scene.wait(1_000, b"a")
    scene.peer.tell(messages.Send, scene.to, data=delayed("k", 1_000, b"b"))
    full_at, scene.room.engine.full_at = scene.room.engine.full_at, 0
    pass_time(scene, 2 * SECOND)
    assert scene.taken(scene.q) == []
    scene.room.engine.full_at = full_at
    pass_time(scene, 2 * SECOND)
    assert sorted(scene.taken(scene.q)) == [b"a", b"b"]


def test_one_that_leads_to_too_many_queues_is_tried_again_and_others_go_on(monkeypatch: pytest.MonkeyPatch):
    scene = Delays()
    for number in range(5):
        scene.queue(f"q{number}")
        scene.bind("d", "many", f"q{number}")
    scene.wait(1_000, b"many", key="many")
    scene.wait(1_000, b"one")
    monkeypatch.setattr("txbroker.queues.publishing.MAX_COPIES", 4)
    pass_time(scene, 2 * SECOND)
    assert scene.taken(scene.q) == [b"one"]
    assert scene.scheduled() == 1
    monkeypatch.undo()
    pass_time(scene, 61 * SECOND)
    pass_time(scene, SECOND)
    assert scene.scheduled() == 0

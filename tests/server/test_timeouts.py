"""Duties come when they are due on the clock that they are given, and none can stop the others."""

from twisted.internet.task import Clock
from twisted.logger import globalLogPublisher

from txbroker.server.periodic_tasks import Duty, Timeouts


def test_duties_are_carried_out_at_their_intervals_until_they_are_stopped():
    clock, done = Clock(), []
    timeouts = Timeouts(
        clock, [Duty("a", 1.0, lambda: done.append("a")), Duty("b", 2.5, lambda: done.append("b"))]
    )
    timeouts.start()
    assert done == []
    clock.pump([0.5] * 10)
    assert sorted(done) == ["a"] * 5 + ["b"] * 2
    timeouts.stop()
    timeouts.stop()
    clock.pump([1.0] * 10)
    assert len(done) == 7
    assert clock.getDelayedCalls() == []


def test_a_duty_that_fails_is_logged_and_tried_again_and_the_others_go_on():
    clock, done, events = Clock(), [], []
    timeouts = Timeouts(clock, [Duty("bad", 1.0, lambda: 1 // 0), Duty("good", 1.0, lambda: done.append(1))])
    globalLogPublisher.addObserver(events.append)
    try:
        timeouts.start()
        clock.pump([1.0] * 3)
    finally:
        globalLogPublisher.removeObserver(events.append)
        timeouts.stop()
    assert done == [1, 1, 1]
    assert [event["duty"] for event in events if "duty" in event] == ["bad"] * 3


def test_after_the_process_was_suspended_a_duty_is_carried_out_once_not_as_often_as_was_missed():
    clock, done = Clock(), []
    timeouts = Timeouts(clock, [Duty("a", 1.0, lambda: done.append(1))])
    timeouts.start()
    clock.advance(1000)
    assert len(done) == 1
    timeouts.stop()

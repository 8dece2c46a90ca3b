"""Test that periodic tasks run when they are due on the clock that they are given, and that none stops the others."""

from twisted.internet.task import Clock
from twisted.logger import globalLogPublisher

from txbroker.server.periodic_tasks import PeriodicTask, PeriodicTasks


def test_tasks_are_carried_out_at_their_intervals_until_they_are_stopped():
    clock, done = Clock(), []
    tasks = PeriodicTasks(
        clock,
        [PeriodicTask("a", 1.0, lambda: done.append("a")), PeriodicTask("b", 2.5, lambda: done.append("b"))],
    )
    tasks.start()
    assert done == []
    clock.pump([0.5] * 10)
    assert sorted(done) == ["a"] * 5 + ["b"] * 2
    tasks.stop()
    tasks.stop()
    clock.pump([1.0] * 10)
    assert len(done) == 7
    assert clock.getDelayedCalls() == []


def test_a_task_that_fails_is_logged_and_tried_again_and_the_others_go_on():
    clock, done, events = Clock(), [], []
    tasks = PeriodicTasks(
        clock, [PeriodicTask("bad", 1.0, lambda: 1 // 0), PeriodicTask("good", 1.0, lambda: done.append(1))]
    )
    globalLogPublisher.addObserver(events.append)
    try:
        tasks.start()
        clock.pump([1.0] * 3)
    finally:
        globalLogPublisher.removeObserver(events.append)
        tasks.stop()
    assert done == [1, 1, 1]
    assert [event["task"] for event in events if "task" in event] == ["bad"] * 3


def test_after_the_process_was_suspended_a_task_is_carried_out_once_not_as_often_as_was_missed():
    clock, done = Clock(), []
    tasks = PeriodicTasks(clock, [PeriodicTask("a", 1.0, lambda: done.append(1))])
    tasks.start()
    clock.advance(1000)
    assert len(done) == 1
    tasks.stop()

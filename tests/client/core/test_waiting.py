"""Test alarms that are cancelled, and queues that can be left."""

import math
import random

import pytest

from txbroker.client.core.promise import Cancelled, Promise, Task, settled, start
from txbroker.client.core.waits import MOST_AT_ONCE, Alarms, Line, Waits


class Scene:
    """A line for ``there`` things, and what was to be done soon."""

    def __init__(self):
        self.there = 0
        self.alarms = Alarms()
        self.soon = []
        self.line = Line(lambda: self.there > 0, self.alarms, self.soon.append)
        self.taken = []

    def come(self, count=1):
        self.there += count
        self.line.move()

    async def take(self, name, deadline=math.inf):
        turn = self.line.join(deadline)
        try:
            if await turn:
                self.there -= 1
                self.taken.append(name)
                return True
            return False
        finally:
            turn.leave()


def test_alarms_ring_in_the_order_of_their_times_and_then_of_their_making():
    alarms, rung = Alarms(), []
    for at, name in [(3, "c"), (1, "a"), (2, "b1"), (2, "b2")]:
        alarms.set(at, lambda name=name: rung.append(name))
    assert alarms.next == 1
    alarms.ring(2)
    assert rung == ["a", "b1", "b2"]
    assert (len(alarms), alarms.next) == (1, 3)


def test_cancelled_alarms_do_not_ring_and_take_no_room():
    alarms, rung = Alarms(), []
    kept = [alarms.set(number, lambda number=number: rung.append(number)) for number in range(10_000)]
    for alarm in kept[1:]:
        alarm.cancel()
        alarm.cancel()
    assert (len(alarms), len(alarms._heap)) == (1, 1)
    alarms.ring(10_000)
    assert rung == [0]
    assert alarms.next == math.inf


def test_an_alarm_that_has_rung_can_be_cancelled_without_harm():
    alarms = Alarms()
    alarm = alarms.set(1, lambda: None)
    alarms.set(2, lambda: None)
    alarms.ring(1)
    alarm.cancel()
    assert len(alarms) == 1


def test_who_waits_is_woken_in_order_and_only_while_there_is_something():
    scene = Scene()
    tasks = [start(scene.take(number)) for number in range(5)]
    scene.come(2)
    assert scene.taken == [0, 1]
    assert [task.done for task in tasks] == [True, True, False, False, False]
    scene.come(3)
    assert scene.taken == [0, 1, 2, 3, 4]
    assert scene.line.is_free


def test_who_has_the_turn_keeps_it_until_it_leaves():
    scene = Scene()
    first, second = scene.line.join(), scene.line.join()
    scene.come(2)
    assert first.result() is True
    assert not second.done
    first.leave()
    assert second.result() is True


def test_who_gives_up_takes_nothing_and_the_turn_goes_on():
    scene = Scene()
    tasks = [start(scene.take(number)) for number in range(3)]
    tasks[0].cancel()
    tasks[0].cancel()
    assert isinstance(tasks[0].error, Cancelled)
    scene.come(1)
    assert scene.taken == [1]
    granted = scene.line.join()
    scene.come(2)
    assert scene.taken == [1, 2]
    assert granted.done
    granted.leave()  # it had the turn and took nothing
    late = start(scene.take("late"))
    assert late.result() is True


def test_a_place_has_a_deadline_and_leaves_no_alarm():
    scene = Scene()
    turns = [scene.line.join(deadline) for deadline in (5.0, 1.0, math.inf)]
    assert len(scene.alarms) == 2
    scene.alarms.ring(1.0)
    assert turns[1].result() is False
    scene.come(1)
    assert turns[0].result() is True
    turns[0].leave()
    assert turns[2].result() is True
    assert len(scene.alarms) == 0
    turns[1].leave()


def test_many_get_their_turns_in_parts_without_deep_recursion():
    scene = Scene()
    count = 10 * MOST_AT_ONCE
    for number in range(count):
        start(scene.take(number))
    scene.come(count)
    assert len(scene.taken) == MOST_AT_ONCE
    rounds = 1
    while scene.soon:
        scene.soon.pop()()
        rounds += 1
        assert len(scene.taken) <= rounds * MOST_AT_ONCE
    assert scene.taken == list(range(count))


@pytest.mark.parametrize("seed", range(50))
def test_whatever_comes_or_gives_up_in_whatever_order_nothing_is_lost(seed):
    random_ = random.Random(seed)
    scene, tasks, came, now = Scene(), [], 0, 0.0
    for number in range(300):
        step = random_.random()
        if step < 0.4:
            deadline = now + random_.choice([0.5, 5.0, math.inf])
            tasks.append(start(scene.take(number, deadline)))
        elif step < 0.7:
            count = random_.randrange(3)
            came += count
            scene.come(count)
        elif step < 0.9 and tasks:
            random_.choice(tasks).cancel()
        else:
            now += random_.random()
            scene.alarms.ring(now)
        assert not (scene.there and len(scene.line)), (
            "something is there, somebody waits, and nothing happens"
        )
    assert came == scene.there + len(scene.taken)
    assert scene.taken == sorted(scene.taken)
    for task in tasks:
        task.cancel()
    assert scene.line.is_free
    assert len(scene.alarms) == 0


def test_a_cancelled_task_runs_its_clean_up_once_and_forgets_what_it_waited_for():
    promise, ended = Promise(), []

    async def waits():
        try:
            await promise
        finally:
            ended.append("ended")

    task = start(waits())
    task.cancel()
    assert ended == ["ended"]
    assert not promise._callbacks
    promise.resolve(1)
    assert ended == ["ended"]


def test_a_task_that_gives_itself_up_ends_at_its_next_wait():
    tasks = []

    async def gives_up():
        await first
        tasks[0].cancel()
        await Promise()

    first = Promise()
    tasks.append(start(gives_up()))
    first.resolve(None)
    assert isinstance(tasks[0].error, Cancelled)


def test_a_task_that_another_waits_for_goes_on_when_that_one_gives_up():
    promise = Promise()

    async def inner():
        return await promise

    working = start(inner())

    async def outer():
        await settled(working)

    waiting = start(outer())
    waiting.cancel()
    promise.resolve(7)
    assert working.result() == 7


def test_a_task_whose_end_was_interrupted_before_it_was_noted_is_cancelled_when_it_is_woken():
    class Interrupted(Task):
        def resolve(self, value):
            raise KeyboardInterrupt

    wanted = Promise()

    async def waits():
        await wanted

    task = Interrupted(waits())
    with pytest.raises(KeyboardInterrupt):
        wanted.resolve(None)
    assert not task.done
    task.wake()
    assert isinstance(task.error, Cancelled)


def test_calls_of_a_later_turn_are_made_though_one_before_them_raises():
    def interrupted():
        raise KeyboardInterrupt

    waits, called = Waits(lambda: 0.0), []
    waits.soon(interrupted)
    waits.soon(lambda: called.append(1))
    with pytest.raises(KeyboardInterrupt):
        waits.ring(0.0)
    waits.ring(0.0)
    assert called == [1]

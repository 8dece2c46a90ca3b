"""Test the model of the schedule: it cries for each broken promise, and for nothing else."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from tests.simulation.model import schedule_answers_model as schedule_answers
from tests.simulation.model.log_model import Violation
from tests.simulation.model.model import Intent, Model
from tests.simulation.model.model_scene import begin, read
from tests.simulation.model.schedule_clock_model import HOUR, ScheduleClock
from tests.simulation.model.schedule_model import ScheduleModel
from tests.simulation.model.scheduled_message_model import Clock, Envelope, Later
from tests.simulation.model.topic_model import Topic, TopicModel

START = 1_000 * HOUR
SECOND = 1_000_000


class Scene:
    """A machine with its clocks, and a schedule of which everybody knows."""

    def __init__(self) -> None:
        self.passed, self.wall = 0, START
        self.model = Model()
        self.topics = TopicModel(self.model)
        self.topic = Topic("t", False, Intent("making"), 1, partitions=[1])
        self.topics.topics.append(self.topic)
        self.topics.homes[1] = self.topic
        self.schedule = ScheduleModel(self.model, self.topics, lambda: (self.passed, self.wall))
        self.schedule.told([11, 12])
        self.clock = self.schedule.clock
        self.clock.started()
        self.clock.told(START, 0)

    def passes(self, micros: int) -> None:
        self.passed += micros
        self.wall += micros

    def jump(self, micros: int, running: bool = True) -> None:
        self.schedule.moves_wall()
        if running:
            self.clock.jumps(self.wall + micros)
        self.wall += micros

    def later(
        self, value: bytes, after: int = SECOND, clock: Clock = Clock.ELAPSED, carrier: Any = None
    ) -> Later:
        now = self.wall if clock is Clock.WALL else self.clock.least()
        envelope = Envelope(b"envelope " + value, 7, 0, 1, value, clock, now + after, b"id " + value)
        intent = carrier or Intent(f"send of {value!r}", value.decode())
        later = self.schedule.sent(intent, envelope)
        self.model.tick()
        if carrier is None:
            self.model.ask(intent)
            self.model.done(intent, {11: len(self.schedule.messages) - 1})
        self.schedule.at_rest()
        self.model.tick()
        return later

    def said(self, later: Later, state: str, offset: int = -1, holder: str = "") -> None:
        envelope = later.envelope
        answer = SimpleNamespace(
            state=state, clock=envelope.clock, due=envelope.due, partition=1, offset=offset, holder=holder
        )
        schedule_answers.told(self.schedule, later, answer, self.model.tick())


@pytest.fixture
def scene() -> Scene:
    return Scene()


def test_it_may_come_when_it_is_due_and_not_before(scene: Scene) -> None:
    scene.later(b"a")
    scene.passes(SECOND - 1)
    with pytest.raises(Violation, match="is due at"):
        read(scene.model, b"a")
    again = Scene()
    again.later(b"a")
    again.passes(SECOND)
    read(again.model, b"a")
    schedule_answers.all_came(again.schedule)


def test_it_comes_once(scene: Scene) -> None:
    scene.later(b"a")
    scene.passes(SECOND)
    with pytest.raises(Violation, match="only"):
        read(scene.model, b"a", b"a")


def test_it_comes_at_all(scene: Scene) -> None:
    scene.later(b"a")
    scene.passes(HOUR)
    with pytest.raises(Violation, match="comes to 1"):
        schedule_answers.all_came(scene.schedule)


def test_what_nobody_was_told_of_may_be_missing_or_come(scene: Scene) -> None:
    carrier = Intent("send without an answer")
    scene.later(b"a", carrier=carrier)
    scene.model.ask(carrier)
    scene.passes(SECOND)
    scene.model.settle({1}, set())
    schedule_answers.all_came(scene.schedule)
    read(scene.model, b"a")
    assert carrier.state == "done"


def test_one_that_was_taken_back_never_comes(scene: Scene) -> None:
    later = scene.later(b"a")
    with pytest.raises(Violation, match="nobody takes"):
        scene.said(later, "cancelled")
    later.cancels = 1
    scene.said(later, "cancelled")
    scene.passes(SECOND)
    schedule_answers.all_came(scene.schedule)
    with pytest.raises(Violation, match="did not happen"):
        read(scene.model, b"a")


def test_what_a_committed_transaction_takes_back_never_comes_and_another_takes_nothing(scene: Scene) -> None:
    later = scene.later(b"a")
    first, second = begin(scene.model, {}, "commit"), begin(scene.model, {}, "commit", serial=2)
    later.takers += [first, second]
    scene.model.done(first)
    scene.schedule.settle()
    scene.passes(SECOND)
    with pytest.raises(Violation):
        read(scene.model, b"a")
    scene.model.done(second)
    with pytest.raises(Violation, match="is taken back once"):
        scene.schedule.settle()


def test_answers_agree_with_what_is_known(scene: Scene) -> None:
    later = scene.later(b"a")
    scene.said(later, "waits")
    for state in ("not scheduled", "sent", "held"):
        with pytest.raises(Violation):
            scene.said(later, state)
    scene.passes(SECOND)
    scene.said(later, "sent", 0)
    with pytest.raises(Violation, match="is over"):
        scene.said(later, "waits")
    with pytest.raises(Violation, match="only"):
        scene.said(later, "sent", 1)


def info(later: Later, offset: int) -> SimpleNamespace:
    envelope = later.envelope
    return SimpleNamespace(
        id=(0, offset, 7), due=envelope.due, clock=envelope.clock, message_id=envelope.message_id
    )


def test_lists_have_all_that_waits_and_nothing_else(scene: Scene) -> None:
    one, other = scene.later(b"a"), scene.later(b"b", HOUR)
    schedule_answers.listed(scene.schedule, [info(one, 0), info(other, 1)], scene.model.tick())
    with pytest.raises(Violation, match="is listed"):
        schedule_answers.listed(scene.schedule, [info(one, 0)], scene.model.tick())
    with pytest.raises(Violation, match="once"):
        schedule_answers.listed(scene.schedule, [info(one, 0), info(one, 0)], scene.model.tick())
    scene.passes(SECOND)
    schedule_answers.listed(scene.schedule, [info(other, 1)], scene.model.tick())
    read(scene.model, b"a")
    with pytest.raises(Violation, match="over"):
        schedule_answers.listed(scene.schedule, [info(one, 0), info(other, 1)], scene.model.tick())


def test_they_come_in_the_order_of_their_times_as_far_as_that_was_known(scene: Scene) -> None:
    scene.later(b"a", 2 * SECOND)
    scene.later(b"b", SECOND)
    scene.passes(2 * SECOND)
    scene.later(b"c", -SECOND)
    read(scene.model, b"b", b"a", b"c")
    schedule_answers.in_order(scene.schedule)
    other = Scene()
    other.later(b"a", 2 * SECOND)
    other.later(b"b", SECOND)
    other.passes(2 * SECOND)
    read(other.model, b"a", b"b")
    with pytest.raises(Violation, match="comes before"):
        schedule_answers.in_order(other.schedule)


def test_a_topic_goes_only_with_what_is_scheduled_for_it(scene: Scene) -> None:
    with pytest.raises(Violation, match="nothing is scheduled"):
        scene.schedule.kept(scene.topic, scene.model.tick())
    later = scene.later(b"a")
    scene.schedule.kept(scene.topic, scene.model.tick())
    with pytest.raises(Violation, match="is not deleted"):
        scene.schedule.deleted(scene.topic, scene.model.tick())
    later.doubts = 1
    scene.schedule.deleted(scene.topic, scene.model.tick())


# -- the clocks -----------------------------------------------------------------------------------


def test_schedule_time_passes_while_the_broker_runs_and_is_stopped(scene: Scene) -> None:
    scene.passes(5)
    scene.clock.told(START + 5, 5)
    scene.jump(HOUR, running=False)
    scene.clock.started()
    scene.clock.told(START + 5 + HOUR, 5)
    with pytest.raises(Violation, match="schedule time is"):
        scene.clock.told(START + 6 + HOUR, 5)


def test_a_jump_that_the_broker_has_seen_is_no_time_that_passed_and_one_that_it_has_not_may_be(
    scene: Scene,
) -> None:
    scene.jump(HOUR)
    scene.clock.started()
    assert (scene.clock.least(), scene.clock.most()) == (START, START + HOUR)
    other = Scene()
    other.jump(HOUR)
    other.clock.sure()
    other.clock.started()
    assert (other.clock.least(), other.clock.most()) == (START, START)


def test_time_set_back_while_stopped_is_at_least_what_was_forced(scene: Scene) -> None:
    scene.clock.sure()
    scene.passes(10)
    scene.jump(-HOUR, running=False)
    scene.clock.started()
    assert (scene.clock.least(), scene.clock.most()) == (START, START + 10)


def test_a_start_that_failed_may_have_counted(scene: Scene) -> None:
    scene.jump(HOUR, running=False)
    scene.clock.attempted()
    scene.jump(-HOUR, running=False)
    scene.clock.started()
    assert (scene.clock.least(), scene.clock.most()) == (START, START + HOUR)


def test_after_a_long_jump_what_is_due_by_the_wall_clock_is_held_until_it_is_released(scene: Scene) -> None:
    later = scene.later(b"a", 2 * HOUR, Clock.WALL)
    scene.jump(3 * HOUR)
    assert not scene.schedule.may_be_due(later)
    scene.clock.sure()
    scene.clock.started()
    assert not scene.schedule.may_be_due(later)
    scene.clock.released()
    assert scene.schedule.may_be_due(later)


def test_a_long_jump_that_nobody_has_seen_may_count_as_time_stopped(scene: Scene) -> None:
    later = scene.later(b"a", 2 * HOUR, Clock.WALL)
    scene.jump(3 * HOUR)
    scene.clock.started()
    assert scene.schedule.may_be_due(later)


def test_a_clock_of_which_nobody_was_told_begins_as_the_wall_clock() -> None:
    clock = ScheduleClock(lambda: (0, START))
    clock.started()
    with pytest.raises(Violation, match="begins as the wall clock"):
        clock.told(START + 20 * HOUR, 0)

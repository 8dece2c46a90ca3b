"""Test the model of queues: what may be delivered to whom, and what must be there."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from tests.simulation.model.copy_model import Copy, Holder
from tests.simulation.model.intent_model import OPEN, VOID, Intent
from tests.simulation.model.log_model import Violation
from tests.simulation.model.model import Model
from tests.simulation.model.model_scene import read, send
from tests.simulation.model.queue_model import QueueModel
from tests.simulation.model.schedule_model import ScheduleModel
from tests.simulation.model.topic_model import TopicModel

SAID = ("", "a", None)


class Taker:
    alive = True

    def goes_on(self, connection: Any) -> bool:
        return self.alive


class Scene:
    def __init__(self) -> None:
        self.model, self.time = Model(), 1_000
        topics = TopicModel(self.model)
        self.schedule = ScheduleModel(self.model, topics, lambda: (self.time, self.time))
        self.schedule.clock.low = 0
        self.queues = QueueModel(self.model, self.schedule)
        self.queues.partitions = {"a": 1, "b": 2}
        self.takers = [Taker(), Taker()]

    def publish(self, body: bytes, delay: int | None = None) -> Intent:
        intent = Intent(f"publish {body!r}", "s", int(body))
        self.queues.publish(intent, ["a"], body, ("", "a"), delay)
        self.model.ask(intent)
        return intent

    def deliver(self, body: bytes, which: int = 0, again: bool = False, said: Any = SAID) -> Copy:
        copy = self.queues.copy("a", body)
        self.queues.delivered(copy, Holder(self.takers[which], self), again, said, [])
        return copy

    def read(self, *bodies: bytes | None) -> None:
        """Somebody reads all of queue a, None for what is in a gap."""
        read(self.model, *(body and self.queues.value(1, body) for body in bodies))

    def told(self, messages: int) -> None:
        counts = {"a": messages, "b": 0}
        self.queues.settle(
            {
                name: SimpleNamespace(partition=number, messages=counts[name])
                for name, number in self.queues.partitions.items()
            }
        )


@pytest.fixture
def scene() -> Scene:
    return Scene()


def finish(scene: Scene, copy: Copy) -> Intent:
    intent = Intent("acknowledgement", vague=True)
    copy.finishers.append(intent)
    scene.model.ask(intent)
    return intent


def test_what_nobody_has_published_is_not_delivered(scene: Scene) -> None:
    with pytest.raises(Violation, match="what was published"):
        scene.deliver(b"1")


def test_what_was_delivered_has_happened_and_has_its_exchange_and_key(scene: Scene) -> None:
    intent = scene.publish(b"1")
    with pytest.raises(Violation, match="as it was published"):
        scene.deliver(b"1", said=("", "b", None))
    scene.deliver(b"1")
    assert intent.state == "done"


def test_a_message_is_with_one_client_and_says_that_it_comes_again(scene: Scene) -> None:
    scene.publish(b"1")
    scene.deliver(b"1")
    with pytest.raises(Violation, match="with one client"):
        scene.deliver(b"1", 1, again=True)
    scene.takers[0].alive = False
    with pytest.raises(Violation, match="told to come again"):
        scene.deliver(b"1", 1)
    scene.deliver(b"1", 1, again=True)


def test_what_is_finished_never_comes_again(scene: Scene) -> None:
    scene.publish(b"1")
    copy = scene.deliver(b"1")
    scene.model.done(finish(scene, copy))
    scene.takers[0].alive = False
    with pytest.raises(Violation, match="finished"):
        scene.deliver(b"1", 1, again=True)


def test_what_comes_again_was_not_acknowledged_with_all_that_was_said_at_once(scene: Scene) -> None:
    for body in (b"1", b"2"):
        scene.model.done(scene.publish(body), {1: int(body) - 1})
    copies = [scene.deliver(body) for body in (b"1", b"2")]
    both = finish(scene, copies[0])
    copies[1].finishers.append(both)
    scene.takers[0].alive = False
    scene.queues.drain()
    scene.deliver(b"1", 1, again=True)
    assert both.state == VOID
    with pytest.raises(Violation, match="until it is finished"):
        scene.queues.all_were_delivered()


def test_queues_have_what_is_not_finished(scene: Scene) -> None:
    for body in (b"1", b"2"):
        scene.model.done(scene.publish(body), {1: int(body) - 1})
    scene.told(2)
    with pytest.raises(Violation, match="2 to 2 messages"):
        scene.told(1)
    perhaps = finish(scene, scene.deliver(b"1"))
    assert perhaps.state == OPEN
    scene.told(1)
    scene.told(2)
    scene.model.done(perhaps)
    with pytest.raises(Violation, match="1 to 1 messages"):
        scene.told(2)


def test_what_waits_does_not_come_before_its_time(scene: Scene) -> None:
    scene.publish(b"1", 5_000)
    told = ("", "a", -5)
    with pytest.raises(Violation, match="is due at 6000"):
        scene.deliver(b"1", said=told)
    scene.time += 5_000
    scene.deliver(b"1", said=told)


@pytest.mark.parametrize("is_read_before", [False, True])
def test_a_gap_is_over_what_is_finished_or_may_be(scene: Scene, is_read_before: bool) -> None:
    for body in (b"1", b"2"):
        scene.publish(body)
    if is_read_before:
        scene.read(b"1", b"2")
    perhaps = finish(scene, scene.deliver(b"1"))
    scene.read(None, b"2")
    scene.model.settle({1, 2}, set())
    scene.model.done(perhaps)
    scene.model.settle({1, 2}, set())
    scene.told(1)
    scene.read(b"1", b"2")  # as after a power cut, before which the acknowledgement was not forced
    scene.model.settle({1, 2}, set())


@pytest.mark.parametrize("is_read_before", [False, True])
def test_a_gap_over_what_is_not_finished_is_noticed(scene: Scene, is_read_before: bool) -> None:
    for body in (b"1", b"2"):
        scene.model.done(scene.publish(body))
    if is_read_before:
        scene.read(b"1", b"2")
    with pytest.raises(Violation, match="finished"):
        scene.read(None, b"2")


def test_a_gap_over_more_than_what_is_finished_is_noticed(scene: Scene) -> None:
    for body in (b"1", b"2", b"3"):
        scene.model.done(scene.publish(body))
    scene.model.done(finish(scene, scene.deliver(b"1")))
    with pytest.raises(Violation, match="over 1 finished messages"):
        scene.read(None, None, b"3")


def test_what_was_not_finished_after_all_is_not_in_a_gap(scene: Scene) -> None:
    scene.publish(b"1")
    scene.read(b"1")
    perhaps = finish(scene, scene.deliver(b"1"))
    scene.read(None)
    scene.model.void(perhaps)
    with pytest.raises(Violation, match="gaps only over what is finished"):
        scene.model.settle({1, 2}, set())
    scene.read(b"1")  # it is there again
    scene.model.settle({1, 2}, set())


def test_a_finished_message_that_is_neither_read_nor_in_a_gap_is_lost(scene: Scene) -> None:
    scene.model.done(scene.publish(b"1"))
    scene.publish(b"2")
    scene.model.done(finish(scene, scene.deliver(b"1")))
    scene.read(b"2")
    with pytest.raises(Violation, match="1 finished messages in gaps"):
        scene.model.settle({1, 2}, set())


def test_a_gap_is_not_in_a_log_that_is_no_queues(scene: Scene) -> None:
    scene.publish(b"1")
    scene.model.done(finish(scene, scene.deliver(b"1")))
    send(scene.model, b"sent", partition=3)
    with pytest.raises(Violation, match="of log 3 over 0 finished"):
        read(scene.model, None, partition=3)


def test_what_lies_together_may_have_a_gap_in_its_middle(scene: Scene) -> None:
    both = Intent("transaction", "s", 1)
    for body in (b"1", b"2", b"3"):
        scene.queues.publish(both, ["a"], body, ("", "a"), None)
    scene.model.ask(both)
    scene.model.done(finish(scene, scene.deliver(b"2")))
    scene.read(b"1", None, b"3")
    scene.model.settle({1, 2}, set())
    scene.model.gaps.offsets.clear()
    with pytest.raises(Violation, match="finished messages in gaps"):
        scene.model.settle({1, 2}, set())


def reject(scene: Scene, copy: Copy) -> tuple[Intent, Intent]:
    """A message of queue a is rejected, and goes to queue b."""
    rejected = finish(scene, copy)
    scene.queues.dies(copy, "b", ("dead", "b"))
    return rejected, copy.finishers[-1]


def dead_letter(scene: Scene, body: bytes, again: bool = False) -> None:
    copy = scene.queues.copy("b", body)
    said = ("dead", "b", None)
    scene.queues.delivered(copy, Holder(scene.takers[0], scene), again, said, [])


def test_what_was_rejected_is_a_dead_letter_and_never_comes_again(scene: Scene) -> None:
    scene.publish(b"1")
    _, letter = reject(scene, scene.deliver(b"1"))
    dead_letter(scene, b"1")
    assert letter.state == "done"
    scene.takers[0].alive = False
    with pytest.raises(Violation, match="finished"):
        scene.deliver(b"1", 1, again=True)
    with pytest.raises(Violation, match="told to come again"):
        dead_letter(scene, b"1")


def test_what_comes_again_was_not_rejected_and_may_be_later(scene: Scene) -> None:
    scene.publish(b"1")
    before = reject(scene, scene.deliver(b"1"))
    scene.takers[0].alive = False
    copy = scene.deliver(b"1", 1, again=True)
    assert [each.state for each in before] == [VOID, VOID]
    with pytest.raises(Violation, match="did not happen"):
        dead_letter(scene, b"1")
    reject(scene, copy)
    dead_letter(scene, b"1")


def test_a_dead_letter_that_is_nowhere_is_lost(scene: Scene) -> None:
    scene.model.done(scene.publish(b"1"), {1: 0})
    copy = scene.deliver(b"1")
    reject(scene, copy)
    scene.queues.drain()
    with pytest.raises(Violation, match="as a dead letter is there"):
        scene.queues.all_were_delivered()
    dead_letter(scene, b"1")
    scene.queues.all_were_delivered()


def test_what_may_have_been_acknowledged_need_be_no_dead_letter(scene: Scene) -> None:
    scene.model.done(scene.publish(b"1"), {1: 0})
    copy = scene.deliver(b"1")
    reject(scene, copy)
    finish(scene, copy)
    scene.queues.drain()
    scene.queues.all_were_delivered()


def test_a_queue_may_count_what_is_dead_until_it_is_a_dead_letter(scene: Scene) -> None:
    scene.model.done(scene.publish(b"1"), {1: 0})
    rejected, _ = reject(scene, scene.deliver(b"1"))
    scene.model.done(rejected)
    scene.told(1)
    scene.told(0)
    dead_letter(scene, b"1")
    with pytest.raises(Violation, match="0 to 0 messages"):
        scene.told(1)

"""Test how old the oldest message of a queue is said to be: exactly, also once it is only on the disk."""

from __future__ import annotations

from typing import Any

import pytest

from journal.formats.segment_header import SEGMENT_HEADER_BYTES
from journal.testing import MemoryFile
from tests.broker.queues.scene import SECOND, SELF, ReadingRoom, Scene, framed
from tests.support.engine_room import damage
from txbroker.broker.queues.queue_listing import READ_AT_ONCE
from txbroker.wire import messages
from txbroker.wire.queues import PRIORITY


def flushed(scene: Scene, micros: int) -> None:
    scene.room.clock.advance(micros)
    scene.room.flush()


def test_it_is_exact_in_memory_and_on_the_disk_and_over_a_start() -> None:
    """Seen with none told once the message was flushed, within ten seconds of its arrival."""
    scene = Scene()
    queue = scene.queue()
    scene.publish("q", b"a")
    scene.room.clock.advance(SECOND)
    scene.publish("q", b"b")
    assert scene.info().oldest == SECOND
    flushed(scene, SECOND)
    assert scene.info().oldest == 2 * SECOND
    scene.restart()
    scene.room.clock.advance(SECOND)
    before = scene.info().oldest
    assert before >= 3 * SECOND
    scene.room.clock.advance(SECOND)
    assert scene.info().oldest == before + SECOND
    assert scene.taken(queue, 1) == [b"a"]
    assert scene.info().oldest == before + SECOND, "what a session has is there"
    scene.acknowledge(queue, 0)
    assert scene.info().oldest == before, "the next one is a second younger"
    scene.taken(queue)
    scene.acknowledge(queue, 1)
    assert scene.info().oldest == -1


@pytest.mark.parametrize("priorities", [(0, 3), (3, 0)])
def test_it_is_the_oldest_of_all_priorities(priorities: tuple[int, int]) -> None:
    scene = Scene()
    scene.queue(max_priority=3)
    for priority in priorities:
        scene.peer.ask(messages.Send, SELF, data=framed("q", b"x", headers={PRIORITY: b"%d" % priority}))
        flushed(scene, SECOND)
    assert scene.info().oldest == 2 * SECOND


def test_a_transient_queue_says_it_too() -> None:
    scene = Scene()
    scene.queue(durable=False)
    scene.publish("q", b"a")
    flushed(scene, SECOND)
    assert scene.info().oldest == SECOND


class Slow:
    """A scene of so many queues, each with a message on a disk that is read when it is told to."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, count: int) -> None:
        self.room = ReadingRoom()
        self.scene = Scene(self.room)
        for number in range(count):
            self.scene.queue(f"{number}")
            self.scene.publish(f"{number}", b"a", b"b")
        flushed(self.scene, SECOND)
        monkeypatch.setattr(MemoryFile, "read_now", lambda *_: None)

    def ask(self, *names: str) -> int:
        asked = self.scene.peer.tell(messages.ListQueues, list(names) or None)
        self.room.engine.sync()
        return asked

    def answer(self, asked: int) -> Any:
        return next((each for each in self.scene.peer.answers if each.correlation == asked), None)


def test_the_disk_is_read_in_steps_while_others_are_served_and_once_for_each_message(monkeypatch) -> None:
    slow = Slow(monkeypatch, 2 * READ_AT_ONCE + 1)
    asked, steps = slow.ask(), 0
    while slow.answer(asked) is None:
        [read] = slow.room.reads
        assert isinstance(slow.scene.peer.ask(messages.Ping), messages.Done), "others are served meanwhile"
        slow.room.reads.clear()
        read[1](read[0]())
        slow.room.engine.sync()
        steps += 1
    assert steps == 3
    assert {each.oldest for each in slow.answer(asked).queues} == {SECOND}
    assert slow.answer(slow.ask()) is not None, "it is remembered"
    assert not slow.room.reads


def test_what_happens_while_it_is_read_is_told(monkeypatch) -> None:
    """A queue that is deleted is left out; of one whose first message was acknowledged it is what was read."""
    slow = Slow(monkeypatch, 3)
    slow.scene.queue("0")
    parts = [slow.scene.queue(f"{number}") for number in range(3)]
    asked = slow.ask()
    slow.scene.peer.ask(messages.DeleteQueue, "0", parts[0])
    slow.scene.peer.tell(messages.TakeMessages, parts[1])
    slow.room.reads.append(slow.room.reads.pop(0))
    slow.room.read()
    slow.scene.acknowledge(parts[1], 0)
    slow.room.read()
    told = {each.name: each.oldest for each in slow.answer(asked).queues}
    assert told == {"1": SECOND, "2": SECOND}


def test_one_that_cannot_be_read_is_not_told_and_the_others_are(monkeypatch) -> None:
    slow = Slow(monkeypatch, 2)
    part = slow.scene.queue("1")
    [segment] = slow.room.engine.catalog.stores[part].segments
    damage(slow.room.filesystem, segment.path, SEGMENT_HEADER_BYTES + 3)
    asked = slow.ask()
    slow.room.read()
    assert [each.oldest for each in slow.answer(asked).queues] == [SECOND, -1]

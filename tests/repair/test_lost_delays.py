"""Test what a repair loses of delayed exchanges: it says so, and what is left goes on."""

from __future__ import annotations

from journal.check import JournalEntry, Level, verify, walk_journal
from journal.testing import MemoryFilesystem
from tests.broker.queues.delayed.delays import Delays, delayed
from tests.broker.queues.scene import SECOND, pass_time
from tests.repair.repair_scene import repaired
from tests.support.engine_room import damage
from txbroker.wire import messages


def cut_behind(scene: Delays, count: int) -> MemoryFilesystem:
    """Damage the journal's last record but ``count``."""
    scene.room.engine.sync()
    filesystem = scene.room.filesystem.kill_clone()
    damaged = [each for each in walk_journal(filesystem) if isinstance(each, JournalEntry)][-count - 1]
    damage(filesystem, damaged.path, damaged.position + 20)
    return filesystem


def start(scene: Delays, filesystem: MemoryFilesystem) -> None:
    scene.room.filesystem = filesystem
    scene.room.start()
    scene.peer = scene.room.peer()
    for each in scene.room.broker.passes:
        each.wake()
    pass_time(scene, 0)


def test_messages_whose_going_on_is_lost_come_again() -> None:
    scene = Delays()
    scene.wait(1_000, b"a", b"b")
    scene.queue("is damaged")
    pass_time(scene, 2 * SECOND)
    filesystem = cut_behind(scene, 1)
    lost = [loss.text for loss in repaired(filesystem).lost]
    assert (
        "that 2 messages had waited at exchanges and gone on: they may be in queues, and come again" in lost
    )
    start(scene, filesystem)
    assert scene.taken(scene.q) == [b"a", b"b"]
    assert [str(each) for each in verify(filesystem, Level.DEEP) if not each.harmless] == []


def test_what_is_not_in_the_schedule_any_more_is_scheduled_again() -> None:
    scene = Delays()
    scene.peer.ask(messages.AskSchedule)
    data = delayed("k", 1_000, b"a")
    scene.peer.tell(messages.Send, scene.to, data=data)
    scene.queue("is damaged")
    pass_time(scene, 0)
    assert scene.scheduled() == 1
    filesystem = cut_behind(scene, 1)
    repaired(filesystem)
    start(scene, filesystem)
    assert scene.scheduled() == 1
    pass_time(scene, 2 * SECOND)
    assert scene.taken(scene.q) == [b"a"]

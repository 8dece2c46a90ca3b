"""Test repairs of damaged segments that were compacted, while the file that one was made of is there, and later."""

from __future__ import annotations

import pytest

from journal.repair import diagnose
from tests.broker.queues.compacting import Compacting, value
from tests.repair.repair_checks import damages
from tests.repair.repair_scene import repaired

KEPT = (3, 10, 11, 30)
DAMAGE = {
    "a byte of a gap": lambda file: file.write_some(70, [b"#"]),
    "a byte of a message": lambda file: file.write_some(150, [b"#"]),
    "cut off": lambda file: file.truncate(300),
    "its header": lambda file: file.write_some(5, [b"##"]),
}


def compacted(checkpoints: int) -> Compacting:
    scene = Compacting()
    scene.fill(60)
    scene.checkpoint()
    scene.acknowledge_but(*KEPT)
    scene.compact()
    for number in range(checkpoints):
        scene.publish("q", b"%d" % number)
        scene.checkpoint()
    assert [each.epoch for each in scene.store.segments[:2]] == [1, 1]
    return scene


def restarted(scene: Compacting) -> Compacting:
    """Go on with the damaged directory, repaired."""
    path = scene.store.segments[0].path
    scene.room.filesystem = disk = scene.room.filesystem.kill_clone()
    assert damages(disk)
    diagnosis = repaired(disk)
    assert diagnosis.changes
    assert damages(disk) == []
    assert diagnose(disk).is_sound, f"a second repair of {path} would find something to do"
    scene.room.start()
    scene.peer = scene.room.peer()
    return scene


@pytest.mark.parametrize("damage", DAMAGE.values(), ids=DAMAGE)
def test_nothing_is_lost_while_the_file_is_there_that_it_was_made_of(damage):
    scene = compacted(1)
    damage(scene.room.filesystem.open(scene.store.segments[0].path))
    restarted(scene)
    assert scene.all() == [value(n) for n in KEPT] + [b"0"]
    for _ in range(3):
        scene.publish("q", b"x")
        scene.checkpoint()
    assert damages(scene.room.filesystem.kill_clone()) == []
    assert len(scene.files()) == len(scene.store.segments)


@pytest.mark.parametrize("damage", DAMAGE.values(), ids=DAMAGE)
def test_later_the_directory_is_sound_after_one_repair(damage):
    scene = compacted(2)
    damage(scene.room.filesystem.open(scene.store.segments[0].path))
    restarted(scene)
    assert scene.all()[-3:] == [value(30), b"0", b"1"]
    for _ in range(3):
        scene.publish("q", b"x")
        scene.checkpoint()
    assert damages(scene.room.filesystem.kill_clone()) == []

"""Test directories of backups in which something else stands in the place of files, and disks without room."""

from __future__ import annotations

import errno
import os
from functools import partial

import pytest

from journal.backup import layout
from journal.backup.creation import make_backup
from journal.backup.holds import EngineHold
from journal.backup.manifest import read_manifest
from journal.backup.object_store import prove
from journal.backup.pace import Pace
from journal.backup.pruning import prune
from journal.backup.restoring import restore
from journal.check import Level, verify
from journal.errors import CorruptBackup, CorruptData, FilesReleased, JournalPoisoned, UnknownBackup
from journal.testing import FaultFilesystem, FaultPlan, MemoryFilesystem, Operation
from journal.vfs.filesystem import OSFilesystem
from tests.backup.backup_scene import at_the_cut, backed_up, clock, held, lived_in, restored
from tests.broker.queues.compacting import Compacting, value
from tests.support.engine_room import SMALL, Room
from txbroker.wire import messages

IN_ITS_PLACE = {
    "pipe": os.mkfifo,
    "directory": os.mkdir,
    "link to nothing": lambda path: os.symlink("nowhere", path),
}


@pytest.fixture
def scene(tmp_path):
    room, backups = lived_in(), OSFilesystem(tmp_path / "backups", layout.PRIVATE)
    return room, backups, backed_up(room, backups).manifest


def replaced(backups, path, what):
    full = backups.root / path
    full.unlink()
    what(full)


@pytest.fixture(params=IN_ITS_PLACE)
def what(request):
    return IN_ITS_PLACE[request.param]


def test_what_stands_in_the_place_of_an_object_is_damage_and_nothing_waits_for_it(scene, what):
    _, backups, manifest = scene
    path = layout.object_file(manifest.files[0].sha256)
    replaced(backups, path, what)
    with pytest.raises(CorruptBackup, match=path):
        prove(backups, manifest.objects(), Pace())
    target = MemoryFilesystem()
    with pytest.raises(CorruptBackup, match=path):
        restore(backups, target, clock(), settings=SMALL)


def test_the_next_backup_stores_the_object_again(scene):
    room, backups, manifest = scene
    for make in (os.mkfifo, IN_ITS_PLACE["link to nothing"]):
        replaced(backups, layout.object_file(manifest.files[0].sha256), make)
        assert backed_up(room, backups).written > 0
        prove(backups, manifest.objects(), Pace())


def test_what_stands_in_the_place_of_a_manifest_is_damage(scene, what):
    _, backups, manifest = scene
    replaced(backups, layout.manifest_file(manifest.name), what)
    before = sorted(layout.stored_objects(backups))
    with pytest.raises((CorruptBackup, UnknownBackup), match=r"cannot be read|there is no backup"):
        read_manifest(backups, manifest.name)
    with pytest.raises((CorruptBackup, UnknownBackup)):
        prune(backups, keep=1)
    assert sorted(layout.stored_objects(backups)) == before


def test_a_link_in_the_place_of_unfinished_work_costs_no_file_elsewhere(scene, tmp_path):
    room, backups, _ = scene
    elsewhere = tmp_path / "journal"
    elsewhere.mkdir()
    (elsewhere / "00000000000000000000068719476736.journal").write_bytes(b"alive")
    (elsewhere / "inner").mkdir()
    (backups.root / layout.SCRATCH).rmdir()
    (backups.root / layout.SCRATCH).symlink_to(elsewhere)
    backed_up(room, backups)
    prune(backups, keep=1)
    assert len(list(elsewhere.iterdir())) == 2


def test_what_a_killed_backup_left_is_swept(scene):
    room, backups, _ = scene
    for name in ("1", "317", layout.SCRATCH_MANIFEST):
        (backups.root / layout.SCRATCH / name).write_bytes(b"half")
    backed_up(room, backups)
    assert list((backups.root / layout.SCRATCH).iterdir()) == []


def test_while_a_manifest_cannot_be_read_no_object_is_swept(scene):
    """What it needs is not known, and it may be put back from a copy."""
    room, backups, manifest = scene
    room.send(b"more")
    backed_up(room, backups)
    path = backups.root / layout.manifest_file(manifest.name)
    sound = path.read_bytes()
    path.write_bytes(b"rotten")
    unneeded = "ab" * 32
    (backups.root / layout.OBJECTS / "ab").mkdir(exist_ok=True)
    (backups.root / layout.object_file(unneeded)).write_bytes(b"of a killed backup")
    hold = EngineHold(room.engine)
    hold.release()
    with pytest.raises(FilesReleased):
        backed_up(room, backups, hold)
    assert unneeded in layout.stored_objects(backups)
    path.write_bytes(sound)
    prove(backups, manifest.objects(), Pace())
    backed_up(room, backups)
    assert unneeded not in layout.stored_objects(backups)


# -- disks without room ----------------------------------------------------------------------------


def full_from(nth):
    """Return a plan by which the disk takes no byte and no name from the nth change on."""
    count = 0

    def look(kind, path):
        nonlocal count
        count += 1
        if count >= nth:
            raise OSError(errno.ENOSPC, "No space left on device", path)

    return FaultPlan(on_operation=look)


def full_but_for_removal(nth):
    """Return a plan by which the disk takes no byte and no name from the nth change on, but what it has may go."""
    full = full_from(nth).on_operation

    def look(kind, path):
        if kind not in (Operation.UNLINK, Operation.FORCE_DIRECTORY):
            full(kind, path)

    return FaultPlan(on_operation=look)


def finds_room(work):
    """Return whether it does its work; else it must say that there was no room."""
    try:
        work()
    except (OSError, JournalPoisoned) as error:
        if "No space left" not in str(error):
            raise
        return False
    return True


@pytest.mark.parametrize("verified", [False, True])
def test_wherever_room_ends_there_is_a_whole_backup_or_none_and_the_files_are_released(verified):
    room, disk = lived_in(), MemoryFilesystem()
    first = backed_up(room, disk).manifest
    room.send(b"more")
    expected = at_the_cut(room)
    for nth in range(1, 200):
        full = disk.kill_clone()
        work = partial(make_backup, room.inner, FaultFilesystem(full, full_from(nth)), verify=verified)
        if finds_room(lambda work=work: work(hold=EngineHold(room.engine), clock=clock())):
            assert nth > 10
            break
        assert room.engine.housekeeping.pins == 0
        for name in layout.backup_names(full):
            prove(full, read_manifest(full, name).objects(), Pace())
        assert first.name in layout.backup_names(full)
        if nth % 5 == 0:  # there is room again
            backed_up(room, full, verify=True)
            assert held(Room(restored(full)[0])) == expected
    else:
        pytest.fail("it never ended")


def test_wherever_room_ends_a_backup_leaves_nothing_that_no_backup_needs():
    room, disk = lived_in(), MemoryFilesystem()
    first = backed_up(room, disk).manifest
    room.send(b"more", b"v" * 50_000)
    room.flush()
    room.checkpoint()
    for nth in range(1, 200):
        full = disk.kill_clone()
        work = partial(make_backup, room.inner, FaultFilesystem(full, full_but_for_removal(nth)))
        if finds_room(lambda work=work: work(hold=EngineHold(room.engine), clock=clock())):
            assert nth > 10
            break
        if layout.backup_names(full) == [first.name]:
            assert set(layout.stored_objects(full)) == first.objects().keys(), f"full from {nth}"
    else:
        pytest.fail("it never ended")


def test_wherever_room_ends_in_a_restore_no_start_goes_on_in_the_old_time_line():
    room, backups = lived_in(), MemoryFilesystem()
    backed_up(room, backups)
    for nth in range(1, 400):
        target = MemoryFilesystem()
        full = FaultFilesystem(target, full_from(nth))
        if finds_room(partial(restore, backups, full, clock(), settings=SMALL)):
            assert nth > 20
            break
        if target.exists("restore.unfinished"):
            with pytest.raises(CorruptData, match="that was not finished"):
                Room(target)
        else:
            assert nth < 5 or Room(target).engine.starts.restored
    else:
        pytest.fail("it never ended")


# -- what goes by meanwhile ------------------------------------------------------------------------


@pytest.mark.parametrize("moment", range(6))
def test_a_compaction_may_end_and_a_queue_be_deleted_while_it_is_made(moment):
    """A compaction begins only while nobody has the files kept; one that had begun goes on to its end."""
    scene = Compacting()
    scene.fill(60)
    scene.checkpoint()
    scene.acknowledge_but(*range(3, 60, 3))
    engine = scene.room.engine
    engine.housekeeping.compactor.look()
    for job in engine.jobs(engine.now()):
        job.run()
        engine.finish(job)
    scene.acknowledge_but(*range(3, 60, 6))  # known after the cut, or before it
    scene.room.engine.sync()
    hold, backups, paths = EngineHold(engine), MemoryFilesystem(), list[str]()
    expected = [value(number) for number in range(3, 60, 6)]

    def go_by(path, done, total):
        paths.append(path)
        if len(paths) == moment + 1:
            engine.housekeeping.run_inline()
            assert [each.epoch for each in scene.store.segments] == [1, 0, 0], "it was compacted"
            scene.checkpoint()
            scene.peer.ask(messages.DeleteQueue, "q", scene.number)
            scene.checkpoint()
            engine.housekeeping.run_inline()

    make_backup(scene.room.filesystem, backups, hold, clock(), progress=go_by)
    assert len(paths) > moment
    target, _ = restored(backups)
    assert [str(each) for each in verify(target, Level.DEEP) if not each.harmless] == []
    scene.room.filesystem = target
    scene.room.start()
    scene.peer = scene.room.peer()
    assert scene.all() == expected

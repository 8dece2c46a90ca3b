"""Tests of making backups: what is in one whatever the engine does meanwhile, and when there is none."""

from __future__ import annotations

import pytest

from journal.backup import layout
from journal.backup.creation import make_backup
from journal.backup.holds import EngineHold
from journal.backup.manifest import read_manifest
from journal.backup.pace import Pace
from journal.backup.stored_directory import StoredDirectory
from journal.check import Level, verify
from journal.errors import (
    CorruptData,
    CorruptJournal,
    DirectoryLocked,
    FilesReleased,
    ForeignDirectory,
    InvalidSetting,
)
from journal.folds.table import client_folds
from journal.formats.witness import Witness, read_witness
from journal.records.record import Identified
from journal.recovery.start import recover
from journal.testing import MemoryFilesystem
from tests.backup.backup_scene import BIG, at_the_cut, backed_up, clock, held, lived_in, restored, work_on
from tests.broker.queues.compacting import Compacting, value
from tests.support.engine_room import SMALL, Room, contents, damage


def test_a_backup_holds_what_the_engine_held():
    room = lived_in()
    expected, backups = at_the_cut(room), MemoryFilesystem()
    made = backed_up(room, backups, verify=True)
    disk, told = restored(backups)
    assert held(Room(disk)) == expected
    assert [str(room.engine.transactions.live[n].xid) for n in told.waiting] == ["1:early:", "1:late:"]
    assert (made.manifest.cut, made.manifest.checkpoint) == (room.engine.forced_lsn, room.checkpoints()[-1])


def test_whatever_the_engine_does_between_two_files_the_backup_is_of_the_cut():
    room = lived_in()
    expected, backups, steps = at_the_cut(room), MemoryFilesystem(), []

    def work(path: str, done: int, total: int) -> None:
        steps.append(path)
        if len(steps) < 12:
            work_on(room, len(steps))

    backed_up(room, backups, progress=work)
    assert len(steps) > 8
    disk, _ = restored(backups)
    assert [f for f in verify(disk, Level.DEEP) if not f.harmless] == []
    assert held(Room(disk)) == expected
    assert held(room) != expected


def test_files_that_a_backup_kept_are_removed_once_it_is_made():
    room, backups = lived_in(), MemoryFilesystem()
    work_on(room, 1)
    hold = EngineHold(room.engine)
    before = set(room.journals())
    for number in range(2, 6):
        work_on(room, number)
    assert before <= set(room.journals())
    backed_up(room, backups, hold)
    assert room.engine.housekeeping.pins == 0
    room.checkpoint()
    room.engine.housekeeping.run_inline()
    assert not before <= set(room.journals())


def test_a_second_backup_writes_only_what_is_new():
    room, backups = lived_in(), MemoryFilesystem()
    first = backed_up(room, backups)
    again = backed_up(room, backups)
    assert first.written > 100_000
    assert again.written == 0  # not one byte has changed
    room.send(b"one more")
    third = backed_up(room, backups)
    shared = third.manifest.objects().keys() & first.manifest.objects().keys()
    assert len(shared) > 6
    assert [name[:6] for name in layout.backup_names(backups)] == ["000001", "000002", "000003"]


def test_an_engine_without_a_checkpoint_has_all_in_its_journal():
    room, backups = Room(), MemoryFilesystem()
    room.topic()
    room.send(b"one", b"two")
    room.flush()
    made = backed_up(room, backups, verify=True)
    assert made.manifest.checkpoint == 0
    assert Room(restored(backups)[0]).values() == [b"one", b"two"]


def test_frames_that_are_in_the_journal_below_the_checkpoint_are_in_the_backup():
    room, backups = Room(), MemoryFilesystem()
    room.topic()
    room.begin((1, b"prepared"), (2, BIG)).prepare("early").sync()
    while len(room.journals()) < 3:
        room.send(BIG)
    room.checkpoint()  # the frames are staged by the next one
    room.send(b"above")
    expected = at_the_cut(room)
    assert len(backed_up(room, backups, verify=True).manifest.files) > 4
    assert held(Room(restored(backups)[0])) == expected


def test_a_backup_has_a_witness_of_its_own_end():
    room, backups = lived_in(), MemoryFilesystem()
    hold = EngineHold(room.engine)
    room.send(b"later")
    made = backed_up(room, backups, hold).manifest
    journals = [file.path for file in made.files if file.path.endswith(".journal")]
    found = read_witness(StoredDirectory(backups, made))
    assert found == Witness(int(journals[-1][8:40]), hold.cut, hold.checkpoint, room.engine.journal.salt)


def test_starts_and_crashes_before_are_in_the_backup():
    room = lived_in()
    for seed in range(3):
        room.accept(b"never forced %d" % seed)
        room = room.crashed(seed)
        room.send(b"after crash %d" % seed)
    expected, backups = at_the_cut(room), MemoryFilesystem()
    backed_up(room, backups, verify=True)
    assert held(Room(restored(backups)[0])) == expected


def test_neither_lock_nor_spares_nor_recycled_files_are_in_a_backup():
    room, backups = lived_in(), MemoryFilesystem()
    for number in range(2, 5):
        work_on(room, number)
    assert any("recycled" in path or "spare" in path for path in contents(room.inner))
    made = backed_up(room, backups)
    folders = {file.path.rpartition("/")[0].split("/")[0] for file in made.manifest.files}
    names = {file.path.rpartition("/")[2].rpartition(".")[2] for file in made.manifest.files}
    assert folders == {"", "journal", "checkpoints", "staged", "partitions"}
    assert names <= {"witness", "journal", "checkpoint", "staged", "log", "index", "time"}


def test_what_lies_behind_the_cut_in_a_journal_file_is_not_in_the_backup():
    room, backups = lived_in(), MemoryFilesystem()
    hold = EngineHold(room.engine)
    room.send(b"a secret of later")
    backed_up(room, backups, hold)
    assert not any(b"a secret of later" in data for data in contents(backups).values())
    disk, _ = restored(backups)
    before = contents(room.inner)
    copied = {
        path: data for path, data in contents(disk).items() if path in before and path.endswith(".journal")
    }
    assert copied
    assert all(len(data) == len(before[path]) for path, data in copied.items())


def test_whose_data_it_is_is_read_from_the_journal_if_no_checkpoint_tells_it():
    room, backups = Room(), MemoryFilesystem()
    room.engine.accept(Identified("c" * 32, room.engine.now()))
    room.engine.sync()
    assert backed_up(room, backups).manifest.identity == "c" * 32
    target, _ = restored(backups, as_copy=True)
    copy = recover(target, clock(), SMALL, client_folds())
    for identity in ("", "d" * 32):
        if identity:
            copy.accept(Identified(identity, copy.now()))
        made = make_backup(target, backups, EngineHold(copy), clock())
        assert made.manifest.identity == identity


# -- when there is none ----------------------------------------------------------------------------


def nothing_made(backups: MemoryFilesystem) -> None:
    assert layout.backup_names(backups) == []
    assert [path for path in contents(backups) if path.startswith("unfinished/")] == []


def test_files_that_were_released_meanwhile_make_no_backup_even_if_all_could_be_read():
    room, backups = lived_in(), MemoryFilesystem()
    hold = EngineHold(room.engine)
    paths: list[str] = []

    def let_go(path: str, done: int, total: int) -> None:
        paths.append(path)
        if len(paths) == 3:
            hold._housekeeping.unpin(hold._pin)

    with pytest.raises(FilesReleased):
        backed_up(room, backups, hold, progress=let_go)
    assert len(paths) > 6, "it was noticed at the end"
    nothing_made(backups)


def test_files_that_are_gone_because_they_were_released_are_not_called_damage():
    room, backups = lived_in(), MemoryFilesystem()
    hold = EngineHold(room.engine)

    def let_go(path: str, done: int, total: int) -> None:
        if path.endswith(".checkpoint"):
            hold._housekeeping.unpin(hold._pin)
            for number in range(3, 6):
                work_on(room, number)

    with pytest.raises(FilesReleased):
        backed_up(room, backups, hold, progress=let_go)
    nothing_made(backups)


def test_a_reader_that_is_slow_looks_whether_the_files_are_held_and_ends_at_once():
    room, backups, now = lived_in(), MemoryFilesystem(), [0.0]
    hold, paths = EngineHold(room.engine), list[str]()

    def tick() -> float:
        now[0] += 2.0
        return now[0]

    def let_go(path: str, done: int, total: int) -> None:
        paths.append(path)
        hold._housekeeping.unpin(hold._pin)

    with pytest.raises(FilesReleased):
        backed_up(room, backups, hold, progress=let_go, pace=Pace(0, clock=tick))
    assert len(paths) == 1
    nothing_made(backups)


@pytest.mark.parametrize("ending", [".log", ".staged"])
def test_a_file_that_is_not_what_the_checkpoint_says_makes_no_backup(ending):
    room, backups = lived_in(), MemoryFilesystem()
    path = next(path for path in contents(room.inner) if path.endswith(ending))
    damage(room.inner, path, 100)
    with pytest.raises(CorruptData, match=r"not those that the checkpoint knows.*No backup was made"):
        backed_up(room, backups)
    nothing_made(backups)


def test_a_damaged_journal_makes_no_backup():
    room, backups = lived_in(), MemoryFilesystem()
    damage(room.inner, f"journal/{room.journals()[-1]:032}.journal", 8192 + 41)
    with pytest.raises(CorruptJournal, match="No backup can be made"):
        backed_up(room, backups)
    nothing_made(backups)


@pytest.mark.parametrize("ending", [".log", ".staged", ".checkpoint", ".journal"])
def test_a_file_that_is_missing_makes_no_backup(ending):
    room, backups = lived_in(), MemoryFilesystem()
    path = next(path for path in sorted(contents(room.inner), reverse=True) if path.endswith(ending))
    room.inner.unlink(path)
    with pytest.raises(CorruptData):
        backed_up(room, backups)
    nothing_made(backups)


def test_the_directory_of_another_engine_is_refused():
    room, other, backups = lived_in(), lived_in(), MemoryFilesystem()
    hold = EngineHold(room.engine)
    hold.nonce = b"x" * 16
    with pytest.raises(InvalidSetting, match="another directory than the broker's"):
        backed_up(other, backups, hold)
    nothing_made(backups)


def test_something_else_at_work_in_the_directory_of_backups_refuses_it():
    room, backups = lived_in(), MemoryFilesystem()
    backed_up(room, backups)
    lock = backups.lock(layout.LOCK)
    with pytest.raises(DirectoryLocked):
        backed_up(room, backups)
    lock.release()
    assert room.engine.housekeeping.pins == 0
    backed_up(room, backups)


def test_a_directory_of_something_else_gets_no_backups():
    room = lived_in()
    with pytest.raises(ForeignDirectory):
        backed_up(room, room.inner)


def test_an_object_that_has_rotted_is_stored_again_by_a_backup_that_verifies():
    room, backups = lived_in(), MemoryFilesystem()
    made = backed_up(room, backups)
    path = layout.object_file(next(f for f in made.manifest.files if f.path.endswith(".log")).sha256)
    damage(backups, path, 70)
    assert backed_up(room, backups).written == 0
    assert backed_up(room, backups, verify=True).written > 0
    expected = at_the_cut(room)
    assert held(Room(restored(backups, name=made.manifest.name)[0])) == expected


def test_manifests_name_no_path_outside_of_the_directory():
    room, backups = lived_in(), MemoryFilesystem()
    made = backed_up(room, backups)
    assert read_manifest(backups, made.manifest.name) == made.manifest


def test_a_compacted_segment_is_in_it_by_the_name_that_the_checkpoint_gives():
    scene = Compacting()
    scene.fill(60)
    scene.acknowledge_but(3, 30)
    scene.compact()
    scene.checkpoint()
    assert [each.epoch for each in scene.store.segments] == [1, 1, 0]
    backups = MemoryFilesystem()
    make_backup(scene.room.filesystem, backups, EngineHold(scene.room.engine), clock())
    target, _ = restored(backups)
    found = [str(each) for each in verify(target, Level.DEEP) if not each.harmless]
    assert found == []
    scene.room.filesystem = target
    scene.room.start()
    scene.peer = scene.room.peer()
    assert scene.all()[:2] == [value(3), value(30)]

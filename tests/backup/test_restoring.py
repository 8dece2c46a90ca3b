"""Tests of restores: a new time line begins, what was prepared waits, and only a sound backup to an empty directory."""

from __future__ import annotations

from functools import partial

import pytest
from msgspec.structs import replace

from journal.backup import layout
from journal.backup.holds import StoppedHold
from journal.backup.manifest import read_manifest, write_manifest
from journal.backup.pruning import prune
from journal.check import Level, verify
from journal.constants import RESTORED_STARTS, START_STRIDE
from journal.errors import (
    CorruptBackup,
    CorruptData,
    ForeignDirectory,
    InvalidSetting,
    Irreparable,
    RestoredTransaction,
    TransactionRolledBack,
    UnknownBackup,
    UnknownFormat,
)
from journal.formats.version import FORMAT, PROGRAM
from journal.formats.version_file import Written, pack_version
from journal.records.record import Identified
from journal.repair import diagnose
from journal.testing import MemoryFilesystem
from journal.transaction_states import Cause
from journal.vfs.filesystem import write_fully
from tests.backup.backup_scene import (
    at_the_cut,
    backed_up,
    clock,
    held,
    lived_in,
    prepared_of,
    restored,
    work_on,
    xid,
)
from tests.support.engine_room import Room, contents, damage, decide


@pytest.fixture
def scene():
    room, backups = lived_in(), MemoryFilesystem()
    backed_up(room, backups)
    return room, backups


def damages(disk):
    return [finding for finding in verify(disk, Level.DEEP) if not finding.harmless]


# -- the new time line -----------------------------------------------------------------------------


def test_no_number_of_the_lost_time_line_comes_again(scene):
    room, backups = scene
    for number in range(2, 5):
        work_on(room, number)
        room = room.stopped()
    disk, told = restored(backups)
    assert told.start == 2 + RESTORED_STARTS
    after = Room(disk)
    assert after.engine.start_number == told.start + 1
    assert after.engine.next_lsn > (1 + RESTORED_STARTS) * START_STRIDE > room.engine.next_lsn
    assert damages(disk) == []


def test_a_restored_directory_knows_no_start_of_the_time_line_before(scene):
    room, backups = scene
    before = room.engine.starts.newest
    disk, told = restored(backups)
    after = Room(disk)
    for again in (after, after.stopped()):
        starts = again.engine.starts
        assert not starts.knows(*before)
        assert not starts.may_have_had(*before)
        assert (starts.restored, starts.as_copy) == (told.start, False)
        again.checkpoint()


def test_a_directory_can_be_restored_from_a_backup_of_a_restored_one(scene):
    _, backups = scene
    disk, first = restored(backups)
    after = Room(disk)
    after.begin((1, b"of the second time line")).prepare("second").sync()
    backed_up(after, backups, verify=True)
    again, second = restored(backups)
    assert second.start == after.engine.start_number + 1 + RESTORED_STARTS
    assert second.start > first.start + RESTORED_STARTS
    third = Room(again)
    assert len(third.prepared()) == 3
    for name in ("early", "late", "second"):
        with pytest.raises(RestoredTransaction):
            decide(third, name, commit=False)
    assert damages(again) == []


def test_what_was_active_at_the_cut_is_rolled_back(scene):
    room, backups = scene
    active = sorted(set(room.engine.transactions.live) - set(prepared_of(room)))
    after = Room(restored(backups)[0])
    assert len(active) == 2
    for number in active:
        with pytest.raises(TransactionRolledBack):
            after.engine.transactions.commit(number, Cause.CLIENT)


# -- presumed abort --------------------------------------------------------------------------------


def test_a_restored_transaction_is_committed_as_it_was_prepared(scene):
    _, backups = scene
    after = Room(restored(backups)[0])
    decide(after, "early", commit=True)
    assert after.values()[-1] == b"prepared early"
    assert after.values(2)[-1] == b"of two"
    decide(after, "early", commit=True)  # a repetition, as ever


@pytest.mark.parametrize("starts", [0, 1, 2])
def test_a_restored_transaction_is_rolled_back_by_nobody_but_a_person(scene, starts):
    _, backups = scene
    after = Room(restored(backups)[0])
    for _ in range(starts):
        after.checkpoint()
        after = after.stopped()
    before = held(after)
    number = after.engine.transactions.find(xid("early"))
    for cause in (Cause.CLIENT, Cause.ORPHAN_POLICY):
        with pytest.raises(RestoredTransaction, match=r"may have been committed since.*nothing was changed"):
            after.engine.transactions.rollback(number, cause)
    assert held(after) == before
    after.engine.transactions.rollback(number, Cause.OPERATOR, why="looked: the row is not there")
    after.engine.sync()
    assert xid("early") not in after.prepared()
    assert after.engine.transactions.outcome(number).heuristic
    assert damages(after.stopped().inner) == []


def test_what_is_prepared_after_the_restore_is_rolled_back_as_ever(scene):
    _, backups = scene
    after = Room(restored(backups)[0])
    after.begin((1, b"new")).prepare("new").sync()
    after = after.stopped()
    decide(after, "new", commit=False)
    assert after.prepared() == {xid("early"), xid("late")}


def test_a_copy_takes_neither_decision_of_what_it_was_copied_with(scene):
    _, backups = scene
    after = Room(restored(backups, as_copy=True)[0])
    before = held(after)
    for commit in (True, False):
        with pytest.raises(RestoredTransaction, match="are a copy of"):
            decide(after, "early", commit=commit)
    assert held(after) == before
    after.begin((1, b"of the copy")).prepare("own").sync()
    decide(after, "own", commit=True)
    number = after.engine.transactions.find(xid("early"))
    after.engine.transactions.commit(number, Cause.OPERATOR, why="to see what it does")
    after.engine.sync()
    assert xid("early") not in after.prepared()


# -- what is refused -------------------------------------------------------------------------------


def test_a_backup_with_a_rotten_object_is_refused_before_anything_is_written(scene):
    _, backups = scene
    for path in [path for path in contents(backups) if path.startswith("objects/")]:
        rotten = backups.kill_clone()
        damage(rotten, path, 3)
        target = MemoryFilesystem()
        with pytest.raises(CorruptBackup, match=path):
            restored(rotten, target)
        assert contents(target) == {}
        rotten.unlink(path)
        with pytest.raises(CorruptBackup, match="missing"):
            restored(rotten, target)
        assert contents(target) == {}


def test_a_rotten_manifest_is_refused(scene):
    _, backups = scene
    path = layout.manifest_file(layout.backup_names(backups)[0])
    for position in (3, 80, 400):
        rotten = backups.kill_clone()
        damage(rotten, path, position)
        with pytest.raises(CorruptBackup, match="fails its checksum"):
            restored(rotten)


def test_a_backup_of_a_newer_format_is_refused_by_name_before_anything_is_written(scene):
    _, backups = scene
    newer = backups.kill_clone()
    manifest = read_manifest(newer, layout.backup_names(newer)[-1])
    assert (manifest.format, manifest.program) == (FORMAT, PROGRAM)
    newer.make_directory(layout.SCRATCH)
    write_manifest(newer, replace(manifest, format=FORMAT + 1, program="7.7.0"))
    target = MemoryFilesystem()
    words = rf"is of format {FORMAT + 1}, made by txbroker 7\.7\.0; this is txbroker {PROGRAM}.*7\.7\.0 or a newer"
    with pytest.raises(UnknownFormat, match=words):
        restored(newer, target)
    assert contents(target) == {}


def test_a_directory_of_a_newer_format_is_not_backed_up():
    disk = lived_in().inner.kill_clone()
    file = disk.open("txbroker.version")
    written = pack_version(Written(FORMAT + 1, "7.7.0"))
    file.truncate(len(written))
    write_fully(file, 0, [written])
    file.close()
    with pytest.raises(UnknownFormat, match=r"written by txbroker 7\.7\.0"):
        stopped_backup(disk, MemoryFilesystem())


def test_nothing_is_restored_over_other_files(scene):
    room, backups = scene
    target = MemoryFilesystem()
    target.open("mine", create=True)
    for disk in (target, room.inner.kill_clone()):
        before = contents(disk)
        with pytest.raises(ForeignDirectory, match="not empty"):
            restored(backups, disk)
        assert contents(disk) == before


def test_a_backup_that_is_not_there_is_not_restored(scene):
    _, backups = scene
    for name in ("000009-20260101T000000Z", "../../etc"):
        with pytest.raises(UnknownBackup):
            restored(backups, name=name)
    with pytest.raises(UnknownBackup):
        restored(MemoryFilesystem())


def test_a_directory_of_backups_is_no_data_directory(scene):
    _, backups = scene
    before = contents(backups)
    with pytest.raises(ForeignDirectory):
        Room(backups)
    assert contents(backups) == before


def test_an_unfinished_restore_is_neither_started_nor_repaired_nor_backed_up(scene):
    _, backups = scene
    disk, _ = restored(backups)
    disk.open("restore.unfinished", create=True).force()
    with pytest.raises(CorruptData, match="that was not finished"):
        Room(disk)
    with pytest.raises(Irreparable, match="that was not finished"):
        diagnose(disk)
    assert [finding.path for finding in damages(disk)] == ["restore.unfinished"]
    with pytest.raises(CorruptData, match="that was not finished"):
        stopped_backup(disk, MemoryFilesystem())


# -- directories that nobody has open --------------------------------------------------------------


def stopped_backup(disk, backups):
    from journal.backup.creation import make_backup

    return make_backup(disk, backups, StoppedHold(disk, disk.lock("lock")), clock())


def test_a_directory_that_nobody_has_open_is_backed_up_to_its_end():
    room, backups = lived_in(), MemoryFilesystem()
    expected = at_the_cut(room)
    room.engine.close()
    stopped_backup(room.inner, backups)
    assert held(Room(restored(backups)[0])) == expected
    assert room.inner.locked == set()


# -- prune -----------------------------------------------------------------------------------------


def test_prune_keeps_the_newest_and_all_that_they_need():
    room, backups, states = lived_in(), MemoryFilesystem(), {}
    for number in range(2, 6):
        states[backed_up(room, backups).manifest.name] = at_the_cut(room)
        work_on(room, number)
    names = list(states)
    objects = len(layout.stored_objects(backups))
    pruned = prune(backups, keep=2)
    assert pruned.removed == names[:2]
    assert layout.backup_names(backups) == names[2:]
    assert 0 < pruned.objects == objects - len(layout.stored_objects(backups))
    for name in names[2:]:
        assert held(Room(restored(backups, name=name)[0])) == states[name]
    with pytest.raises(UnknownBackup):
        restored(backups, name=names[0])


def two_of_data():
    """Return a directory with two backups of some data, then two of other data, and the names of both."""
    backups, names = MemoryFilesystem(), []
    for identity in ("a" * 32, "b" * 32):
        room = lived_in()
        room.engine.accept(Identified(identity, room.engine.now()))
        room.engine.sync()
        names.append([backed_up(room, backups).manifest.name for _ in range(2)])
    return backups, names


def test_prune_counts_the_backups_of_each_data_directory():
    backups, (first, second) = two_of_data()
    pruned = prune(backups, keep=1)
    assert pruned.removed == [first[0], second[0]]
    assert layout.backup_names(backups) == [first[1], second[1]]
    assert set(pruned.data.values()) == {"a" * 32, "b" * 32}
    restored(backups, name=first[1])


def test_prune_removes_nothing_if_the_only_backup_of_some_data_may_be_the_one_that_cannot_be_read():
    backups, (first, second) = two_of_data()
    damage(backups, layout.manifest_file(first[1]), 100)
    before = contents(backups)
    with pytest.raises(CorruptBackup, match=r"removing the file: 'txbroker backup prune'"):
        prune(backups, keep=2)
    assert contents(backups) == before
    backups.unlink(layout.manifest_file(first[1]))
    assert prune(backups, keep=2).removed == []
    assert layout.backup_names(backups) == [first[0], *second]


def test_the_newest_backup_is_restored_only_if_all_are_of_the_same_data():
    backups, (first, second) = two_of_data()
    with pytest.raises(InvalidSetting, match=f"{'a' * 32}: {first[1]}") as refused:
        restored(backups)
    assert second[1] in str(refused.value)
    assert restored(backups, name=first[1])[1].manifest.identity == "a" * 32
    for name in first:
        damage(backups, layout.manifest_file(name), 100)
    assert restored(backups)[1].manifest.name == second[1], "what cannot be read does not keep it from being"


def test_prune_does_not_count_a_backup_of_which_something_is_missing_or_cut(scene):
    room, backups = scene
    names = [layout.backup_names(backups)[0]]
    for number in range(2, 5):
        work_on(room, number)
        names.append(backed_up(room, backups).manifest.name)
    for name, harm in ((names[3], backups.unlink), (names[2], partial(cut_short, backups))):
        others = {d for each in names if each != name for d in read_manifest(backups, each).objects()}
        harm(layout.object_file(next(d for d in read_manifest(backups, name).objects() if d not in others)))
    pruned = prune(backups, keep=1)
    assert (pruned.removed, list(pruned.damaged)) == (names[:1], [names[3], names[2]])
    restored(backups, name=names[1])


def cut_short(backups, path):
    file = backups.open(path)
    file.truncate(file.size() - 1)
    file.close()


def test_prune_removes_nothing_if_it_does_not_know_what_is_needed(scene):
    room, backups = scene
    work_on(room, 2)
    backed_up(room, backups)
    for name in layout.backup_names(backups):
        rotten = backups.kill_clone()
        damage(rotten, layout.manifest_file(name), 100)
        before = contents(rotten)
        with pytest.raises(CorruptBackup):
            prune(rotten, keep=2)
        assert contents(rotten) == before


def test_prune_removes_a_rotten_backup_that_is_too_old(scene):
    room, backups = scene
    backed_up(room, backups)
    damage(backups, layout.manifest_file(layout.backup_names(backups)[0]), 100)
    assert len(prune(backups, keep=1).removed) == 1
    restored(backups)

"""Power cuts at every change that a backup, a restore and a prune make to a disk (decision 0064)."""

from __future__ import annotations

import pytest

from journal.backup import layout
from journal.backup.creation import make_backup
from journal.backup.holds import EngineHold
from journal.backup.manifest import read_manifest
from journal.backup.pruning import prune
from journal.backup.restoring import restore
from journal.constants import RESTORED_STARTS
from journal.errors import CorruptData, FilesReleased
from journal.formats import filenames
from journal.testing import FaultFilesystem, FaultPlan, MemoryFilesystem, PowerCut, cut_power_at
from tests.backup.backup_scene import at_the_cut, backed_up, clock, held, lived_in, restored, work_on
from tests.support.engine_room import SMALL, Room

SURVIVALS = (0.0, 1.0, None)
PARTS = 6
"""Each test is cut into so many parts, of which all but some are deep."""
in_parts = pytest.mark.parametrize(
    "part", [pytest.param(n, marks=[] if n == 1 else pytest.mark.deep) for n in range(PARTS)]
)


def cuts(disk, work, part):
    """Yield what each PARTS-th power cut before one of the changes of ``work`` may leave, and its number."""
    for nth in range(1 + part, 10_000, PARTS):
        cut = disk.kill_clone()
        try:
            work(FaultFilesystem(cut, FaultPlan(on_operation=cut_power_at(nth))))
        except PowerCut:
            for survive in SURVIVALS:
                yield nth, cut.crash_clone(nth, survive)
        else:
            assert nth > 10
            return


def cut_at_last(disk, work):
    """Return what a power cut before the last change of ``work`` leaves, if that is all that is lost."""
    changes = []
    work(FaultFilesystem(disk.kill_clone(), FaultPlan(on_operation=lambda kind, path: changes.append(path))))
    cut = disk.kill_clone()
    with pytest.raises(PowerCut):
        work(FaultFilesystem(cut, FaultPlan(on_operation=cut_power_at(len(changes)))))
    return cut


def check_all(backups, states, where):
    """Whatever is listed is whole, and what was listed before still is."""
    if not backups.exists(layout.MANIFESTS):
        return set()
    names = layout.backup_names(backups)
    for name in names:
        disk, _ = restored(backups, name=name)
        assert held(Room(disk)) == states[name], f"{name}, {where}"
    return set(names)


@in_parts
def test_a_power_cut_during_a_backup_leaves_a_whole_one_or_none(part):
    room, disk, states = lived_in(), MemoryFilesystem(), {}
    first = backed_up(room, disk).manifest.name
    states[first] = at_the_cut(room)
    work_on(room, 3)
    second = layout.backup_name(2, first[7:])
    states[second] = at_the_cut(room)

    def work(backups):
        make_backup(room.inner, backups, EngineHold(room.engine), clock(), verify=part % 2 == 0)

    for nth, after in cuts(disk, work, part):
        found = check_all(after, states, f"cut at {nth}")
        assert first in found
        if nth % 7 == 0:
            states[layout.backup_name(len(found) + 1, first[7:])] = states[second]
            backed_up(room, after, verify=True)
            prune(after, keep=9)
            assert len(check_all(after, states, f"again, cut at {nth}")) == len(found) + 1
    assert room.engine.housekeeping.pins == 0


@in_parts
def test_a_power_cut_during_the_first_backup_leaves_a_directory_that_takes_the_next(part):
    room, disk = lived_in(), MemoryFilesystem()
    expected = at_the_cut(room)

    def work(backups):
        make_backup(room.inner, backups, EngineHold(room.engine), clock())

    for _, after in cuts(disk, work, part):
        backed_up(room, after)
        assert held(Room(restored(after)[0])) == expected


@in_parts
def test_a_power_cut_during_a_prune_leaves_whole_backups(part):
    room, disk, states = lived_in(), MemoryFilesystem(), {}
    for number in range(2, 6):
        states[backed_up(room, disk).manifest.name] = at_the_cut(room)
        work_on(room, number)
    for nth, after in cuts(disk, lambda backups: prune(backups, keep=2), part):
        found = check_all(after, states, f"cut at {nth}")
        assert set(list(states)[2:]) <= found
        prune(after, keep=2)
        assert len(check_all(after, states, f"again, cut at {nth}")) == 2
        assert set(layout.stored_objects(after)) == needed_in(after)


def objects_of(backups, name):
    return read_manifest(backups, name).objects()


def needed_in(backups):
    """Return the objects that the backups need."""
    return {name for each in layout.backup_names(backups) for name in objects_of(backups, each)}


@in_parts
def test_what_a_backup_left_that_was_cut_is_removed_by_the_next_one_whether_it_is_made_or_fails(part):
    room, disk, states = lived_in(), MemoryFilesystem(), {}
    states[backed_up(room, disk).manifest.name] = at_the_cut(room)
    work_on(room, 3)
    states[layout.backup_name(2, next(iter(states))[7:])] = at_the_cut(room)

    def work(backups):
        make_backup(room.inner, backups, EngineHold(room.engine), clock())

    left = 0
    for which, (nth, after) in enumerate(cuts(disk, work, part)):
        left += set(layout.stored_objects(after)) > needed_in(after)
        if which % 2:
            hold = EngineHold(room.engine)
            hold.release()
            with pytest.raises(FilesReleased):
                backed_up(room, after, hold)
        else:
            backed_up(room, after)
        assert set(layout.stored_objects(after)) == needed_in(after), f"cut at {nth}"
        assert after.list_directory(layout.SCRATCH) == []
        check_all(after, states | {name: at_the_cut(room) for name in layout.backup_names(after)[1:]}, nth)
    assert left > 3


def test_a_sweep_removes_nothing_of_a_backup_that_a_power_cut_may_bring_back():
    """A killed prune has unlinked its manifest, and nobody has forced that."""
    room, disk, states = lived_in(), MemoryFilesystem(), {}
    for number in (2, 3):
        states[backed_up(room, disk).manifest.name] = at_the_cut(room)
        work_on(room, number)

    def kill(kind, path):
        if path == layout.MANIFESTS:
            raise PowerCut

    with pytest.raises(PowerCut):
        prune(FaultFilesystem(disk, FaultPlan(on_operation=kill)), keep=1)
    assert len(layout.backup_names(disk)) == 1
    for nth in range(1, 40):
        killed = disk.kill_clone()
        hold = EngineHold(room.engine)
        hold.release()
        with pytest.raises((PowerCut, FilesReleased)):
            backed_up(room, FaultFilesystem(killed, FaultPlan(on_operation=cut_power_at(nth))), hold)
        for survive in SURVIVALS:
            found = check_all(killed.crash_clone(nth, survive), states, f"cut at {nth}")
            assert found >= set(list(states)[1:])


@in_parts
def test_a_power_cut_during_a_restore_leaves_what_no_start_goes_past_or_a_new_time_line(part):
    room, backups = lived_in(), MemoryFilesystem()
    backed_up(room, backups)
    expected = at_the_cut(room)

    def work(target):
        restore(backups, target, clock(), settings=SMALL)

    for nth, after in cuts(MemoryFilesystem(), work, part):
        if nth % 2:  # a second cut, in the start that meets what the first one left
            try:
                Room(after, cut_at=1 + nth % 5)
            except (PowerCut, CorruptData):
                after = after.crash_clone(nth)
        if after.exists(filenames.RESTORE):
            with pytest.raises(CorruptData, match="that was not finished"):
                Room(after)
            continue
        started = Room(after)
        if not started.engine.catalog.stores:
            assert started.engine.start_number < 3, "nothing was there yet"
            continue
        assert started.engine.start_number > RESTORED_STARTS
        assert started.engine.starts.restored
        assert held(started) == expected, f"cut at {nth}"


def test_before_its_last_change_a_restore_is_either_unfinished_or_whole():
    room, backups = lived_in(), MemoryFilesystem()
    backed_up(room, backups)
    cut = cut_at_last(MemoryFilesystem(), lambda target: restore(backups, target, clock(), settings=SMALL))
    with pytest.raises(CorruptData, match="that was not finished"):
        Room(cut.crash_clone(0, 0.0))
    assert held(Room(cut.crash_clone(0, 1.0))) == at_the_cut(room)


def test_before_its_last_change_a_backup_is_either_there_or_not():
    room = lived_in()

    def work(backups):
        make_backup(room.inner, backups, EngineHold(room.engine), clock())

    disk = MemoryFilesystem()
    backed_up(room, disk)
    cut = cut_at_last(disk, work)
    assert [len(layout.backup_names(cut.crash_clone(0, survive))) for survive in (0.0, 1.0)] == [1, 2]


def test_what_has_returned_survives_the_next_power_cut():
    room, backups = lived_in(), MemoryFilesystem()
    states = {backed_up(room, backups).manifest.name: at_the_cut(room)}
    backups = backups.crash_clone(1, 0.0)
    assert check_all(backups, states, "after the first backup") == set(states)
    disk, _ = restored(backups)
    assert held(Room(disk.crash_clone(2, 0.0))) == at_the_cut(room)
    work_on(room, 3)
    states[backed_up(room, backups).manifest.name] = at_the_cut(room)
    backups = backups.crash_clone(3, 0.0)
    assert check_all(backups, states, "after the second backup") == set(states)
    prune(backups, keep=1)
    assert len(check_all(backups.crash_clone(4, 0.0), states, "after the prune")) == 1

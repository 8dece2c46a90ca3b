"""Test that a start checks its disk for space for new work: it refuses without data, and logs a note with data."""

from __future__ import annotations

import pytest

from journal.constants import KIB, MIB
from journal.engine.disk_space import shortage
from journal.engine.settings import JournalSettings
from journal.errors import DiskFull
from journal.formats import filenames
from journal.recovery.start import recover
from journal.testing import ManualClock, MemoryFilesystem
from tests.support.engine_room import Room, decide

SETTINGS = JournalSettings(file_bytes=256 * KIB, low_water_bytes=2 * MIB)
NEEDED = 4 * SETTINGS.file_bytes + SETTINGS.low_water_bytes


def test_an_empty_directory_needs_room_for_three_files_and_what_stays_free() -> None:
    recover(MemoryFilesystem(free=NEEDED), ManualClock(), SETTINGS)
    with pytest.raises(DiskFull, match=r"3\.0 MiB are free on the disk, 3\.0 MiB are needed") as refused:
        recover(MemoryFilesystem(free=NEEDED - 1), ManualClock(), SETTINGS)
    for said in ("low_water_bytes=2.0 MiB", "file_bytes=0.2 MiB", "nothing was written"):
        assert said in str(refused.value)


def test_a_refused_first_start_leaves_no_file_and_the_next_one_with_room_succeeds() -> None:
    filesystem = MemoryFilesystem(free=0)
    with pytest.raises(DiskFull):
        recover(filesystem, ManualClock(), SETTINGS)
    for path in (filenames.BALLAST, filenames.SPARE_NEXT, filenames.WITNESS):
        assert not filesystem.exists(path)
    assert filesystem.list_directory(filenames.JOURNAL_DIRECTORY) == []
    filesystem.free = NEEDED
    recover(filesystem, ManualClock(), SETTINGS)


def test_what_is_laid_out_already_is_not_needed_again() -> None:
    filesystem = MemoryFilesystem()
    recover(filesystem, ManualClock(), SETTINGS).housekeeping.run_inline()
    filesystem.free = SETTINGS.low_water_bytes + SETTINGS.file_bytes
    assert shortage(filesystem, SETTINGS, 0) == ""
    filesystem.free -= 1
    assert "0.0 MiB for files that are laid out ahead" in shortage(filesystem, SETTINGS, 0)


@pytest.mark.parametrize("lack", [0, 1])
def test_a_directory_with_data_is_started_and_says_that_it_refuses_new_work(lack) -> None:
    filesystem = MemoryFilesystem()
    recover(filesystem, ManualClock(), SETTINGS).housekeeping.run_inline()
    full = filesystem.kill_clone()
    full.free = SETTINGS.low_water_bytes + 2 * SETTINGS.file_bytes - lack  # the start takes the spare
    engine = recover(full, ManualClock(), SETTINGS)
    assert [note.startswith("NEW WORK IS REFUSED (DiskFull): ") for note in engine.report.notes] == [
        True
    ] * lack
    assert engine.housekeeping.free_bytes == full.free
    assert engine.housekeeping.reserve_bytes == SETTINGS.low_water_bytes + SETTINGS.file_bytes


# -- what is under way ---------------------------------------------------------------------------


def at_work(room_left: int) -> Room:
    """An engine that was told at its last look that there is so much room for new work."""
    room = Room(settings=SETTINGS)
    room.topic()
    room.engine.housekeeping.run_inline()
    room.plan.free_bytes = SETTINGS.low_water_bytes + SETTINGS.file_bytes + room_left
    room.engine.housekeeping.watch_space()
    return room


def looked(room: Room) -> bool:
    room.engine.housekeeping.watch_space()
    return bool(room.engine.full)


def test_between_two_looks_no_more_is_taken_than_there_is_room_for() -> None:
    room = at_work(3 * 100 * KIB)
    accepted = 0
    while not room.engine.full:
        room.accept(b"v" * 10 * KIB)
        accepted += 10 * KIB
    assert 100 * KIB <= accepted <= 110 * KIB


def test_what_is_accepted_and_not_written_yet_needs_its_room_at_the_next_look() -> None:
    room = at_work(3 * 50 * KIB)
    room.accept(b"v" * 48 * KIB)
    assert not room.engine.full
    assert not looked(room), "in the journal, in a segment, and staged it may come to be"
    room.plan.free_bytes -= 20 * KIB
    assert looked(room)
    room.engine.sync()
    assert not looked(room), "the journal has it"
    room.flush()
    assert not looked(room)


def test_what_is_staged_needs_the_room_of_its_commit() -> None:
    room = at_work(2 * 50 * KIB)
    room.begin((1, b"v" * 49 * KIB)).prepare("p").sync()
    assert not looked(room)
    room.plan.free_bytes -= 4 * KIB
    assert looked(room)
    decide(room, "p", commit=True)
    assert not looked(room), "in one segment, and in none of the staged files"


def test_the_next_journal_file_needs_its_room_before_it_is_filled() -> None:
    room = at_work(SETTINGS.file_bytes)
    room.inner.unlink(filenames.SPARE_NEXT)
    assert not looked(room)
    room.plan.free_bytes -= 1
    assert looked(room)
    room.engine.housekeeping.run_inline()
    assert not room.inner.exists(filenames.SPARE_NEXT)

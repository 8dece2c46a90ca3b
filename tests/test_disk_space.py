"""A start says whether its disk has room for new work: refused while there are no data, told in a note with data."""

from __future__ import annotations

import pytest

from journal import filenames
from journal.constants import KIB, MIB
from journal.disk_space import shortage
from journal.errors import DiskFull
from journal.journal_settings import JournalSettings
from journal.recovery import recover
from journal.testing import ManualClock, MemoryFilesystem

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

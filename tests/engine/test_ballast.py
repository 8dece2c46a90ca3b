"""Test the ballast: space that can be freed when a disk is too full for recovery."""

from __future__ import annotations

import errno

from journal.constants import KIB
from journal.engine.settings import JournalSettings
from journal.formats import filenames
from journal.recovery.start import recover
from journal.testing import Fault, FaultFilesystem, ManualClock, MemoryFilesystem, Operation

SETTINGS = JournalSettings(file_bytes=256 * KIB, low_water_bytes=0)


def test_a_start_lays_ballast_down_once() -> None:
    filesystem = MemoryFilesystem()
    engine = recover(filesystem, ManualClock(), SETTINGS)
    engine.housekeeping.run_inline()
    assert filesystem.open(filenames.BALLAST).size() == SETTINGS.file_bytes


def test_ballast_that_has_been_laid_survives_a_power_cut() -> None:
    filesystem = MemoryFilesystem()
    recover(filesystem, ManualClock(), SETTINGS).housekeeping.run_inline()
    survivor = filesystem.crash_clone(1, survive=0)
    assert survivor.open(filenames.BALLAST).size() == SETTINGS.file_bytes


def test_a_start_on_a_full_disk_gives_the_ballast_up_and_says_so() -> None:
    filesystem = MemoryFilesystem()
    recover(filesystem, ManualClock(), SETTINGS).housekeeping.run_inline()
    full = filesystem.kill_clone()
    full.free = SETTINGS.file_bytes
    engine = recover(full, ManualClock(), SETTINGS)
    assert not full.exists(filenames.BALLAST)
    assert any("ballast" in note for note in engine.report.notes)


def test_a_disk_that_fills_up_meanwhile_costs_only_the_ballast() -> None:
    full = Fault(Operation.WRITE, path=filenames.BALLAST, error=errno.ENOSPC)
    filesystem = FaultFilesystem(MemoryFilesystem())
    engine = recover(filesystem, ManualClock(), SETTINGS)
    filesystem.plan.faults.append(full)
    engine.housekeeping.run_inline()
    assert not filesystem.exists(filenames.BALLAST)
    assert not engine.failed


def test_ballast_that_a_power_cut_or_a_person_left_short_is_filled_up_at_the_next_start() -> None:
    filesystem = MemoryFilesystem()
    recover(filesystem, ManualClock(), SETTINGS).housekeeping.run_inline()
    for size in (0, 100, SETTINGS.file_bytes - 1):
        short = filesystem.kill_clone()
        short.open(filenames.BALLAST).truncate(size)
        recover(short, ManualClock(), SETTINGS).housekeeping.run_inline()
        assert short.open(filenames.BALLAST).size() == SETTINGS.file_bytes

"""Settings of an engine: the defaults and bounds are fine, one step beyond is refused by name, nothing is started."""

import msgspec
import pytest

from journal.constants import BLOCK, MIB
from journal.errors import InvalidSetting
from journal.journal_settings import JournalSettings
from journal.recovery import recover
from journal.settings import MAX_AGE
from journal.testing import ManualClock, MemoryFilesystem

BOUNDS = {
    "pool_bytes": (MIB, 1 << 40),
    "file_bytes": (4 * BLOCK, 1 << 34),
    "checkpoint_bytes": (BLOCK, 1 << 40),
    "checkpoint_interval": (1000, 1 << 50),
    "low_water_bytes": (0, 1 << 50),
    "open_files": (8, 1 << 20),
    "max_partitions": (1, 1 << 24),
    "outcome_archive_bytes": (MIB, 1 << 62),
    "outcome_archive_age": (0, MAX_AGE),
}


def test_the_defaults_are_allowed():
    settings = JournalSettings()
    assert settings.check() is settings


def test_every_setting_has_bounds():
    assert set(BOUNDS) == set(JournalSettings.__struct_fields__) - {"limits", "outcome_archive"}


@pytest.mark.parametrize("name", BOUNDS)
@pytest.mark.parametrize("end", [0, 1])
def test_a_bound_is_allowed_and_the_step_beyond_it_is_not(name, end):
    bound = BOUNDS[name][end]
    JournalSettings(**{name: bound}).check()
    low, high = BOUNDS[name]
    beyond = bound + (1 if end else -1)
    with pytest.raises(InvalidSetting, match=rf"{name} is {beyond}, it must be {low} to {high}; nothing"):
        JournalSettings(**{name: beyond}).check()


def test_an_engine_with_a_wrong_setting_is_not_started_and_its_directory_not_touched():
    filesystem = MemoryFilesystem()
    with pytest.raises(InvalidSetting):
        recover(filesystem, ManualClock(), JournalSettings(open_files=1))
    assert filesystem.list_directory("") == []


def test_settings_cannot_change_under_an_engine():
    with pytest.raises(AttributeError):
        JournalSettings().pool_bytes = 1
    assert msgspec.structs.replace(JournalSettings(), pool_bytes=MIB).pool_bytes == MIB

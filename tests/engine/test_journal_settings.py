"""Settings of an engine: the defaults and bounds are fine, one step beyond is refused by name, nothing is started."""

import msgspec
import pytest

from journal.constants import MIB
from journal.engine.settings import RANGES, JournalSettings
from journal.errors import InvalidSetting
from journal.quantities import quantities_of, shown, written
from journal.recovery.start import recover
from journal.testing import ManualClock, MemoryFilesystem


def test_the_defaults_are_allowed():
    settings = JournalSettings()
    assert settings.check() is settings


def test_every_setting_has_bounds():
    assert set(RANGES) == set(JournalSettings.__struct_fields__) - {"limits", "outcome_archive"}


@pytest.mark.parametrize("name", RANGES)
@pytest.mark.parametrize("end", [0, 1])
def test_a_bound_is_allowed_and_the_step_beyond_it_is_not(name, end):
    bound = RANGES[name][end]
    JournalSettings(**{name: bound}).check()
    low, high = RANGES[name]
    beyond = bound + (1 if end else -1)
    quantity = quantities_of(JournalSettings)[name]
    ends = f"from {written(quantity, low)} to {written(quantity, high)}"
    with pytest.raises(
        InvalidSetting, match=rf"{name} is {shown(quantity, beyond)}, .* {ends}.*; nothing was started"
    ):
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

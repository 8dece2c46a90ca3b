import msgspec
import pytest

from journal.quantities import quantities_of, written
from txbroker.broker.sessions.settings import OPTIONAL, RANGES, BrokerSettings, OrphanAction
from txbroker.errors import InvalidSetting


def test_every_number_has_a_range_and_the_defaults_are_within():
    numbers = set(BrokerSettings.__struct_fields__) - {"orphan_action"}
    assert set(RANGES) == numbers
    BrokerSettings()


@pytest.mark.parametrize("name", sorted(RANGES))
def test_the_ends_of_a_range_are_allowed_and_what_is_beyond_is_refused_by_name(name):
    least, greatest = RANGES[name]
    others = {"max_request": RANGES["max_request"][1]} if name == "max_frame" else {}
    others |= {"max_frame": RANGES["max_frame"][0]} if name == "max_request" else {}
    for value in (least, greatest):
        assert getattr(BrokerSettings(**{name: value}, **others), name) == value
    for value in (least - 1, greatest + 1, "many", 1.5, True):
        bounds = [written(quantities_of(BrokerSettings)[name], end) for end in (least, greatest)]
        with pytest.raises(InvalidSetting, match=f"{name} is .* from {bounds[0]} to {bounds[1]}"):
            BrokerSettings(**{name: value}, **others)


@pytest.mark.parametrize("name", sorted(RANGES))
def test_none_switches_off_only_what_may_be_off(name):
    if name in OPTIONAL:
        assert getattr(BrokerSettings(**{name: None}), name) is None
    else:
        with pytest.raises(InvalidSetting, match=name):
            BrokerSettings(**{name: None})


def test_a_frame_must_fit_into_a_request():
    with pytest.raises(InvalidSetting, match="max_frame is 2KiB, it must be at most max_request"):
        BrokerSettings(max_frame=2048, max_request=1024)


def test_the_orphan_action_is_one_of_three():
    assert BrokerSettings(orphan_action=OrphanAction.COMMIT).orphan_action == "commit"
    with pytest.raises(InvalidSetting, match="alert, rollback, commit"):
        BrokerSettings(orphan_action="shrug")


def test_settings_come_from_plain_values():
    assert (
        msgspec.convert({"orphan_action": "rollback"}, BrokerSettings).orphan_action is OrphanAction.ROLL_BACK
    )
    with pytest.raises(msgspec.ValidationError, match="max_sesions"):
        msgspec.convert({"max_sesions": 3}, BrokerSettings)

import msgspec
import pytest
from zope.interface.verify import verifyObject

from journal.errors import InvalidSetting
from journal.force_policy import ForcePolicy
from journal.interfaces import IForcePolicy
from journal.settings import OPTIONAL, RANGES, TopicSettings, check_setting


def test_the_policy_keeps_its_contract():
    assert verifyObject(IForcePolicy, ForcePolicy())


@pytest.mark.parametrize(
    ("messages", "age", "due"),
    [
        (0, 0, False),
        (999, 9_999_999, False),
        (1_000, 0, True),
        (1, 10_000_000, True),
        (0, 10_000_000, False),
    ],
)
def test_a_tail_is_due_after_a_thousand_messages_or_ten_seconds(messages, age, due):
    assert ForcePolicy().due(messages, age) is due


def test_a_topic_sets_its_own_policy():
    policy = ForcePolicy.of(TopicSettings(force_messages=5, force_interval=2_000))
    assert (policy.messages, policy.interval) == (5, 2_000)
    assert policy.due(5, 0)
    assert policy.due(1, 2_000)
    assert not policy.due(4, 1_999)


@pytest.mark.parametrize(
    "values", [(0, 1_000), (-1, 1_000), (1, 999), (1, 1 << 60), (1.5, 1_000), (True, 1_000)]
)
def test_a_policy_out_of_range_is_refused(values):
    with pytest.raises(InvalidSetting, match=r"force_(messages|interval) is .* from \d+ to \d+"):
        ForcePolicy(*values)


def test_the_default_settings_are_allowed():
    TopicSettings().check()


@pytest.mark.parametrize("name", RANGES)
def test_every_setting_takes_its_ends_and_nothing_beyond(name):
    for value, fine in zip(
        (RANGES[name][0], RANGES[name][1], RANGES[name][0] - 1, RANGES[name][1] + 1, "1", None),
        (True, True, False, False, False, name in OPTIONAL),
        strict=True,
    ):
        settings = msgspec.structs.replace(TopicSettings(), **{name: value})
        if fine:
            settings.check()
            continue
        with pytest.raises(InvalidSetting) as caught:
            settings.check()
        for word in (name, repr(value), str(RANGES[name][0]), str(RANGES[name][1])):
            assert word in str(caught.value)


def test_every_setting_has_a_range():
    assert set(TopicSettings.__struct_fields__) == set(RANGES)


def test_an_unknown_setting_is_refused_with_the_known_ones():
    with pytest.raises(InvalidSetting, match=r"'colour'.*segment_bytes"):
        check_setting("colour", 1)


def test_settings_of_an_older_release_are_read_with_defaults_for_the_rest():
    old = msgspec.msgpack.encode([7, 20_000])
    assert msgspec.msgpack.decode(old, type=TopicSettings) == TopicSettings(7, 20_000)

import re
from datetime import timedelta

import msgspec
import pytest
from zope.interface.verify import verifyObject

from journal.errors import InvalidSetting
from journal.interfaces import IForcePolicy
from journal.log.force_policy import ForcePolicy
from journal.quantities import shown, written
from journal.settings import (
    OPTIONAL,
    QUANTITIES,
    RANGES,
    TopicChoices,
    TopicSettings,
    check_setting,
    topic_settings,
)


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
    with pytest.raises(InvalidSetting, match=r"force_(messages|interval) is .* from \w+ to \w+"):
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
        quantity = QUANTITIES[name]
        bounds = f"from {written(quantity, RANGES[name][0])} to {written(quantity, RANGES[name][1])}"
        assert f"{name} is {shown(quantity, value)}, it must be a {quantity} {bounds}" in str(caught.value)


def test_every_setting_has_a_range():
    assert (
        set(TopicSettings.__struct_fields__)
        == set(RANGES)
        == set(QUANTITIES)
        == set(TopicChoices.__annotations__)
    )


def test_an_unknown_setting_is_refused_with_the_known_ones():
    with pytest.raises(InvalidSetting, match=r"'colour'.*segment_bytes"):
        check_setting("colour", 1)


class TestWhatIsChosenInPython:
    """As keyword arguments of ``create_topic``: durations in seconds."""

    @pytest.mark.parametrize(
        ("given", "micros"),
        [(7 * 86_400, 604_800_000_000), (0.5, 500_000), (timedelta(days=7), 604_800_000_000), (0, 0)],
    )
    def test_a_number_is_seconds_and_a_timedelta_is_what_it_is(self, given, micros):
        assert topic_settings({"retention_age": given}).retention_age == micros

    def test_what_is_left_out_has_its_default(self):
        assert topic_settings({}) == TopicSettings()
        assert topic_settings({"segment_bytes": 1 << 20}) == TopicSettings(segment_bytes=1 << 20)
        assert topic_settings({"retention_age": None}).retention_age is None

    def test_microseconds_meant_as_seconds_are_out_of_range_and_shown_as_what_they_would_be(self):
        with pytest.raises(
            InvalidSetting, match="retention_age is 7000000d, it must be a duration from 0s to 36600d"
        ):
            topic_settings({"retention_age": 7 * 86_400 * 1_000_000})

    @pytest.mark.parametrize("value", ["7d", True, b"7", float("nan"), float("inf"), [], None])
    def test_what_is_no_duration_is_refused_with_what_one_is(self, value):
        with pytest.raises(
            InvalidSetting, match=r"force_interval: .* number of seconds or a datetime\.timedelta"
        ):
            topic_settings({"force_interval": value})

    @pytest.mark.parametrize("value", [-1, timedelta(seconds=-1)])
    def test_a_negative_duration_is_out_of_range(self, value):
        with pytest.raises(InvalidSetting, match="retention_age is -1000000, it must be a duration from 0s"):
            topic_settings({"retention_age": value})

    @pytest.mark.parametrize("value", [1e6, "1MiB", True])
    def test_a_size_is_an_int(self, value):
        with pytest.raises(InvalidSetting, match=re.escape(f"segment_bytes is {value!r}, it must be a size")):
            topic_settings({"segment_bytes": value})

    def test_a_name_that_there_is_not_is_refused_with_those_there_are(self):
        with pytest.raises(InvalidSetting, match=r"no setting 'retention'; known are .*retention_age"):
            topic_settings({"retention": 7})


def test_settings_of_an_older_release_are_read_with_defaults_for_the_rest():
    old = msgspec.msgpack.encode([7, 20_000])
    assert msgspec.msgpack.decode(old, type=TopicSettings) == TopicSettings(7, 20_000)

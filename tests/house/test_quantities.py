"""Test the one grammar of durations, sizes and counts."""

from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from journal.errors import InvalidSetting
from journal.quantities import (
    LARGEST,
    LONGEST,
    Quantity,
    check_range,
    duration,
    micros,
    quantities_of,
    read,
    size,
    written,
)
from journal.transactions.limits import TransactionLimits
from txbroker.server.settings.config import ServiceSettings

DURATION, SIZE, COUNT = Quantity


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("7d", 604_800_000_000),
        ("90s", 90_000_000),
        ("1h30m", 5_400_000_000),
        ("500ms", 500_000),
        ("3us", 3),
        ("2w", 1_209_600_000_000),
        ("0s", 0),
    ],
)
def test_a_duration_is_numbers_with_units(text, number):
    assert duration(text) == number


@pytest.mark.parametrize(
    "text", ["", "d", "-1s", "1.5h", "7 d", "7days", "1s!", "1h30", "1min", "\u0661s", "\u0661"]
)
def test_a_duration_with_a_unit_that_there_is_not_is_refused_with_those_there_are(text):
    with pytest.raises(ValueError, match=r"is not a duration: write .*\(us, ms, s, m, h, d, w\)"):
        duration(text)


def test_a_bare_number_is_no_duration_and_the_refusal_says_what_to_write():
    with pytest.raises(ValueError, match="'30' has no unit: write '30s' for seconds"):
        duration("30")
    with pytest.raises(ValueError, match="'30' has no unit: write '30s' for seconds"):
        read(DURATION, 30)


def test_zero_is_zero_in_every_unit():
    assert [duration("0"), read(DURATION, 0), size("0"), read(COUNT, "0")] == [0, 0, 0, 0]


@pytest.mark.parametrize(
    ("text", "number"), [("65536", 65536), ("1B", 1), ("64KiB", 65536), ("1GiB", 1 << 30), ("2TiB", 2 << 40)]
)
def test_a_size_is_a_number_of_bytes_or_of_a_binary_unit(text, number):
    assert size(text) == number


@pytest.mark.parametrize("text", ["", "KiB", "1KB", "1k", "-1", "1.5GiB", "1e9", "1 GiB", "5s", "\u0661"])
def test_a_size_in_a_unit_that_could_mean_two_things_is_refused(text):
    with pytest.raises(ValueError, match=r"is not a size: write .*\(B, KiB, MiB, GiB, TiB\)"):
        size(text)


@pytest.mark.parametrize("text", ["", "many", "5s", "5KiB", "-1", "1e9", "1.0"])
def test_a_count_has_no_unit(text):
    with pytest.raises(ValueError, match="is not a whole number"):
        read(COUNT, text)


@pytest.mark.parametrize("quantity", Quantity)
@pytest.mark.parametrize("value", [True, 1.5, -1, None, [], {}, b"5"])
def test_a_value_that_is_neither_text_nor_a_whole_number_is_refused(quantity, value):
    with pytest.raises(ValueError, match=f"is not a {quantity}"):
        read(quantity, value)


@given(st.sampled_from(Quantity), st.data())
def test_what_is_written_is_read_back_exactly(quantity, data):
    number = data.draw(st.integers(0, LONGEST if quantity is DURATION else LARGEST))
    assert read(quantity, written(quantity, number)) == number


@pytest.mark.parametrize(
    ("quantity", "text", "most"),
    [
        (DURATION, "36601d", "36600d"),
        (DURATION, "9" * 20 + "w", "36600d"),
        (SIZE, "4194305TiB", "4194304TiB"),
        (COUNT, str(LARGEST + 1), str(LARGEST)),
        (COUNT, LARGEST + 1, str(LARGEST)),
    ],
)
def test_what_is_more_than_there_can_be_is_refused_with_the_most(quantity, text, most):
    with pytest.raises(ValueError, match=f"is too much: it can be {most} at most"):
        read(quantity, text)


@pytest.mark.parametrize("quantity", Quantity)
def test_a_number_of_thousands_of_digits_is_refused_as_text(quantity):
    with pytest.raises(ValueError, match=f"is not a {quantity}"):
        read(quantity, "9" * 5_000)


def test_what_is_written_is_what_a_person_would_write():
    assert [written(DURATION, each) for each in (60_000_000, 5_400_000_000, 86_400_000_000, 200, 0)] == [
        "1m", "1h30m", "1d", "200us", "0s",
    ]  # fmt: skip
    assert [written(SIZE, each) for each in (0, 100, 65_536, 1 << 20, 3 << 40)] == [
        "0", "100", "64KiB", "1MiB", "3TiB",
    ]  # fmt: skip


def test_in_python_a_number_is_seconds():
    assert [micros(each) for each in (7, 0.5, timedelta(days=1, microseconds=3), 1e-6)] == [
        7_000_000, 500_000, 86_400_000_003, 1,
    ]  # fmt: skip


@pytest.mark.parametrize("value", ["7", None, True, float("inf"), float("nan"), b"", []])
def test_in_python_nothing_else_is_a_duration(value):
    with pytest.raises(ValueError, match=r"number of seconds or a datetime\.timedelta"):
        micros(value)


def test_a_field_says_by_its_type_what_its_number_means():
    kinds = quantities_of(ServiceSettings)
    assert (kinds["stop_timeout"], kinds["scrub_rate"], kinds["reader_threads"]) == (DURATION, SIZE, COUNT)
    assert "data" not in kinds
    assert quantities_of(TransactionLimits)["total_bytes"] is SIZE


def test_what_is_out_of_range_is_told_in_the_units_in_which_it_is_written():
    check_range("age", 5, DURATION, (5, 7))
    check_range("age", None, DURATION, (5, 7), optional=True)
    with pytest.raises(
        InvalidSetting, match="age is 1h, it must be a duration from 1ms to 1m or None; as it was"
    ):
        check_range("age", 3_600_000_000, DURATION, (1_000, 60_000_000), optional=True, state="as it was")
    for wrong in (None, 1.0, True, "5us", -1):
        with pytest.raises(InvalidSetting, match=rf"setting age is {wrong!r}, it must be"):
            check_range("age", wrong, DURATION, (0, 7))

"""Test percentiles against the sorted list of all values."""

import builtins
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from txbroker.bench import histogram
from txbroker.bench.histogram import LONGEST, Histogram
from txbroker.errors import Misuse

MICROS = st.integers(1, LONGEST)
SHARES = {"p50": 0.5, "p90": 0.9, "p99": 0.99, "p999": 0.999}


def of(values):
    made = Histogram()
    for value in values:
        made.record(value)
    return made


def neighbours(values, share):
    """The values of the sorted list between whose places this share of it ends: the same one for most lengths."""
    place = share * len(values)
    return [sorted(values)[max(rank - 1, 0)] for rank in (math.floor(place), math.ceil(place))]


@given(st.lists(MICROS, min_size=1, max_size=300))
def test_each_percentile_is_within_a_thousandth_of_the_sorted_list(values):
    found = of(values).percentiles()
    for name, share in SHARES.items():
        below, above = neighbours(values, share)
        assert below * 0.999 - 1 <= getattr(found, name) <= above * 1.001 + 1, name
    assert found.max == pytest.approx(max(values), rel=1.001e-3, abs=1)
    assert found.count == len(values)
    assert found.mean == pytest.approx(sum(values) / len(values))


def test_a_thousand_values_at_the_far_end_are_told_apart():
    found = of([*([200] * 9_990), *range(1_000_000, 1_010_000, 1000)]).percentiles()
    assert (found.p50, found.p99) == (200, 200)
    assert found.p999 == 200
    assert found.max == pytest.approx(1_009_000, rel=1e-3)


@given(st.lists(MICROS, max_size=100), st.lists(MICROS, max_size=100))
def test_what_several_processes_counted_adds_up_to_what_one_would_have(first, second):
    together = Histogram()
    for part in (first, second):
        together.add(of(part).packed())
    assert together.percentiles() == of([*first, *second]).percentiles()


def test_a_value_that_came_several_times_counts_so_often():
    made = Histogram()
    made.record(10, 99)
    made.record(5000)
    assert made.percentiles() == of([10] * 99 + [5000]).percentiles()


def test_what_is_shorter_or_longer_than_can_be_told_is_counted_at_the_ends():
    found = of([0, LONGEST * 2]).percentiles()
    assert found.count == 2
    assert found.p50 == 1
    assert found.max == pytest.approx(LONGEST, rel=1e-3)


def test_of_nothing_nothing_is_said():
    assert Histogram().percentiles() is None


def test_values_are_put_away_before_they_take_much_memory(monkeypatch):
    monkeypatch.setattr(histogram, "DISTINCT", 100)
    made = of(range(1, 1000))
    assert len(made._counts) <= 100
    assert made.percentiles() == of(range(1, 1000)).percentiles()


def test_where_the_package_is_missing_it_is_named(monkeypatch):
    real = builtins.__import__

    def without(name, *arguments, **more):
        if name.startswith("hdrh"):
            raise ImportError(f"No module named {name!r}")
        return real(name, *arguments, **more)

    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(Misuse, match=r"nothing was measured.*pip install hdrhistogram"):
        histogram.check_package()

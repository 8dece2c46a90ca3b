"""Test the figures made of samples: medians, limits, targets."""

import pytest

from benchmarks import figures
from benchmarks.figures import Figure, Result, Target


def result_of(figure, samples):
    [found] = [one for one in figures.results(samples) if one.figure is figure]
    return found


def test_a_figure_is_the_median_of_its_samples_and_shows_their_range():
    found = result_of(figures.ONE_PHASE, {figures.ONE_PHASE.name: [5.0, 1.0, 3.0]})
    assert (found.value, found.least, found.most) == (3.0, 1.0, 5.0)


def test_of_memory_the_worst_sample_counts():
    found = result_of(figures.MEMORY, {figures.MEMORY.name: [60.0, 900.0, 70.0]})
    assert found.value == 900.0
    assert found.is_met is False


def test_what_was_not_measured_is_left_out():
    assert figures.results({}) == []


def test_a_limit_is_the_median_of_the_other_figure_in_the_unit_of_this_one():
    samples = {figures.TWO_PHASE.name: [9_000.0], figures.ECHO.name: [1.0, 40_000.0, 50_000.0]}
    found = result_of(figures.TWO_PHASE, samples)
    assert found.limit == 20_000.0  # two round trips each
    assert found.ratio == pytest.approx(0.45)


def test_megabytes_of_the_disk_become_messages():
    samples = {figures.SINGLES.name: [50_000.0], figures.SEQUENTIAL.name: [144.0]}
    assert result_of(figures.SINGLES, samples).limit == pytest.approx(1_000_000.0)


@pytest.mark.parametrize(("value", "met"), [(60.0, True), (59.9, False)])
def test_a_share_of_the_limit_is_a_target(value, met):
    figure = Figure("a", "u", "b", 1.0, figures.share(0.6))
    assert Result(figure, value, value, value, 100.0).is_met is met


@pytest.mark.parametrize(("value", "met"), [(350.0, True), (350.1, False)])
def test_a_latency_must_not_be_above_twice_the_force_and_a_bit(value, met):
    assert Result(figures.DEPTH_1, value, value, value, 100.0).is_met is met


def test_a_target_relative_to_a_limit_that_was_not_measured_is_neither_met_nor_missed():
    assert Result(figures.CLIENTS, 1.0, 1.0, 1.0, None).is_met is None


def test_an_absolute_target_needs_no_limit():
    assert Result(figures.SINGLES, 100_000.0, 1.0, 1.0, None).is_met is True


def test_a_figure_without_target_is_neither_met_nor_missed():
    assert Result(figures.LOOPBACK, 1.0, 1.0, 1.0, 5.0).is_met is None


def test_at_most_is_not_at_least():
    assert not Target("≤ 1", plus=1.0, at_most=True).is_met(2.0, 0.0)
    assert Target("≥ 1", plus=1.0).is_met(2.0, 0.0)

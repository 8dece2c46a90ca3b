"""Test what is counted, and what belongs to the warm-up."""

import pytest

from txbroker.bench.tally import Tally
from txbroker.errors import OutcomeUnknown


def test_what_was_to_begin_in_the_warm_up_is_not_counted_however_late_it_ends():
    tally = Tally(100.0)
    tally.operations([99.9, 100.0, 100.5], 101.0, 2, 50)
    counted = tally.counted({0: 3}, 0.5)
    assert (counted.done, counted.messages, counted.bytes) == (2, 4, 100)
    assert counted.latency.sum == 1_500_000
    assert counted.seconds == {1: 2}
    tally.operations([99.0], 102.0, 1, 1)
    assert tally.done == 2
    assert tally.counted({}, 0.5).ended == pytest.approx(1.0)


def test_an_operation_belongs_to_the_second_in_which_it_was_over():
    tally = Tally(10.0)
    for over in (10.2, 10.9, 11.0, 13.5):
        tally.operations([10.0], over, 1, 1)
    assert tally.counted({}, 0.0).seconds == {0: 2, 1: 1, 3: 1}


def test_errors_are_counted_by_kind_and_in_no_latency():
    tally = Tally(0.0)
    tally.failed(1.0, OutcomeUnknown("lost"))
    tally.failed(2.0, OutcomeUnknown("lost"))
    tally.failed(2.0, TimeoutError())
    counted = tally.counted({}, 0.0)
    assert counted.errors == {"OutcomeUnknown": 2, "TimeoutError": 1}
    assert (counted.done, counted.latency.count) == (0, 0)
    assert tally.progress().errors == 3


def test_progress_tells_of_the_latest_operations():
    tally = Tally(0.0)
    for number in range(20_000):
        tally.operations([number], number + (0.001 if number < 10_000 else 0.005), 1, 1)
    progress = tally.progress()
    assert progress.done == 20_000
    assert progress.p50 == pytest.approx(5000, abs=1)


def test_messages_read_are_operations_and_fetches_the_latency():
    tally = Tally(0.0)
    tally.read(0.5, 1000, 100_000, [300, 500])
    counted = tally.counted({}, 0.0)
    assert (counted.done, counted.bytes, counted.latency.count, counted.latency.sum) == (
        1000,
        100_000,
        2,
        800,
    )

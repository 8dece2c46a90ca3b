"""Test that recorded histories lead to the recorded state, live and from the files."""

import pytest

from tests.corpus.histories import COUNT, digests, recorded

EVERY_TEST_RUN = 200
"""So many are lived by `make test`; all of them by `make test-deep`."""


def lived_as_recorded(seeds):
    known = recorded()
    assert len(known) == COUNT
    other = [seed for seed in seeds if digests(seed) != known[seed]]
    assert not other, f"seeds of histories that end otherwise: {other}; see tests.corpus.histories.seen"


@pytest.mark.slow
def test_histories_end_as_when_they_were_recorded_live_and_after_the_next_start():
    lived_as_recorded(range(EVERY_TEST_RUN))


@pytest.mark.deep
def test_all_histories_end_as_when_they_were_recorded():
    lived_as_recorded(range(EVERY_TEST_RUN, COUNT))

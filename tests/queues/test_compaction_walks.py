"""Test compactions in random walks: with all other work on files between their steps, crashes in each of them, starts
with the checkpoint before, and all that a queue can do.

They have found that verification told faults of sound directories (tests/broker/queues/test_compaction.py).
"""

from __future__ import annotations

from collections import Counter

import pytest

from tests.queues.compaction_walk import walk


def walked(first: int, count: int) -> Counter[str]:
    found = Counter[str]()
    for seed in range(first, first + count):
        try:
            found += walk(seed)
        except AssertionError as error:
            error.add_note(f"walk({seed})")
            raise
    return found


def test_some_walks_lose_nothing_and_leave_nothing():
    found = walked(0, 8)
    least = {"compacted segments": 15, "steps of compactions": 100, "verified": 20, "stops": 8}
    assert {name: found[name] for name in least if found[name] < least[name]} == {}


@pytest.mark.deep
@pytest.mark.parametrize("first", range(10_000, 14_000, 1_000))
def test_thousands_of_walks_lose_nothing_and_leave_nothing(first):
    found = walked(first, 1_000)
    least = {
        "compacted segments": 2_000, "compacted again": 300, "power": 700, "kill": 300, "cuts in a start": 150,
        "damaged checkpoints": 200, "delete": 50, "purge": 100,
    }  # fmt: skip
    assert {name: found[name] for name in least if found[name] < least[name]} == {}

"""Test compactions in random walks: with all other work on files between their steps, crashes in each of them, starts
with the checkpoint before, and all that a queue can do.

They have found that verification told faults of sound directories (tests/broker/queues/test_compaction.py).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from random import Random

import pytest

from tests.queues.compaction_walk import Walk, limits

STEPS: list[tuple[Callable[[Walk], None], float]] = [
    (Walk.publish, 10), (Walk.take, 6), (Walk.acknowledge, 8), (Walk.return_some, 1), (Walk.leave, 0.5),
    (Walk.commit_at_once, 1), (Walk.prepare, 1), (Walk.decide, 1), (Walk.purge, 0.2), (Walk.delete, 0.1),
    (Walk.sync, 5), (Walk.look, 8), (Walk.want_jobs, 2), (Walk.run_job, 25), (Walk.all_jobs, 2), (Walk.checkpoint, 3),
    (Walk.checkpoint_now, 1), (Walk.acknowledge_during_checkpoint, 0.5),
    (Walk.want_flush, 5), (Walk.retain, 2), (Walk.pin, 0.3), (Walk.pass_time, 1),
    (Walk.search, 2), (Walk.lose_index, 0.5), (Walk.check, 1), (Walk.verify, 1), (Walk.stop, 0.5), (Walk.crash, 1),
]  # fmt: skip


def walk(seed: int, trace: list[str] | None = None) -> Counter[str]:
    """Walk the walk of a seed; raises AssertionError if a promise was broken."""
    random = Random(f"length {seed}")
    with limits(Random(f"compaction {seed}")).in_force():
        found = Walk(seed, trace)
        found.run(STEPS, random.choice((60, 150, 300)))
        return found.counts


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

"""Members of a group against the account of :mod:`tests.members.members_model`, in worlds made from seeds.

Seen to fail: each line of ``tests/members/members_mutants.py``. A failure's note has the seed and the steps.
"""

import pytest

from tests.members.members_model import World

pytestmark = pytest.mark.slow

STEPS = 40


@pytest.mark.parametrize("first", range(0, 100, 10))
def test_members_share_the_partitions_whatever_happens(first):
    for seed in range(first, first + 10):
        World(seed, STEPS).run()


@pytest.mark.deep
@pytest.mark.parametrize("first", range(100, 2000, 100))
def test_members_share_the_partitions_in_many_worlds(first):
    for seed in range(first, first + 100):
        World(seed, STEPS).run()

"""Each fault in the coordinator of members can be made, and is found within seconds."""

import subprocess

import pytest

from tests.members.members_mutants import MUTANTS
from tests.support.faulty_sources import (
    check_can_be_made,
    copy_sources,
    faulty,
    passes,
    run_python,
    says_sound,
)

COPIED = ("journal", "txbroker", "tests", "pyproject.toml", "setup.cfg")
TESTS = (
    "tests/members/test_coordinator.py",
    "tests/members/test_coordinator_faults.py",
    "tests/members/test_stopped_groups.py",
)
SECONDS = 30
"""A fault by which a group is looked after without end is found by the time that it takes."""

PROGRAM = """
import txbroker
from tests.members.members_model import World

print(txbroker.__file__)
for seed in range(100):
    World(seed, 40).run()
print("sound")
"""


@pytest.mark.parametrize("mutant", MUTANTS, ids=[mutant.name for mutant in MUTANTS])
def test_a_fault_can_be_made_where_it_is_said_to_be(mutant):
    check_can_be_made(mutant)


@pytest.fixture(scope="module")
def copy(tmp_path_factory):
    """What the tests need, to be changed at will."""
    target = tmp_path_factory.mktemp("sources")
    copy_sources(target, COPIED)
    return target


def is_sound(copy):
    """Whether the tests and the model find nothing in the copy."""
    if not passes(copy, *TESTS, seconds=SECONDS):
        return False
    try:
        return says_sound(copy, run_python(copy, "-c", PROGRAM, seconds=SECONDS))
    except subprocess.TimeoutExpired:
        return False


@pytest.mark.deep
def test_nothing_is_found_where_there_is_nothing(copy):
    assert is_sound(copy)


@pytest.mark.deep
@pytest.mark.parametrize("mutant", MUTANTS, ids=[mutant.name for mutant in MUTANTS])
def test_the_fault_is_found(copy, mutant):
    with faulty(copy, mutant):
        assert not is_sound(copy)

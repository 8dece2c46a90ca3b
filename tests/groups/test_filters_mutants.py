"""Each fault in the filters of groups can be made, and is found within seconds."""

import pytest

from tests.groups.filters_mutants import MUTANTS
from tests.support.faulty_sources import check_can_be_made, copy_sources, faulty, passes

COPIED = ("journal", "txbroker", "tests", "twisted", "pyproject.toml", "setup.cfg")
TESTS = (
    "tests/broker/fetches/test_filtered_fetches.py",
    "tests/groups/test_tags_of_groups.py",
    "tests/log/test_tag_filter.py",
    "tests/client/consumer/test_filter_histories.py",
)
SECONDS = 200
"""A fault by which a message does not come again is found by the time that it takes."""


@pytest.mark.parametrize("mutant", MUTANTS, ids=[mutant.name for mutant in MUTANTS])
def test_a_fault_can_be_made_where_it_is_said_to_be(mutant):
    check_can_be_made(mutant)


@pytest.fixture(scope="module")
def copy(tmp_path_factory):
    """What the tests need, to be changed at will."""
    target = tmp_path_factory.mktemp("sources")
    copy_sources(target, COPIED)
    return target


@pytest.mark.deep
def test_nothing_is_found_where_there_is_nothing(copy):
    assert passes(copy, *TESTS, seconds=SECONDS)


@pytest.mark.deep
@pytest.mark.parametrize("mutant", MUTANTS, ids=[mutant.name for mutant in MUTANTS])
def test_the_tests_find_the_fault(copy, mutant):
    with faulty(copy, mutant):
        assert not passes(copy, *TESTS, seconds=SECONDS)

"""Each fault in the retries and filters of groups, in streams and in backups can be made, and is found in seconds."""

import pytest

from tests.mutants import backup, filters, retries, streams
from tests.support.faulty_sources import check_can_be_made, copy_sources, faulty, passes

COPIED = ("journal", "txbroker", "tests", "twisted", "pyproject.toml", "setup.cfg")
SUITES = (retries, filters, streams, backup)
MUTANTS = [pytest.param(each, suite.TESTS, id=each.name) for suite in SUITES for each in suite.MUTANTS]
SECONDS = 200
"""A fault by which a message does not come again is found by the time that it takes."""


@pytest.mark.parametrize(("mutant", "tests"), MUTANTS)
def test_a_fault_can_be_made_where_it_is_said_to_be(mutant, tests):
    check_can_be_made(mutant)


@pytest.fixture(scope="module")
def copy(tmp_path_factory):
    """What the tests need, to be changed at will."""
    target = tmp_path_factory.mktemp("sources")
    copy_sources(target, COPIED)
    return target


@pytest.mark.deep
@pytest.mark.parametrize("suite", SUITES, ids=["retries", "filters", "streams", "backup"])
def test_nothing_is_found_where_there_is_nothing(copy, suite):
    assert passes(copy, *suite.TESTS, seconds=SECONDS)


@pytest.mark.deep
@pytest.mark.parametrize(("mutant", "tests"), MUTANTS)
def test_the_tests_find_the_fault(copy, mutant, tests):
    with faulty(copy, mutant):
        assert not passes(copy, *tests, seconds=SECONDS)

"""Each fault in what becomes of messages that are tried again can be made, and is found within seconds."""

import ast
import subprocess

import pytest

from tests.broker.retries_mutants import MUTANTS
from tests.support.faulty_sources import copy_sources, faulty, mutated, run_python
from tests.support.repository import ROOT

COPIED = ("journal", "txbroker", "tests", "twisted", "pyproject.toml", "setup.cfg")
TESTS = (
    "tests/broker/test_retries.py",
    "tests/broker/test_dead_letters.py",
    "tests/client/core/test_left_out.py",
    "tests/client/consumer/test_retrying.py",
    "tests/client/consumer/test_retry_histories.py",
)
SECONDS = 200
"""A fault by which a message does not come again is found by the time that it takes."""


@pytest.mark.parametrize("mutant", MUTANTS, ids=[mutant.name for mutant in MUTANTS])
def test_a_fault_can_be_made_where_it_is_said_to_be(mutant):
    source = (ROOT / mutant.path).read_text()
    made = mutated(source, mutant)
    assert made != source
    ast.parse(made)


@pytest.fixture(scope="module")
def copy(tmp_path_factory):
    """What the tests need, to be changed at will."""
    target = tmp_path_factory.mktemp("sources")
    copy_sources(target, COPIED)
    return target


def is_sound(copy):
    arguments = ("-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", *TESTS)
    try:
        return not run_python(copy, *arguments, seconds=SECONDS).returncode
    except subprocess.TimeoutExpired:
        return False


@pytest.mark.deep
def test_nothing_is_found_where_there_is_nothing(copy):
    assert is_sound(copy)


@pytest.mark.deep
@pytest.mark.parametrize("mutant", MUTANTS, ids=[mutant.name for mutant in MUTANTS])
def test_the_tests_find_the_fault(copy, mutant):
    with faulty(copy, mutant):
        assert not is_sound(copy)

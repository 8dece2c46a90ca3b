"""Each fault in the fold of groups can be made, and the model test finds it."""

import pytest

from tests.folds.settlement_mutants import MUTANTS
from tests.support.faulty_sources import check_can_be_made, copy_sources, faulty, run_python, says_sound

COPIED = ("journal", "txbroker", "tests")


@pytest.mark.parametrize("mutant", MUTANTS, ids=[mutant.name for mutant in MUTANTS])
def test_a_fault_can_be_made_where_it_is_said_to_be(mutant):
    check_can_be_made(mutant)


@pytest.fixture(scope="module")
def copy(tmp_path_factory):
    """What the model test needs, to be changed at will."""
    target = tmp_path_factory.mktemp("sources")
    copy_sources(target, COPIED)
    return target


PROGRAM = """
import journal
from hypothesis import HealthCheck, Phase, settings
from hypothesis.stateful import run_state_machine_as_test
from tests.folds.test_settlement_model import SettlementMachine

print(journal.__file__)
run_state_machine_as_test(SettlementMachine, settings=settings(
    max_examples=1000, stateful_step_count=50, derandomize=True, database=None, deadline=None,
    phases=[Phase.generate], suppress_health_check=list(HealthCheck),
))
print("sound")
"""


def is_sound(copy):
    """Whether the model finds nothing in the copy; with a fault it takes a second, and shrinks nothing."""
    return says_sound(copy, run_python(copy, "-c", PROGRAM))


@pytest.mark.deep
def test_nothing_is_found_where_there_is_nothing(copy):
    assert is_sound(copy)


@pytest.mark.deep
@pytest.mark.parametrize("mutant", MUTANTS, ids=[mutant.name for mutant in MUTANTS])
def test_the_model_finds_the_fault(copy, mutant):
    with faulty(copy, mutant):
        assert not is_sound(copy)

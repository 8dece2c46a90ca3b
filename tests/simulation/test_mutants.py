"""Test the faults of ``make mutants``: each line is still where it is said to be, and one of them is found here."""

import pytest

from tests.simulation import history
from tests.simulation.access_mutants import ACCESS_MUTANTS
from tests.simulation.amqp_mutants import AMQP_MUTANTS
from tests.simulation.member_mutants import MEMBER_MUTANTS
from tests.simulation.mutants import MUTANTS
from tests.simulation.schedule_mutants import SCHEDULE_MUTANTS
from tests.simulation.teeth import ALL, COPIED, check_is_used, judge
from tests.support.faulty_sources import check_can_be_made, copy_sources, mutated


def test_there_are_many_and_each_has_a_name_of_its_own():
    assert len(MUTANTS) >= 25
    assert len(MEMBER_MUTANTS) >= 8
    assert len(ACCESS_MUTANTS) >= 8
    assert len(SCHEDULE_MUTANTS) >= 12
    assert len(AMQP_MUTANTS) >= 12
    assert len({mutant.name for mutant in ALL}) == len(ALL)


@pytest.mark.parametrize("mutant", ALL, ids=[mutant.name for mutant in ALL])
def test_a_fault_can_be_made_where_it_is_said_to_be(mutant):
    check_can_be_made(mutant)


def test_a_fault_whose_line_has_gone_is_an_error():
    with pytest.raises(ValueError, match="0 times"):
        mutated("pass\n", MUTANTS[0])


@pytest.mark.slow
def test_an_answer_before_the_force_is_found_and_nothing_where_there_is_nothing(tmp_path):
    copy_sources(tmp_path, COPIED)
    check_is_used(tmp_path)
    assert judge(tmp_path, "sound", 3.0, 0).problem == ""
    [mutant] = [mutant for mutant in MUTANTS if mutant.name == "answer before the force"]
    path = tmp_path / mutant.path
    path.write_text(mutated(path.read_text(), mutant))
    assert judge(tmp_path, mutant.name, 60.0, 0).problem


@pytest.mark.slow
@pytest.mark.parametrize(
    ("part", "mutants", "name"),
    [
        ("members", MEMBER_MUTANTS, "begin where the log ends"),
        ("access", ACCESS_MUTANTS, "carry out what is refused"),
        ("schedule", SCHEDULE_MUTANTS, "leave the timetable out of a checkpoint"),
        ("amqp", AMQP_MUTANTS, "commit the messages without the acknowledgements"),
    ],
)
def test_a_fault_of_a_part_is_found_in_histories_that_have_it(tmp_path, part, mutants, name):
    copy_sources(tmp_path, COPIED)
    [mutant] = [mutant for mutant in mutants if mutant.name == name]
    path = tmp_path / mutant.path
    path.write_text(mutated(path.read_text(), mutant))
    found = judge(tmp_path, mutant.name, 60.0, 0, part)
    assert found.problem
    assert history.has(part, found.seed)

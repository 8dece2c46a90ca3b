"""Test the plan of the demo's kills."""

from hypothesis import given
from hypothesis import strategies as st

from demo.kills import Kill, Phase, UsualDurations, draw

DAYS = [f"day {number}" for number in range(365)]


@given(st.integers())
def test_a_seed_always_draws_the_same_kills(seed):
    assert draw(seed, DAYS, 5) == draw(seed, DAYS, 5)


def test_another_seed_draws_other_kills():
    assert len({tuple(draw(seed, DAYS, 5)) for seed in range(20)}) > 15


@given(st.integers(), st.integers(0, 12))
def test_as_many_kills_as_asked_for_are_drawn_on_days_of_their_own(seed, count):
    plan = draw(seed, DAYS, count)
    assert len(plan) == count
    assert all(kill.day == day for day, kill in plan.items())
    assert all(DAYS.index(day) >= 36 for day in plan)


@given(st.integers())
def test_five_kills_hit_every_phase(seed):
    assert {kill.phase for kill in draw(seed, DAYS, 5).values()} == set(Phase)


def test_there_are_no_more_kills_than_days():
    assert len(draw(1, DAYS[:3], 5)) == 3
    assert draw(1, [], 5) == {}


def test_a_kill_hits_somewhere_in_the_usual_length_of_its_phase_():
    assert Kill("d", Phase.ADDING, 0.5).delay(0.02) == 0.01
    assert all(0 <= kill.fraction <= 1 for seed in range(50) for kill in draw(seed, DAYS, 5).values())


def test_a_kill_between_prepare_and_commit_hits_at_once():
    assert Kill("d", Phase.PREPARED, 1.0).delay(5.0) == 0.0


def test_the_usual_duration_follows_what_was_measured():
    usual = UsualDurations()
    assert usual.of(Phase.ADDING) == 0.001
    usual.add(Phase.ADDING, 1.0)
    assert usual.of(Phase.ADDING) == 1.0
    usual.add(Phase.ADDING, 2.0)
    assert 1.0 < usual.of(Phase.ADDING) < 2.0
    assert usual.of(Phase.COMMITTING) == 0.001

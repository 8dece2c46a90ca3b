"""The events of the drill are drawn from a seed, and hit everybody at each moment."""

from collections import Counter

import pytest

from examples.shop.drill.events import HAS_MOMENTS, PARTIES, draw
from examples.shop.drill.moments import Moment


def test_a_seed_draws_the_same_kills_again_and_another_seed_others():
    assert draw(1, 50) == draw(1, 50)
    assert draw(1, 50) != draw(2, 50)


@pytest.mark.parametrize("kills", [1, 2, 7, 20, 200])
def test_exactly_so_many_kills_are_drawn_and_nobody_is_killed_twice_at_once(kills):
    for seed in range(20):
        events = draw(seed, kills)
        assert sum(len(event.victims) for event in events) == kills
        assert all(len(set(event.victims)) == len(event.victims) for event in events)


def test_each_party_is_killed_and_in_a_long_drill_all_at_once_too():
    events = draw(3, 200)
    kills = Counter(victim for event in events for victim in event.victims)
    assert set(kills) == set(PARTIES)
    assert min(kills.values()) >= 20
    assert max(len(event.victims) for event in events) == len(PARTIES)


@pytest.mark.parametrize("seed", range(5))
def test_in_a_long_drill_each_party_is_killed_at_each_of_its_moments_and_at_any_other(seed):
    hit = {(event.victims[0], event.moment) for event in draw(seed, 200)}
    for party in PARTIES:
        own = {each for each in Moment if HAS_MOMENTS.get(party) in (None, each.is_of_task)}
        assert {moment for victim, moment in hit if victim == party} == {*own, None}


def test_a_moment_that_does_not_come_is_not_waited_for():
    moments = [each for each in Moment if each is not Moment.TASK_BEFORE_PREPARE]
    assert Moment.TASK_BEFORE_PREPARE not in {event.moment for event in draw(1, 200, moments)}

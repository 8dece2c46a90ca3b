"""Test that the schedule depends on the seed alone, and goes through all points."""

from collections import Counter

import pytest

from txbroker.drill.broker.kill_points import POINTS, RECOVERY
from txbroker.drill.broker.schedule import RANDOM, Kind, all_points, draw


def sigkills(events):
    return sum(1 + (event.point == RECOVERY) for event in events if event.kind is Kind.KILL)


def test_the_same_seed_gives_the_same_schedule_and_another_one_another():
    assert draw(7, 50, all_points()) == draw(7, 50, all_points())
    assert draw(7, 50, all_points()) != draw(8, 50, all_points())


@pytest.mark.parametrize("kills", [1, 2, 3, 40, 201])
@pytest.mark.parametrize("points", [[RANDOM], [RECOVERY], all_points()])
def test_there_are_as_many_kills_as_asked_for(kills, points):
    for seed in range(20):
        assert sigkills(draw(seed, kills, points)) == kills


def test_every_point_comes_before_one_comes_again():
    points = list(POINTS)
    for seed in range(20):
        found = Counter(
            event.point for event in draw(seed, 2 * len(points) + 2, points) if event.kind is Kind.KILL
        )
        assert set(found.values()) == {2}


def test_every_drill_has_a_pause_a_stop_and_a_killed_client():
    assert {event.kind for event in draw(1, 1, [RANDOM])} == set(Kind) - {Kind.CLIENT_PAUSE}


def test_clients_of_a_role_are_killed_and_paused_in_addition():
    without, events = draw(1, 20, [RANDOM]), draw(1, 20, [RANDOM], "worker")
    chosen = Counter(event.kind for event in events if event.role)
    assert chosen == {Kind.CLIENT: 10, Kind.CLIENT_PAUSE: 10}
    assert {event for event in events if not event.role} == set(without)
    assert {event.kind for event in draw(1, 1, [RANDOM], "worker") if event.role} == set(chosen)


def test_half_of_the_kills_of_a_usual_drill_are_at_random_moments():
    assert all_points().count(RANDOM) == len(POINTS)

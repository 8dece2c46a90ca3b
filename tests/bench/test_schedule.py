"""Test when an open loop sends messages, and how clients and processes share them."""

from itertools import islice

import pytest

from txbroker.bench.plan import Kind, Plan, shares
from txbroker.bench.schedule import Schedule


def plan(**choices):
    return Plan(kind=Kind.PRODUCE, url="", topic="", run=1, **choices)


def test_the_times_are_those_of_the_rate_whatever_the_delay():
    schedule = Schedule(100.0, 4.0, 0, 1, 1)
    assert list(schedule.due(99.9)) == []
    assert schedule.next_at == 100.0
    assert list(schedule.due(100.3)) == [(0, 100.0), (0, 100.25)]
    assert list(schedule.due(101.6)) == [(0, at) for at in (100.5, 100.75, 101.0, 101.25, 101.5)], (
        "none is left out"
    )
    assert schedule.next_at == 101.75


@pytest.mark.parametrize(("clients", "processes"), [(1, 1), (3, 1), (5, 2), (7, 3), (4, 4)])
def test_clients_of_several_processes_send_at_the_common_times_one_each(clients, processes):
    found = []
    for share in shares(plan(clients=clients, processes=processes, rate=10.0)):
        schedule = Schedule(0.0, 10.0, share.first, share.clients, clients)
        found += [(at, share.first + client) for client, at in schedule.due(9.999)]
    assert [at for at, _ in sorted(found)] == pytest.approx([n / 10 for n in range(100)])
    assert [client for _, client in sorted(found)] == [n % clients for n in range(100)]


@pytest.mark.parametrize(
    ("clients", "processes", "count"), [(1, 4, 10), (5, 2, 11), (8, 3, 2), (64, 5, 1000)]
)
def test_shares_together_are_the_plan(clients, processes, count):
    parts = shares(plan(clients=clients, processes=processes, count=count, seconds=None))
    assert len(parts) == min(clients, processes)
    numbers = [part.first + k for part in parts for k in range(part.clients)]
    assert numbers == list(range(clients))
    assert sum(part.count for part in parts) == count


def test_without_a_count_no_share_has_one():
    assert [part.count for part in shares(plan(clients=2, processes=2))] == [None, None]


def test_a_schedule_goes_on_for_as_long_as_it_is_asked():
    assert len(list(islice(Schedule(0.0, 1e6, 0, 1, 1).due(1.0), 10))) == 10

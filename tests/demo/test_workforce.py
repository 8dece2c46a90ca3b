"""Test what the demo makes of what it sees of its workers. That they are killed is tested in test_flights."""

from types import SimpleNamespace

import pytest

from demo.workforce import BROKER, WORKER, Blow, Workforce, blows, in_words, owners
from txbroker.client.core.results import GroupDescription, GroupMember, GroupPartition


def group(owned, left):
    """A group of the workers: ``owned`` is the worker of each partition, ``left`` the rows behind its position."""
    names = sorted({name for name in owned if name})
    members = [
        GroupMember(number, name, "", "", 0.0, ["flights"], "") for number, name in enumerate(names, 1)
    ]
    partitions = [
        GroupPartition(
            "flights", index, 0, left[index], 1, names.index(name) + 1 if name else None, False, "", 0.0, ""
        )
        for index, name in enumerate(owned)
    ]  # fmt: skip
    return GroupDescription("departures", "members", members, partitions, b"")


@pytest.fixture
def told():
    return []


@pytest.fixture
def workforce(tmp_path, told):
    made = Workforce(SimpleNamespace(address="nowhere"), "", tmp_path, [], told.append, print)
    yield made
    made.__exit__()


ALL = ["worker-1", "worker-2", "worker-3", "worker-4"]


def test_a_seed_always_draws_the_same_blows_worker_broker_worker_in_this_order():
    assert blows(3) == blows(3)
    assert blows(3) != blows(4)
    for seed in range(50):
        drawn = blows(seed)
        assert [blow.whom for blow in drawn] == [WORKER, BROKER, WORKER]
        assert [blow.share for blow in drawn] == sorted(blow.share for blow in drawn)


def test_partitions_without_a_member_have_no_owner():
    assert owners(group(["worker-1", None, "worker-2", None], [1] * 4)) == {0: "worker-1", 2: "worker-2"}


def test_the_worker_with_most_rows_left_is_killed_and_it_is_said_what_it_had(workforce, told):
    workforce._strike(SimpleNamespace(whom=WORKER), group(ALL, [5, 7, 900, 0]))
    (death,) = workforce.watched.deaths
    assert (death.worker, death.partitions, death.left, death.taken_over_after) == (
        "worker-3",
        [2],
        900,
        None,
    )
    assert told == ["worker-3: SIGKILL, with 900 rows left in partition 2"]
    workforce._strike(SimpleNamespace(whom=WORKER), group(ALL, [5, 7, 900, 0]))
    assert workforce.watched.deaths[1].worker == "worker-2", "the dead are not killed again"


def test_no_worker_is_killed_before_all_have_begun_nor_while_none_has_rows_left(workforce):
    workforce._to_come, workforce._handled = [Blow(0.5, WORKER), Blow(0.6, WORKER)], 59
    assert not workforce._is_due(group(["worker-1", "worker-1", "worker-2", "worker-3"], [9] * 4), 100)
    assert not workforce._is_due(group(ALL, [9] * 4), 200)
    assert workforce._is_due(group(ALL, [9] * 4), 100)
    workforce._strike(workforce._to_come.pop(0), group(ALL, [9] * 4))
    assert not workforce._is_due(group(ALL, [9] * 4), 100)
    workforce._handled = 60
    assert not workforce._is_due(group([None] * 4, [9] * 4), 100)
    assert not workforce._is_due(group(["worker-1", "worker-2", None, None], [9, 0, 9, 9]), 100)
    assert workforce._is_due(group(["worker-1", "worker-2", None, None], [9, 1, 9, 9]), 100)


def test_of_a_partition_without_a_position_all_rows_are_left(workforce):
    workforce.ends = {0: 10, 1: 20, 2: 3_000, 3: 40}
    workforce._strike(SimpleNamespace(whom=WORKER), group(ALL, [5, 7, None, 0]))
    assert workforce.watched.deaths[0].left == 3_000


def test_partitions_are_taken_over_once_workers_that_live_have_all_of_them(workforce, told):
    workforce._strike(
        SimpleNamespace(whom=WORKER), group(["worker-1", "worker-1", "worker-2", "worker-3"], [9] * 4)
    )
    (death,) = workforce.watched.deaths
    for owned in (["worker-1"] * 4, [None] * 4, ["worker-2", None, "worker-2", "worker-3"]):
        workforce._note_taken_over(group(owned, [9] * 4))
        assert death.taken_over_after is None
    workforce._note_taken_over(group(["worker-4", "worker-2", "worker-2", "worker-3"], [9] * 4))
    assert death.taken_over_after >= 0
    assert told[-1] == "worker-1: partitions 0, 1 taken over by worker-2, worker-4"


def test_partitions_in_words():
    assert [in_words(each) for each in ([], [2], [0, 3])] == [
        "partitions none",
        "partition 2",
        "partitions 0, 3",
    ]

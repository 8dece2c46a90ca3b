"""Partitions are shared out evenly, topic by topic and altogether, and few of them move."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from txbroker.members.assignment import share_out

MEMBERS = st.integers(1, 9)


@st.composite
def topics(draw, most=12):
    """Some topics with up to 20 partitions each, numbered as the broker does."""
    sizes = draw(st.lists(st.integers(1, 20), min_size=1, max_size=most))
    found, first = {}, 1
    for index, size in enumerate(sizes):
        found[f"t{index}"] = range(first, first + size)
        first += size
    return found


@st.composite
def scenes(draw, same_topics=False, most=12):
    """Members' wishes, topics, and owners of some partitions, of which some are members."""
    there = draw(topics(most))
    names = sorted(there)
    count = draw(MEMBERS)
    some = st.just(names) if same_topics else st.lists(st.sampled_from(names), min_size=1, unique=True)
    wishes = {member: draw(some) for member in range(1, count + 1)}
    numbers = [number for each in there.values() for number in each]
    owners = {number: owner for number in numbers if (owner := draw(st.integers(0, count + 2)))}
    return wishes, there, owners


def counts(wishes, numbers, found):
    return [sum(found.get(number) == member for number in numbers) for member in wishes]


@given(scenes())
def test_each_partition_that_is_read_goes_to_one_of_its_readers(scene):
    wishes, there, owners = scene
    found = share_out(wishes, there, owners)
    read = {topic for wanted in wishes.values() for topic in wanted}
    assert found.keys() == {number for topic in read for number in there[topic]}
    for topic, numbers in there.items():
        assert all(topic in wishes[found[number]] for number in numbers if number in found)


@given(scenes())
def test_each_topic_is_shared_out_evenly(scene):
    wishes, there, owners = scene
    found = share_out(wishes, there, owners)
    for topic, numbers in there.items():
        readers = {member: wanted for member, wanted in wishes.items() if topic in wanted}
        if readers:
            shares = counts(readers, numbers, found)
            assert max(shares) - min(shares) <= 1


@given(scenes(same_topics=True))
def test_members_that_read_the_same_topics_have_equally_many_altogether(scene):
    wishes, there, owners = scene
    found = share_out(wishes, there, owners)
    shares = counts(wishes, list(found), found)
    assert max(shares) - min(shares) <= 1


@given(scenes(same_topics=True))
def test_what_is_even_does_not_move(scene):
    wishes, there, owners = scene
    found = share_out(wishes, there, owners)
    assert share_out(wishes, there, found) == found


@given(scenes(same_topics=True, most=1))
def test_a_newcomer_gets_partitions_and_nobody_else_does(scene):
    wishes, there, owners = scene
    before = share_out(wishes, there, owners)
    after = share_out(wishes | {99: wishes[1]}, there, before)
    assert {after[number] for number in after if after[number] != before[number]} <= {99}


@given(scenes(same_topics=True, most=1))
def test_if_a_member_leaves_only_its_partitions_move(scene):
    wishes, there, owners = scene
    before = share_out(wishes, there, owners)
    left = {member: wanted for member, wanted in wishes.items() if member != 1}
    after = share_out(left, there, before)
    assert {before[number] for number in after if after[number] != before[number]} <= {1}


@pytest.mark.parametrize(
    ("wishes", "owners", "expected"),
    [
        ({1: ["a"]}, {}, {1: 1, 2: 1, 3: 1}),
        ({1: ["a"], 2: ["a"]}, {}, {1: 1, 2: 1, 3: 2}),
        ({1: ["a"], 2: ["a"]}, {1: 2, 2: 2, 3: 2}, {1: 2, 2: 2, 3: 1}),
        ({1: ["a"], 2: ["a"], 3: ["a"], 4: ["a"]}, {1: 4}, {1: 4, 2: 1, 3: 2}),
        ({1: ["a", "b"], 2: ["b"]}, {4: 1}, {1: 1, 2: 1, 3: 1, 4: 2}),
    ],
)
def test_small_groups(wishes, owners, expected):
    assert share_out(wishes, {"a": [1, 2, 3], "b": [4]}, owners) == expected


def test_a_topic_without_partitions_and_members_without_topics_are_nothing():
    assert share_out({}, {"a": [1]}, {}) == {}
    assert share_out({1: []}, {"a": [1]}, {1: 1}) == {}
    assert share_out({1: ["a", "gone"]}, {"a": []}, {}) == {}

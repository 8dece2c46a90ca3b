"""Test which messages are handled next: order, bounds, and what is dropped."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from txbroker.client.core.results import Message
from txbroker.worker.schedule import Schedule


def item(offset, key=None, partition=0, generation=1):
    return Message("t", partition, offset, 1, key, b"", generation=generation)


def filled(order, items, batch=1, concurrency=50):
    schedule = Schedule(order, batch, concurrency)
    for each in items:
        schedule.add(each)
    return schedule


def offsets(work):
    return None if work is None else [message.offset for message in work.messages]


def all_of(schedule):
    found = []
    while (work := schedule.take()) is not None:
        found.append(offsets(work))
    return found


def test_by_key_only_messages_of_other_keys_and_without_key_go_beside_one_another():
    schedule = filled("key", [item(0, b"a"), item(1, b"a"), item(2), item(3), item(4, b"b"), item(5, b"a")])
    first = schedule.take()
    assert offsets(first) == [0]
    assert all_of(schedule) == [[2], [3], [4]]
    schedule.ended(first)
    assert all_of(schedule) == [[1]]
    assert not schedule.has_ready


def test_by_partition_one_work_at_a_time_goes_in_each():
    schedule = filled("partition", [item(0), item(1), item(0, partition=1), item(1, partition=1)])
    first, second = schedule.take(), schedule.take()
    assert (first.place, second.place) == (("t", 0), ("t", 1))
    assert schedule.take() is None
    schedule.ended(second)
    assert offsets(schedule.take()) == [1]


def test_without_order_all_go_beside_one_another():
    assert all_of(filled(None, [item(0, b"a"), item(1, b"a"), item(2)])) == [[0], [1], [2]]


def test_partitions_take_turns():
    schedule = filled(None, [item(offset) for offset in range(3)] + [item(0, partition=1)])
    assert [schedule.take().place[1] for _ in range(3)] == [0, 1, 0]


@pytest.mark.parametrize(
    ("order", "found"),
    [("key", [[0, 1, 3], [2, 4]]), ("partition", [[0, 1, 2]]), (None, [[0, 1, 2], [3, 4]])],
)
def test_a_batch_has_the_messages_of_one_partition_that_may_go_together_in_their_order(order, found):
    keys = [b"a", b"b", None, b"a", b"c"]
    assert all_of(filled(order, [item(offset, key) for offset, key in enumerate(keys)], batch=3)) == found


def test_messages_stay_in_hand_until_they_are_finished():
    schedule = filled(None, [item(0), item(1)], concurrency=1)
    assert not schedule.has_room
    work = schedule.take()
    assert not schedule.has_room
    schedule.ended(work)
    assert not schedule.has_room
    schedule.finished(work.messages)
    assert schedule.has_room


def test_while_calls_wait_for_work_more_is_looked_through_within_bounds(monkeypatch):
    monkeypatch.setattr("txbroker.worker.schedule.MOST_AHEAD", 10)
    monkeypatch.setattr("txbroker.worker.schedule.MOST_BYTES", 1000)
    schedule = filled("key", [item(offset, b"a") for offset in range(5)], concurrency=2)
    assert not schedule.has_room, "one of them is ready"
    schedule.take()
    assert schedule.has_room
    for offset in range(5, 10):
        schedule.add(item(offset, b"a"))
    assert not schedule.has_room, "these are enough"
    large = filled(
        "key", [item(0, b"a" * 300), item(1, b"a" * 300), item(2, b"a" * 300), item(3, b"a" * 300)], 1, 2
    )
    large.take()
    assert not large.has_room


def test_what_waits_behind_a_failed_message_is_withdrawn_and_no_other():
    schedule = filled("key", [item(0, b"a"), item(1, b"b"), item(2, b"a"), item(3, b"a"), item(4, b"b")])
    work = schedule.take()
    lane = schedule.lane(work.messages[0])
    assert [message.offset for message in schedule.withdraw(lane, 2)] == []
    assert [message.offset for message in schedule.withdraw(lane, 1)] == [2, 3]
    assert schedule.in_hand == 3
    schedule.ended(work)
    other = schedule.take()
    assert offsets(other) == [1]
    schedule.ended(other)
    assert all_of(schedule) == [[4]]


def test_a_message_that_comes_again_goes_before_new_ones():
    schedule = filled(None, [item(5), item(6)])
    schedule.add(replace(item(0), attempts=1))
    assert all_of(schedule) == [[0], [5], [6]]


def test_all_is_handled_when_nothing_is_ready_or_under_way():
    schedule = filled(None, [item(0)])
    assert not schedule.all_handled
    work = schedule.take()
    assert not schedule.all_handled
    schedule.ended(work)
    assert schedule.all_handled
    assert schedule.in_hand == 1


def test_what_is_dropped_is_of_one_partition_and_one_claim():
    schedule = filled(
        "key", [item(0, b"a"), item(1, b"a"), item(2), item(3, b"b"), item(0, b"a", partition=1)]
    )
    under_way = schedule.take()
    schedule.add(item(7, b"a", generation=2))
    assert schedule.drop(("t", 0), 1) == 3
    assert schedule.in_hand == 3
    assert all_of(schedule) == [[0]]
    schedule.ended(under_way)
    assert all_of(schedule) == [[7]]


def test_behind_a_dropped_message_one_of_a_later_claim_is_ready():
    schedule = filled("partition", [item(0), item(1), item(0, generation=2), item(1, generation=2)])
    assert schedule.drop(("t", 0), 1) == 2
    work = schedule.take()
    assert (offsets(work), work.generation) == ([0], 2)
    schedule.ended(work)
    assert all_of(schedule) == [[1]]


def test_a_message_that_comes_again_before_its_work_has_ended_is_in_no_batch():
    schedule = filled("key", [item(0, b"a")], batch=5)
    first = schedule.take()
    schedule.add(replace(item(0, b"a"), attempts=1), alone=True)
    schedule.add(item(1, b"a"))
    schedule.ended(first)
    schedule.finished(first.messages)
    assert offsets(schedule.take()) == [0]


def test_messages_of_two_claims_are_in_no_batch_together():
    schedule = filled(None, [item(0), item(1), item(1, generation=2)], batch=5)
    assert all_of(schedule) == [[0, 1], [1]]


STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("add"), st.sampled_from([None, b"a", b"b"]), st.integers(0, 1)),
        st.tuples(st.just("take"), st.none(), st.none()),
        st.tuples(st.just("end"), st.none(), st.integers(0, 5)),
        st.tuples(st.just("drop"), st.none(), st.integers(0, 1)),
    ),
    max_size=60,
)


@given(st.sampled_from(["key", "partition", None]), st.integers(1, 3), STEPS)
def test_each_message_comes_once_and_in_the_order_of_its_lane(order, batch, steps):
    schedule = Schedule(order, batch, 10_000)
    waiting, under_way, ends, generations = [], [], [0, 0], [1, 1]
    for step, key, number in steps:
        if step == "add":
            each = item(ends[number], key, number, generations[number])
            ends[number] += 1
            schedule.add(each)
            waiting.append(each)
        elif step == "take":
            work = schedule.take()
            if work is not None:
                under_way.append(work)
                for message in work.messages:
                    same = [each for each in waiting if in_lane(order, each, message)]
                    assert same[0] == message, "an earlier one of its lane was left behind"
                    waiting.remove(same[0])
                    others = [other for one in under_way[:-1] for other in one.messages]
                    assert not any(
                        in_lane(order, other, message) and other != message for other in others if order
                    )
        elif step == "end" and under_way:
            work = under_way.pop(number % len(under_way))
            schedule.ended(work)
            schedule.finished(work.messages)
        elif step == "drop":
            gone = [each for each in waiting if each.partition == number]
            assert schedule.drop(("t", number), generations[number]) == len(gone)
            waiting = [each for each in waiting if each not in gone]
            generations[number] += 1
        assert schedule.in_hand == len(waiting) + sum(len(work.messages) for work in under_way)
    for work in under_way:
        schedule.ended(work)
    while (work := schedule.take()) is not None:
        for message in work.messages:
            waiting = [each for each in waiting if each != message]
        schedule.ended(work)
    assert waiting == []
    assert not schedule._behind


def in_lane(order, one, other):
    if (one.topic, one.partition) != (other.topic, other.partition):
        return False
    if order == "key" and other.key is not None:
        return one.key == other.key
    return order == "partition" or one == other

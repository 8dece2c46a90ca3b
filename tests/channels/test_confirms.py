"""Test what a client is told of its publications, and how often."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from txbroker.channels.confirms import Confirms

Told = list[tuple[int, bool, bool]]


def confirms() -> tuple[Confirms, Told]:
    told: Told = []
    return Confirms(lambda *each: told.append(each)), told


def test_confirms_that_come_out_of_order_confirm_no_others() -> None:
    found, told = confirms()
    for first, count in ((3, 2), (2, 1), (1, 1), (5, 2)):
        found.add(first, count, True)
        found.flush()
    assert [each[:2] for each in told] == [(3, False), (4, False), (2, False), (1, False), (6, True)]


def test_those_of_one_turn_are_told_by_one_method_in_whatever_order_they_came() -> None:
    found, told = confirms()
    for first, count in ((3, 2), (2, 1), (1, 1), (5, 2)):
        found.add(first, count, True)
    found.flush()
    found.flush()
    assert told == [(6, True, True)]


def test_what_is_above_a_tag_that_is_not_confirmed_is_told_one_by_one_and_the_lowest_closes_the_gap() -> None:
    found, told = confirms()
    found.add(2, 2, True)
    found.add(6, 1, False)
    found.flush()
    assert told == [(2, False, True), (3, False, True), (6, False, False)]
    told.clear()
    found.add(1, 1, True)
    found.add(4, 2, True)
    found.add(7, 1, True)
    found.flush()
    assert told == [(7, True, True)], "of those that were told it says nothing new"


def test_what_was_not_taken_is_told_by_itself() -> None:
    found, told = confirms()
    for first, count, taken in ((1, 3, True), (4, 2, False), (6, 1, False), (7, 1, True), (8, 1, False)):
        found.add(first, count, taken)
    found.flush()
    assert told == [(3, True, True), (6, True, False), (7, False, True), (8, False, False)]


@given(st.permutations(range(1, 30)), st.sets(st.integers(1, 29)), st.sets(st.integers(0, 28)))
def test_a_client_learns_of_each_tag_once_what_became_of_it(order, refused, turns) -> None:
    found, told = confirms()
    known = dict[int, bool]()
    for place, tag in enumerate(order):
        found.add(tag, 1, tag not in refused)
        if place in turns or place == len(order) - 1:
            found.flush()
            for last, multiple, taken in told:
                below = [each for each in range(1, last) if each not in known] if multiple else []
                for each in (*below, last):
                    assert each not in known
                    known[each] = taken
            told.clear()
            assert set(known) == set(order[: place + 1])
    assert known == {tag: tag not in refused for tag in order}

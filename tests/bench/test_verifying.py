"""Test the verification of what was acknowledged: every way in which it may be missing."""

import random

import pytest

from txbroker.bench.plan import HEADER
from txbroker.bench.verification import Expected

RUN = 77


def message(client, number, run=RUN):
    return HEADER.pack(run, client, number, 0) + b"rest"


def verdict(values, sent, unacknowledged=()):
    expected = Expected(RUN, sent, unacknowledged)
    for value in values:
        expected.saw(value)
    return expected.verdict()


ALL = [message(client, number) for client in (0, 5) for number in range(10)]


def test_all_there_once_in_any_order_is_sound():
    random.Random(1).shuffle(ALL)
    found = verdict(ALL, {0: 10, 5: 10})
    assert found.sound
    assert (found.acknowledged, found.found, found.missing, found.twice) == (20, 20, 0, 0)


def test_one_that_is_missing_is_found_out():
    found = verdict([each for each in ALL if each != message(5, 3)], {0: 10, 5: 10})
    assert not found.sound
    assert (found.found, found.missing) == (19, 1)


def test_one_that_is_there_twice_is_found_out():
    found = verdict([*ALL, message(0, 9)], {0: 10, 5: 10})
    assert not found.sound
    assert (found.missing, found.twice) == (0, 1)


def test_what_nobody_promised_may_be_there_or_not():
    values = [each for each in ALL if each not in (message(0, 2), message(0, 3))]
    found = verdict(values, {0: 10, 5: 10}, [(0, 2, 5)])
    assert found.sound
    assert (found.acknowledged, found.found, found.unacknowledged) == (17, 17, 1)


def test_what_nobody_promised_may_not_be_there_twice():
    assert not verdict([*ALL, message(0, 2)], {0: 10, 5: 10}, [(0, 2, 3)]).sound


@pytest.mark.parametrize("other", [None, b"", b"short", message(0, 1, run=78), message(9, 0), message(0, 10)])
def test_others_messages_in_the_topic_are_passed_over(other):
    assert verdict([*ALL, other], {0: 10, 5: 10}) == verdict(ALL, {0: 10, 5: 10})

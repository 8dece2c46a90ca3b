"""Test the line of handshakes: how many begin in a second, in which order, and who waits no longer."""

import random

import pytest
from twisted.internet.task import Clock

from txbroker.server.endpoints.handshakes import AT_ONCE, MAX_A_SECOND, MAX_WAITING, PACE, HandshakeLine


@pytest.fixture
def clock():
    made = Clock()
    made.advance(1000.0)
    return made


class Begun:
    """Enters connections by number, and notes when each may begin."""

    def __init__(self, clock):
        self.clock = clock
        self.line = HandshakeLine(clock)
        self.order, self.times = [], []

    def enter(self, number):
        if self.line.enter(number, lambda: self.note(number)):
            self.note(number)

    def note(self, number):
        self.order.append(number)
        self.times.append(self.clock.seconds())


@pytest.fixture
def begun(clock):
    return Begun(clock)


def test_a_few_begin_at_once_and_the_others_in_order_at_their_pace(begun, clock):
    for number in range(50):
        begun.enter(number)
    assert begun.order == list(range(AT_ONCE))
    assert len(begun.line) == 50 - AT_ONCE
    for _ in range(100):
        clock.advance(PACE)
    assert begun.order == list(range(50))
    waits = [time - 1000.0 for time in begun.times[AT_ONCE:]]
    assert waits == pytest.approx([PACE * (number + 1) for number in range(50 - AT_ONCE)], abs=PACE)
    assert not clock.getDelayedCalls()


def test_no_second_has_more_than_it_may_whenever_they_come(begun, clock):
    chance = random.Random(7)
    for number in range(3_000):
        begun.enter(number)
        if chance.random() < 0.02 or begun.line.is_full:
            clock.pump([chance.choice([0.0005, PACE, 0.05])] * chance.randrange(1, 200))
    clock.pump([0.001] * 5_000)
    times = begun.times
    assert len(times) == 3_000
    most = max(
        sum(1 for other in times[first : first + 2 * MAX_A_SECOND] if other < times[first] + 1.0)
        for first in range(len(times))
    )
    assert AT_ONCE < most <= MAX_A_SECOND


def test_a_timer_that_comes_late_is_made_up_for_and_a_rest_is_saved_only_in_part(begun, clock):
    for number in range(20):
        begun.enter(number)
    clock.advance(4 * PACE)  # one late turn of the reactor instead of four
    clock.advance(0.0)
    assert len(begun.order) >= AT_ONCE + 3
    clock.pump([PACE] * 30)
    clock.advance(3600.0)
    before = len(begun.order)
    for number in range(20, 40):
        begun.enter(number)
    assert len(begun.order) == before + AT_ONCE


def test_whoever_is_gone_takes_nobodys_turn(begun, clock):
    for number in range(AT_ONCE + 3):
        begun.enter(number)
    begun.line.leave(AT_ONCE)
    begun.line.leave(AT_ONCE)
    begun.line.leave(0)
    clock.advance(PACE)
    assert begun.order[AT_ONCE:] == [AT_ONCE + 1]
    begun.line.leave(AT_ONCE + 2)
    assert not clock.getDelayedCalls()


def test_the_line_has_an_end(begun):
    for number in range(AT_ONCE + MAX_WAITING):
        assert not begun.line.is_full
        begun.enter(number)
    assert begun.line.is_full
    assert not begun.line.is_free

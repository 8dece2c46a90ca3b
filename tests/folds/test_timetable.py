"""Tests of the timetable: what is due comes out in the order of its times, and nothing is lost on the way."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from journal.folds.timetable import AHEAD, HOUR, PIECE, Timetable

MS = 1_000
HOUR_MICROS = HOUR * MS
START = 480_000 * HOUR_MICROS
"""A time in 2024, as schedule time has it."""


def rounded(due: int) -> int:
    return -(-due // MS) * MS


def taken(table: Timetable, now: int) -> list[tuple[int, int]]:
    """Take all that is due, as (due, id)."""
    found = []
    while True:
        while table.step(now):
            pass
        first = table.first(now)
        if first is None:
            return found
        table.remove_first()
        found.append((first[1], first[0]))


class TimetableMachine(RuleBasedStateMachine):
    """Adds, takes and restores; the model is a list of what waits."""

    @initialize(start=st.integers(0, 2 * HOUR_MICROS))
    def begin(self, start: int) -> None:
        self.table, self.now = Timetable(), START + start
        self.waiting: list[tuple[int, int]] = []
        self.next = 0

    @rule(
        delays=st.lists(
            st.one_of(
                st.integers(-5 * MS, 3_000 * MS),
                st.integers(0, 3 * HOUR_MICROS),
                st.integers(0, 10 * 366 * 24 * HOUR_MICROS),
                st.integers(-40 * 24 * HOUR_MICROS, 0),
            ),
            max_size=30,
        )
    )
    def add(self, delays: list[int]) -> None:
        for delay in delays:
            due = max(1, self.now + delay)
            self.table.add(due, self.next)
            self.waiting.append((rounded(due), self.next))
            self.next += 1

    @rule(most=st.integers(0, 5))
    def lay_out(self, most: int) -> None:
        for _ in range(most):
            self.table.step(self.now)

    @rule(by=st.one_of(st.integers(0, 50 * MS), st.integers(0, 5_000 * MS), st.integers(0, 30 * HOUR_MICROS)))
    def take(self, by: int) -> None:
        self.now += by
        due = sorted(each for each in self.waiting if each[0] <= self.now)
        assert taken(self.table, self.now) == due
        self.waiting = [each for each in self.waiting if each[0] > self.now]

    @rule(by=st.one_of(st.integers(0, 5_000 * MS), st.integers(0, 40 * 24 * HOUR_MICROS)))
    def set_back(self, by: int) -> None:
        """The wall clock is set back: what is laid out stays so, what comes is put where it belongs."""
        self.now -= by
        self.table.step(self.now)

    @rule()
    def restore(self) -> None:
        self.table = Timetable.of(self.table.rows())
        assert all(some.is_possible for some in self.table.rows())

    @rule()
    def look(self) -> None:
        at = self.table.next_at()
        first = min((due for due, _ in self.waiting), default=None)
        assert (at is None) is (first is None)
        if at is not None and first is not None:
            assert at <= first, "it would be looked for too late"

    @invariant()
    def has_all(self) -> None:
        assert len(self.table) == len(self.waiting)
        assert sorted(self.table.entries()) == sorted(self.waiting)


TestTimetable = TimetableMachine.TestCase


def test_a_step_is_bounded_and_all_of_a_second_is_in_order() -> None:
    table, count = Timetable(), 3 * PIECE
    due = START + HOUR_MICROS // 2
    for number in range(count):
        table.add(due + (count - number) % 1_000 * MS // 2, number)
    steps = 0
    while table.step(due + 1_000 * MS):
        steps += 1
    assert steps >= 2 * count // PIECE
    found = taken(table, due + 1_000 * MS)
    assert len(found) == count
    assert found == sorted(found)


def test_after_the_clock_was_set_back_far_little_is_in_order_at_a_time() -> None:
    table, month = Timetable(), 30 * 24 * HOUR_MICROS
    table.add(START + month, 0)
    assert len(taken(table, START + month)) == 1
    while table.step(START):
        pass
    for number in range(1, 1_001):
        table.add(START + number * HOUR_MICROS // 10, number)
    assert len(table._ready) < 20
    assert [entry for _, entry in taken(table, START + month)] == list(range(1, 1_001))


def test_all_is_laid_out_before_its_time_comes() -> None:
    table = Timetable()
    table.add(START + HOUR_MICROS, 1)
    now = START + HOUR_MICROS - AHEAD * MS
    while table.step(now):
        pass
    assert table.first(START + HOUR_MICROS - 1) is None
    assert table.next_at() == START + HOUR_MICROS
    assert list(table.coming(START + HOUR_MICROS)) == [1]


@given(st.lists(st.integers(0, 20_000 * MS), min_size=1, max_size=200))
def test_what_comes_soon_is_known(delays: list[int]) -> None:
    table = Timetable()
    for number, delay in enumerate(delays):
        table.add(START + delay, number)
    while table.step(START):
        pass
    soon = set(table.coming(START + 2_000 * MS))
    assert {number for number, delay in enumerate(delays) if delay <= 2_000 * MS} <= soon

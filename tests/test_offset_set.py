"""Sets of offsets against Python's own sets."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from journal.offset_set import CHUNK, OffsetSet, runs_of

pytestmark = pytest.mark.slow

NEAR = st.integers(0, 200)
AT_AN_EDGE = st.builds(lambda chunk, by: chunk * CHUNK + by, st.integers(1, 3), st.integers(-3, 3))
OFFSETS = st.one_of(NEAR, AT_AN_EDGE, st.integers(0, 4 * CHUNK))


def made(offsets):
    found = OffsetSet()
    for offset in offsets:
        found.add(offset)
    return found


def members(offsets):
    return {offset for first, end in offsets.runs() for offset in range(first, end)}


class OffsetSetMachine(RuleBasedStateMachine):
    """One set is changed, the model with it; copies taken on the way must stay as they were."""

    def __init__(self):
        super().__init__()
        self.set, self.model = OffsetSet(), set()
        self.copies = []

    @rule(offset=OFFSETS)
    def add(self, offset):
        self.set.add(offset)
        self.model.add(offset)

    @rule(first=OFFSETS, count=st.one_of(st.integers(0, 70), st.integers(0, 3 * CHUNK)))
    def add_range(self, first, count):
        self.set.add_range(first, first + count)
        self.model.update(range(first, first + count))

    @rule(others=st.sets(OFFSETS, max_size=5), down=st.booleans())
    def combine(self, others, down):
        if down:
            self.set.difference_update(made(others))
            self.model -= others
        else:
            self.set.update(made(others))
            self.model |= others

    @rule(offset=OFFSETS)
    def discard(self, offset):
        self.set.discard(offset)
        self.model.discard(offset)

    @rule(offset=OFFSETS)
    def discard_below(self, offset):
        self.set.discard_below(offset)
        self.model = {each for each in self.model if each >= offset}

    @rule()
    def copy(self):
        self.copies = [*self.copies[-2:], (self.set.copy(), frozenset(self.model))]

    @rule(offset=OFFSETS)
    def missing_from(self, offset):
        found = self.set.missing_from(offset)
        assert found not in self.model
        assert found >= offset
        assert all(each in self.model for each in range(offset, found))

    @rule(others=st.sets(OFFSETS, max_size=5))
    def common(self, others):
        both = self.model & others
        assert self.set.common(made(others)) == min(both, default=None)
        assert made(others).intersects(self.set) == bool(both)

    @rule(below=st.integers(0, 70))
    def bits(self, below):
        base = max(min(self.model, default=0) - below, 0)
        assert OffsetSet.from_bits(base, self.set.bits(base)) == self.set

    @invariant()
    def same(self):
        assert members(self.set) == self.model
        assert len(self.set) == len(self.model)
        assert self.set.count_runs() == len(list(self.set.runs()))
        assert bool(self.set) == bool(self.model)
        assert self.set.end == max(self.model, default=-1) + 1
        if self.model:
            assert self.set.first == min(self.model)
            assert self.set.first in self.set
        assert (self.set.end in self.set, -1 in self.set) == (False, False)
        for copied, model in self.copies:
            assert members(copied) == model


TestOffsetSet = OffsetSetMachine.TestCase


def test_equal_sets_are_equal_however_they_came_about():
    emptied, ranged = made([5, CHUNK]), OffsetSet()
    emptied.discard(5)
    emptied.discard_below(CHUNK + 1)
    ranged.add_range(CHUNK - 2, CHUNK + 2)
    assert emptied == OffsetSet()
    assert ranged == made(range(CHUNK - 2, CHUNK + 2))
    assert ranged != emptied
    assert ranged != {1}


def test_chunks_of_which_all_offsets_are_in_the_set_are_one_object():
    by_range, by_bits = OffsetSet(), OffsetSet.from_bits(0, (1 << 4 * CHUNK) - 1)
    by_range.add_range(0, 4 * CHUNK)
    assert len({id(chunk) for each in (by_range, by_bits) for chunk in each._chunks.values()}) == 1


def test_a_copy_shares_the_bitmaps():
    first = made(range(0, 3 * CHUNK, 500))
    second = first.copy()
    assert all(second._chunks[number] is chunk for number, chunk in first._chunks.items())


def test_a_set_says_its_runs_and_how_many_it_does_not_name():
    assert str(made([5, 6, 7, 9])) == "5-7, 9"
    assert str(made(range(0, 100, 2))).endswith("36, 38 and 30 more runs")
    assert str(OffsetSet()) == ""


@given(st.sets(st.integers(0, 300)))
def test_runs_of_a_bitmap_are_its_ones_in_order(places):
    runs = list(runs_of(sum(1 << place for place in places)))
    assert [place for first, end in runs for place in range(first, end)] == sorted(places)
    assert all(end < first for (_, end), (first, _) in pairwise(runs))


@given(st.sets(OFFSETS, max_size=9), st.sets(OFFSETS, max_size=9), OFFSETS)
def test_what_two_sets_share_and_what_is_below_an_offset(one, other, offset):
    other |= set(list(one)[::2])
    first, second = made(one), made(other)
    assert members(first.shared(second)) == members(second.shared(first)) == one & other
    assert members(first.within(0, offset)) == {each for each in one if each < offset}


@given(st.sets(OFFSETS, max_size=9), st.lists(st.tuples(OFFSETS, OFFSETS), max_size=2), OFFSETS, OFFSETS)
def test_what_is_between_two_offsets(single, ranges, first, end):
    some, all_of_them = made(single), set(single)
    for each in ranges:
        some.add_range(min(each), max(each))
        all_of_them |= set(range(min(each), max(each)))
    between = {offset for offset in all_of_them if first <= offset < end}
    assert members(some.within(first, end)) == between
    assert some.count_within(first, end) == len(between)


def test_the_part_of_a_set_between_two_offsets_is_a_set_of_its_own():
    whole = OffsetSet()
    whole.add_range(5, 3 * CHUNK)
    part = whole.within(CHUNK - 2, 2 * CHUNK + 3)
    assert list(part.runs()) == [(CHUNK - 2, 2 * CHUNK + 3)]
    part.add(1)
    assert 1 not in whole
    assert list(whole.within(0, 6).runs()) == [(5, 6)]
    assert list(whole.within(0, CHUNK).runs()) == [(5, CHUNK)]
    assert not whole.within(0, 5)
    assert not whole.within(9, 9)

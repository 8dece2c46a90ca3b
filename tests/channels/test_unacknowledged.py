"""Test the runs of unacknowledged deliveries against a dict, and what they take."""

from __future__ import annotations

import sys
import tracemalloc
from time import process_time

from hypothesis import given
from hypothesis import strategies as st

from txbroker.channels.unacknowledged import Run, Unacknowledged

CONSUMERS = (None, "a", "b")
STEPS = st.lists(
    st.one_of(
        st.tuples(
            st.just("add"), st.integers(1, 5), st.integers(1, 2), st.booleans(), st.sampled_from(CONSUMERS)
        ),
        st.tuples(st.just("take"), st.integers(0, 60)),
        st.tuples(st.just("up to"), st.integers(0, 60)),
        st.tuples(st.just("put back"), st.integers(0, 10)),
        st.tuples(st.just("all")),
    ),
    max_size=60,
)
Model = dict[int, tuple[int, int, object]]


def spread(runs: list[Run]) -> Model:
    """Return runs as a delivery for each tag."""
    found: Model = {}
    for run in runs:
        assert run.count > 0
        for n in range(run.count):
            assert run.tag + n not in found, "a tag comes twice"
            found[run.tag + n] = (run.partition, run.offset + n, run.consumer)
    return found


class World:
    """Deliveries, and a dict that has the same."""

    def __init__(self) -> None:
        self.real, self.model = Unacknowledged(), Model()
        self.out: list[Run] = []
        self.last = 0
        self.offsets = {1: 0, 2: 0}

    def check(self) -> None:
        runs = list(self.real)
        assert spread(runs) == self.model
        assert [run.tag for run in runs] == sorted(run.tag for run in runs)
        assert self.real.count == len(self.model)

    def add(self, count: int, partition: int, skips: bool, consumer: object) -> None:
        offset = self.offsets[partition] + skips
        self.offsets[partition] = offset + count
        self.real.add(self.last + 1, count, partition, offset, consumer)
        for n in range(count):
            self.model[self.last + 1 + n] = (partition, offset + n, consumer)
        self.last += count

    def taken(self, runs: list[Run], tags: list[int]) -> None:
        assert spread(runs) == {tag: self.model.pop(tag) for tag in tags}
        self.out += runs

    def take(self, tag: int) -> None:
        assert (tag in self.real) is (tag in self.model)
        run = self.real.take(tag)
        assert (run is None) is (tag not in self.model)
        if run is not None:
            self.taken([run], [tag])

    def up_to(self, tag: int) -> None:
        self.taken(self.real.take_up_to(tag), [each for each in self.model if each <= tag])

    def put_back(self, number: int) -> None:
        if self.out:
            run = self.out.pop(number % len(self.out))
            self.real.put(run)
            self.model |= spread([run])

    def all(self) -> None:
        self.taken(self.real.take_all(), list(self.model))


@given(STEPS)
def test_the_deliveries_are_those_of_a_dict(steps):
    world = World()
    names = {
        "add": world.add,
        "take": world.take,
        "up to": world.up_to,
        "put back": world.put_back,
        "all": world.all,
    }
    for name, *fields in steps:
        names[name](*fields)
        world.check()


def test_deliveries_in_a_row_are_one_run_also_when_they_are_acknowledged_one_by_one():
    unacknowledged = Unacknowledged()
    for tag in range(1, 100_001):
        unacknowledged.add(tag, 1, 7, tag + 10, "c")
    assert len(list(unacknowledged)) == 1
    for tag in range(1, 50_001):
        run = unacknowledged.take(tag)
        assert (run.offset, run.count) == (tag + 10, 1)
    assert (len(list(unacknowledged)), unacknowledged.count) == (1, 50_000)


def test_many_that_are_apart_are_acknowledged_in_order_in_little_time_and_memory():
    unacknowledged, count = Unacknowledged(), 30_000
    tracemalloc.start()
    before = process_time()
    for tag in range(1, count + 1):
        unacknowledged.add(tag, 1, 7, 2 * tag, "c")
    size, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert size < 250 * count
    for tag in range(1, count - 9):
        assert unacknowledged.take(tag) is not None
    assert process_time() - before < 10
    assert unacknowledged.count == 10
    assert len(unacknowledged._runs) < 200, "those that are gone are cut off"
    assert sys.getsizeof(unacknowledged._runs) < 10_000

"""Test that fault plans hit the operation that is meant and no other, and that manual clocks move as told."""

import errno

import pytest
from hypothesis import given
from hypothesis import strategies as st

from journal.testing import (
    CHANGES,
    Fault,
    FaultFilesystem,
    FaultPlan,
    ManualClock,
    MemoryFilesystem,
    Operation,
    PowerCut,
    cut_power_at,
)
from tests.testing.crash_outcomes import durable, listing, whole


def test_the_nth_operation_of_a_kind_and_path_fails_and_no_other():
    plan = FaultPlan([Fault(Operation.WRITE, nth=2, path="journal/*", error=errno.ENOSPC)])
    fs = FaultFilesystem(MemoryFilesystem(), plan)
    fs.make_directory("journal")
    other, file = fs.open("other", create=True), fs.open("journal/1", create=True)
    for _ in range(3):
        other.write_some(0, [b"x"])
    file.write_some(0, [b"x"])
    with pytest.raises(OSError, match="No space left") as caught:
        file.write_some(1, [b"y"])
    assert (caught.value.errno, caught.value.filename) == (errno.ENOSPC, "journal/1")
    assert file.write_some(1, [b"z"]) == 1
    assert file.read(0, 9) == b"xz"


def test_a_fault_can_strike_again_and_again():
    fs = FaultFilesystem(MemoryFilesystem(), FaultPlan([Fault(Operation.FORCE, nth=2, times=2)]))
    file = fs.open("a", create=True)
    results = []
    for _ in range(5):
        try:
            file.force()
        except OSError as error:
            results.append(error.errno)
        else:
            results.append(None)
    assert results == [None, errno.EIO, errno.EIO, None, None]


def test_a_write_can_be_short_and_can_fail_half_way():
    faults = [Fault(Operation.WRITE, 1, error=None, short=2), Fault(Operation.WRITE, 2, short=3)]
    file = FaultFilesystem(MemoryFilesystem(), FaultPlan(faults)).open("a", create=True)
    assert file.write_some(0, [b"a", b"bcd"]) == 2
    with pytest.raises(OSError, match="as planned"):
        file.write_some(2, [b"cdefgh"])
    assert file.read(0, 9) == b"abcde"


ATTEMPTS = {
    Operation.OPEN: lambda fs: fs.open("a"),
    Operation.CREATE: lambda fs: fs.open("new", create=True),
    Operation.READ: lambda fs: fs.open("a").read(0, 1),
    Operation.READ_NOW: lambda fs: fs.open("a").read_now(0, 1),
    Operation.WRITE: lambda fs: fs.open("a").write_some(0, [b"x"]),
    Operation.FORCE: lambda fs: fs.open("a").force(),
    Operation.TRUNCATE: lambda fs: fs.open("a").truncate(0),
    Operation.RENAME: lambda fs: fs.rename("a", "b"),
    Operation.UNLINK: lambda fs: fs.unlink("a"),
    Operation.MAKE_DIRECTORY: lambda fs: fs.make_directory("d"),
    Operation.REMOVE_DIRECTORY: lambda fs: fs.remove_directory("e"),
    Operation.LIST_DIRECTORY: lambda fs: fs.list_directory(""),
    Operation.FORCE_DIRECTORY: lambda fs: fs.force_directory(""),
    Operation.LOCK: lambda fs: fs.lock("lock"),
    Operation.FREE_BYTES: lambda fs: fs.free_bytes(),
}


def ready(**plan):
    inner = durable("a")
    inner.make_directory("e")
    return FaultFilesystem(inner, FaultPlan(**plan))


@pytest.mark.parametrize("kind", Operation)
def test_every_kind_of_operation_is_counted_and_can_fail_without_effect(kind):
    fs = ready()
    ATTEMPTS[kind](fs)
    assert fs.plan.counts[kind] == 1
    fs = ready(faults=[Fault(kind, error=errno.EROFS)])
    with pytest.raises(OSError, match="Read-only"):
        ATTEMPTS[kind](fs)
    assert (listing(fs.inner), whole(fs.inner)) == (("a", "e"), b"a")


@pytest.mark.parametrize("kind", Operation)
def test_the_hook_is_called_before_what_changes_state_and_only_then(kind):
    calls = []
    fs = ready(on_operation=lambda *call: calls.append((*call, listing(fs.inner), whole(fs.inner))))
    ATTEMPTS[kind](fs)
    assert [call[0] for call in calls] == [kind] * (kind in CHANGES)
    assert all(call[2:] == (("a", "e"), b"a") for call in calls)


@pytest.mark.parametrize("kind", Operation)
def test_after_a_power_cut_nothing_works_and_nothing_changes(kind):
    fs = ready(on_operation=cut_power_at(1))
    file = fs.open("a")
    with pytest.raises(PowerCut, match="before write of 'a', state-changing operation 1"):
        file.write_some(0, [b"x"])
    with pytest.raises(PowerCut):
        ATTEMPTS[kind](fs)
    file.close()
    assert (listing(fs.inner), whole(fs.inner)) == (("a", "e"), b"a")


def test_no_handler_of_the_code_under_test_survives_a_power_cut():
    assert not issubclass(PowerCut, Exception)


def test_the_power_is_cut_at_exactly_the_operation_asked_for():
    fs = ready(on_operation=cut_power_at(3))
    file = fs.open("a")
    file.write_some(0, [b"1"])
    file.write_some(1, [b"2"])
    with pytest.raises(PowerCut):
        file.write_some(2, [b"3"])
    assert whole(fs.inner) == b"12"


def test_a_read_that_must_not_wait_can_be_made_to_wait():
    fs = ready(faults=[Fault(Operation.READ_NOW, error=errno.EAGAIN)])
    file = fs.open("a")
    assert file.read_now(0, 1) is None
    assert file.read_now(0, 1) == b"a"


def test_the_free_bytes_are_what_the_plan_says():
    fs = ready(free_bytes=123)
    assert fs.free_bytes() == 123
    fs.plan.free_bytes = None
    assert fs.free_bytes() == fs.inner.free_bytes()


@given(st.lists(st.integers(0, 10**9)))
def test_a_manual_clock_moves_both_times_by_what_it_is_told(steps):
    clock = ManualClock(monotonic=5, wall=1_000)
    for step in steps:
        clock.advance(step)
    assert (clock.monotonic(), clock.wall()) == (5 + sum(steps), 1_000 + sum(steps))


def test_only_the_wall_clock_can_be_set_back():
    clock = ManualClock(monotonic=5, wall=1_000)
    clock.set_wall(10)
    assert (clock.monotonic(), clock.wall()) == (5, 10)
    with pytest.raises(ValueError, match="does not run backwards"):
        clock.advance(-1)

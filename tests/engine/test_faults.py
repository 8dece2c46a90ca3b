"""Test calls that fail: nothing is retried, nothing is answered, and the next start has all that was acknowledged."""

from __future__ import annotations

import errno

import pytest

from journal.constants import KIB
from journal.errors import JournalPoisoned
from journal.testing import Fault, MemoryFilesystem, Operation
from tests.support.engine_room import SMALL, Room, contents, decide, xid_of

BIG = b"v" * (40 * KIB)
FAULTS = [
    Fault(Operation.WRITE, error=errno.EIO),
    Fault(Operation.WRITE, error=errno.EIO, short=4096),
    Fault(Operation.WRITE, error=errno.ENOSPC),
    Fault(Operation.WRITE, error=errno.ENOSPC, short=6000),
    Fault(Operation.FORCE, error=errno.EIO),
    Fault(Operation.FORCE_DIRECTORY, error=errno.EIO),
    Fault(Operation.RENAME, error=errno.EIO),
    Fault(Operation.CREATE, error=errno.ENOSPC),
    Fault(Operation.OPEN, error=errno.EMFILE),
    Fault(Operation.TRUNCATE, error=errno.EIO),
    Fault(Operation.UNLINK, error=errno.EIO),
    Fault(Operation.MAKE_DIRECTORY, error=errno.ENOSPC),
]


def name(fault):
    return f"{fault.kind.value}-{errno.errorcode[fault.error]}" + (f"-{fault.short}" if fault.short else "")


def work(room, answered):
    """A bit of everything; ``answered`` gets what was acknowledged."""
    room.send(b"one")
    answered.append("one")
    room.send(BIG)
    answered.append("big")
    room.begin((1, b"a"), (2, b"a" + BIG)).prepare("p").sync()
    answered.append("prepared")
    room.checkpoint()
    room.send(BIG)
    answered.append("again")
    room.checkpoint()
    room.begin((1, b"b"), (2, b"b")).commit().sync()
    answered.append("committed")
    for _ in range(2):
        room.send(b"last")
        room.checkpoint()


def check(after, answered):
    expected = [b"one", BIG, BIG, b"b"]
    kept = sum(("one" in answered, "big" in answered, "again" in answered, "committed" in answered))
    found = [value for value in after.values() if value != b"last"]
    assert len(found) >= kept
    assert found == expected[: len(found)]
    assert after.values(2) == ([b"b"] if b"b" in found else [])
    if "prepared" in answered or after.prepared():
        assert after.prepared() == {xid_of("p")}
        decide(after, "p", commit=True)
        assert after.values(2)[-1] == b"a" + BIG
    after.send(b"goes on")


@pytest.mark.slow
@pytest.mark.sampled
@pytest.mark.parametrize("fault", FAULTS, ids=name)
def test_whatever_call_fails_the_engine_stops_and_the_next_start_has_all_that_was_answered(fault):
    failures = 0
    for nth in range(1, 200):
        room = Room()
        room.topic()
        room.plan.faults.append(planned := Fault(fault.kind, nth, "*", fault.error, fault.short))
        answered: list[str] = []
        try:
            work(room, answered)
        except (OSError, JournalPoisoned):
            failures += 1
            assert room.engine.failed
            with pytest.raises(JournalPoisoned):
                room.accept(b"after the failure")
            with pytest.raises(JournalPoisoned):
                room.engine.sync()
        if planned.seen < nth:
            break
        killed = room.killed()
        check(killed, answered)
        for seed in range(3):
            check(room.crashed(seed), answered)
        check(room.killed().crashed(0, survive=0), answered)
    assert failures
    assert nth > 1


def test_a_force_that_fails_once_and_would_then_succeed_is_never_tried_again():
    room = Room()
    room.topic()
    room.send(b"before")
    room.plan.faults.append(fault := Fault(Operation.FORCE, path="journal/*", times=1))
    room.accept(b"lost")
    with pytest.raises(JournalPoisoned, match="nothing is retried"):
        room.engine.sync()
    for _ in range(3):
        with pytest.raises(JournalPoisoned):
            room.engine.sync()
        with pytest.raises(JournalPoisoned):
            room.engine.journal.force()
    assert fault.seen == 1
    assert room.values() == [b"before"], "nobody saw what was not forced"
    assert room.crashed(0, survive=0).values() == [b"before"]


def test_short_writes_are_gone_on_with():
    room = Room()
    room.topic()
    for nth in range(1, 12, 2):
        room.plan.faults.append(Fault(Operation.WRITE, nth=nth, error=None, short=1 + 700 * nth))
    work(room, [])
    assert room.plan.faults[0].seen > 12
    check(room.crashed(0, survive=0), ["one", "big", "prepared", "again", "committed"])


def test_a_write_that_makes_no_progress_is_a_failure_not_a_loop():
    room = Room()
    room.topic()
    room.plan.faults.append(Fault(Operation.WRITE, path="journal/*", error=None, short=0))
    with pytest.raises(JournalPoisoned, match="no progress"):
        room.send(b"x")


def test_new_work_is_refused_before_the_disk_is_full_and_finishing_goes_on():
    room = Room()
    room.topic()
    room.begin((1, b"a")).prepare("p").sync()
    room.plan.free_bytes = SMALL.file_bytes - 1
    room.engine.housekeeping.run_inline()
    assert room.engine.full
    decide(room, "p", commit=True)
    room.checkpoint()
    room.plan.free_bytes = None
    room.engine.housekeeping.run_inline()
    assert not room.engine.full


def test_on_a_full_disk_the_ballast_goes_so_that_the_start_succeeds():
    room = Room()
    room.topic()
    room.send(b"x")
    inner = room.inner.crash_clone(0)
    inner.open("ballast", create=True).write_some(0, [bytes(1000)])
    inner.free = SMALL.file_bytes
    after = Room(inner)
    assert not inner.exists("ballast")
    assert any("ballast" in note for note in after.engine.report.notes)
    assert after.values() == [b"x"]


@pytest.mark.parametrize("partitions", [1, 4])
def test_a_start_on_a_full_disk_flushes_no_more_than_was_flushed_before_and_a_part_of_the_ballast(partitions):
    room = Room()
    room.topic(partitions=partitions)
    for number in range(27):
        room.send(BIG, number=1 + number % partitions)
        if number == 4:
            room.flush()
    before = segment_bytes(room.inner)
    inner = room.inner.kill_clone()
    inner.free = 0
    after = Room(inner)
    assert after.engine.report.bytes > SMALL.pool_bytes, "memory alone would not do"
    assert segment_bytes(inner) <= before + 2 * SMALL.file_bytes
    assert sum(len(after.values(number)) for number in after.engine.catalog.stores) == 27
    assert after.engine.full, "new work is refused from the start on"


def segment_bytes(inner):
    return sum(len(data) for path, data in contents(inner).items() if path.endswith(".log"))


@pytest.mark.parametrize(
    "kind", [Operation.WRITE, Operation.FORCE, Operation.RENAME, Operation.FORCE_DIRECTORY]
)
def test_a_start_that_fails_can_be_made_again(kind):
    room = Room()
    room.topic()
    work(room, [])
    room.accept(b"unforced")
    room.engine.journal.write(room.engine.take())
    for nth in range(1, 20):
        inner = room.inner.kill_clone()
        fault = Fault(kind, nth)
        try:
            Room(inner, faults=[fault])
        except (OSError, JournalPoisoned):
            pass
        else:
            break
        for disk in (inner.kill_clone(), inner.crash_clone(nth)):
            after = Room(disk)
            assert after.values()[-1] in (b"last", b"unforced")
            assert after.prepared() == {xid_of("p")}
    assert nth > 1
    assert isinstance(inner, MemoryFilesystem)

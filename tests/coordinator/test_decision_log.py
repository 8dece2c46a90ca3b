"""Test the log of decisions: what it holds over restarts, its size, and its errors when the disk fails."""

import threading
from pathlib import Path

import pytest

from journal.errors import DiskFull
from journal.testing import Fault, FaultFilesystem, FaultPlan, ManualClock, MemoryFilesystem, Operation
from txbroker import errors
from txbroker.coordinator.decision_log import (
    _TOGETHER,
    COMPACT_AFTER,
    BranchRecord,
    Decision,
    DecisionLog,
    Heuristic,
)


def opened(filesystem):
    return DecisionLog(filesystem, ManualClock())


def decision(number):
    return Decision(f"g{number}", [BranchRecord("pg", "here", "12"), BranchRecord("orders")], number)


def test_a_decision_is_there_after_a_power_cut_until_its_end_is_written():
    filesystem = MemoryFilesystem()
    log = opened(filesystem)
    log.decide(decision(1))
    log.decide(decision(2))
    log.end("g1")
    again = opened(filesystem.crash_clone(1, 0.0))
    assert again.identity == log.identity
    assert again.decisions == {"g1": decision(1), "g2": decision(2)}  # an end waits for company
    log.flush()
    assert opened(filesystem.crash_clone(1, 0.0)).decisions == {"g2": decision(2)}
    assert again.start > log.start


def test_a_heuristic_outcome_is_there_until_it_is_forgotten():
    filesystem = MemoryFilesystem()
    log = opened(filesystem)
    found = Heuristic("g1", "pg", "committed", "rolled back", "ann", "", 5)
    log.report(found)
    log.report(found)
    again = opened(filesystem.crash_clone(1, 0.0))
    assert list(again.heuristics.values()) == [found]
    again.forget("g1", "pg")
    assert again.heuristics == {}


def test_a_branch_that_was_told_need_not_be_told_again_however_long_the_others_are_away():
    filesystem = MemoryFilesystem()
    log = opened(filesystem)
    log.decide(decision(1))
    log.told("g1", "pg")
    log.flush()
    again = opened(filesystem.crash_clone(1, 0.0))
    assert [branch.name for branch in again.decisions["g1"].branches] == ["orders"]


def test_a_branch_that_is_forgotten_is_no_longer_waited_for():
    filesystem = MemoryFilesystem()
    log = opened(filesystem)
    log.decide(decision(1))
    log.forget("g1", "pg")
    again = opened(filesystem.crash_clone(1, 0.0))
    assert [branch.name for branch in again.decisions["g1"].branches] == ["orders"]


@pytest.mark.slow
def test_it_stays_small_and_keeps_an_old_decision_however_many_come_after_it(tmp_path):
    log = DecisionLog(tmp_path)
    log.decide(decision(-1))
    log.report(Heuristic("g0", "pg", "committed", "rolled back", "", "", 5))
    sizes = []
    for number in range(3 * COMPACT_AFTER):
        log.decide(decision(number))
        log.end(f"g{number}")
        if number % COMPACT_AFTER == COMPACT_AFTER - 1:
            sizes.append(sum(path.stat().st_size for path in Path(tmp_path).rglob("*") if path.is_file()))
    assert max(sizes) < 24 << 20, sizes
    assert log._log.start_offset("decisions") > COMPACT_AFTER
    log.close()
    log = DecisionLog(tmp_path)
    assert list(log.decisions) == ["g-1"]
    assert len(log.heuristics) == 1
    log.close()


def test_threads_that_decide_at_a_time_share_a_force():
    filesystem = MemoryFilesystem()
    log = opened(filesystem)
    log._writing.acquire()  # as if one were being forced
    threads = [threading.Thread(target=log.decide, args=(decision(number),)) for number in range(20)]
    for thread in threads:
        thread.start()
    while len(log._queue) < 20:
        pass
    before = log._log.engine.catalog.topic("decisions").partitions[0].end_offset
    log._writing.release()
    for thread in threads:
        thread.join()
    assert log._log.engine.catalog.topic("decisions").partitions[0].end_offset == before + 1
    assert len(log.decisions) == len(opened(filesystem.crash_clone(1, 0.0)).decisions) == 20


def test_a_force_that_fails_leaves_it_open_whether_it_is_decided_and_ends_all_deciding():
    filesystem = MemoryFilesystem()
    plan = FaultPlan()
    log = opened(FaultFilesystem(filesystem, plan))
    log.decide(decision(1))
    plan.faults.append(Fault(Operation.FORCE, path="journal/*"))
    with pytest.raises(errors.OutcomeUnknown, match="open the directory again"):
        log.decide(decision(2))
    with pytest.raises(errors.StorageUnavailable, match="nothing was written for this"):
        log.decide(decision(3))
    assert list(log.decisions) == ["g1"]
    again = opened(filesystem.crash_clone(1, 1.0))
    assert "g3" not in again.decisions


def test_after_a_failure_of_any_kind_nothing_more_is_tried(monkeypatch):
    """The journal may not know of it: what failed was perhaps above it."""
    log = opened(MemoryFilesystem())
    append = log._log.append
    monkeypatch.setattr(log._log, "append", lambda *_: 1 / 0)
    with pytest.raises(errors.OutcomeUnknown, match="ZeroDivisionError"):
        log.decide(decision(1))
    monkeypatch.setattr(log._log, "append", append)
    with pytest.raises(errors.StorageUnavailable):
        log.decide(decision(2))
    assert log.decisions == {}


def test_a_full_disk_refuses_a_decision_of_which_nothing_was_written_and_keeps_the_ends_for_later():
    filesystem = MemoryFilesystem()
    log = opened(filesystem)
    log.decide(decision(1))
    log.end("g1")
    log._log.engine.full_at = -1
    with pytest.raises(DiskFull):
        log.decide(decision(2))
    log._log.engine.full_at = 1 << 62
    log.decide(decision(3))
    assert list(log.decisions) == list(opened(filesystem.crash_clone(1, 0.0)).decisions) == ["g3"]


def within(seconds, call):
    """What a call raises or returns; one that does not come back fails the test, and not the run of all tests."""
    found = []

    def go():
        try:
            found.append(call())
        except Exception as error:  # noqa: BLE001 - it is what the test looks at
            found.append(error)

    thread = threading.Thread(target=go, daemon=True)
    thread.start()
    thread.join(seconds)
    assert found, "the call did not come back"
    return found[0]


@pytest.mark.parametrize("waiting", [_TOGETHER - 1, _TOGETHER, 3 * _TOGETHER + 7])
def test_a_decision_is_refused_at_once_however_many_ends_wait_before_it(waiting, monkeypatch):
    """It stood behind the batch that was refused and put back, again and again, with the log's lock held."""
    filesystem = MemoryFilesystem()
    log = opened(filesystem)
    for number in range(waiting):
        log.decide(decision(number))
    for number in range(waiting):
        log.end(f"g{number}")
    append = log._log.append

    def full(*_):
        raise DiskFull("no room")

    monkeypatch.setattr(log._log, "append", full)
    assert isinstance(within(20.0, lambda: log.decide(decision(-1))), DiskFull)
    assert isinstance(within(20.0, lambda: log.decide(decision(-2))), DiskFull)
    monkeypatch.setattr(log._log, "append", append)
    log.decide(decision(-3))
    assert list(log.decisions) == list(opened(filesystem.crash_clone(1, 0.0)).decisions) == ["g-3"]


def test_after_a_failure_a_decision_is_refused_at_once_however_many_ends_wait_before_it():
    log = opened(MemoryFilesystem())
    for number in range(2 * _TOGETHER):
        log.end(f"g{number}")
    log.failure = OSError("disk gone")
    refused = within(20.0, lambda: log.decide(decision(1)))
    assert isinstance(refused, errors.StorageUnavailable)
    assert "nothing was written for this" in str(refused)
    log.close()


@pytest.mark.slow
def test_closing_writes_all_that_waits():
    filesystem = MemoryFilesystem()
    log = opened(filesystem)
    for number in range(3 * _TOGETHER):
        log.decide(decision(number))
    for number in range(3 * _TOGETHER):
        log.end(f"g{number}")
    log.close()
    assert opened(filesystem).decisions == {}

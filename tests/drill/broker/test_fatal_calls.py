"""Test that the process dies at the call and time that it is told, and leaves what a death there leaves."""

import os
import signal
import threading

import pytest
from zope.interface.verify import verifyObject

from journal.interfaces import IFile, IFilesystem
from journal.records import record
from journal.testing.faults import Operation
from journal.transaction_states import Totals
from journal.wal.writer import JournalGroup
from journal.xid import Xid
from txbroker.drill.broker.fatal_calls import Trigger, on_power_cuts, on_system
from txbroker.drill.broker.kill_points import MID_APPLY, POINTS, RECOVERY, Moment

JOURNAL = "journal/00000000000000000000000000000001.journal"
PREPARED = record.TransactionPrepared(1, 1, Xid(1, b"a", b"b"), Totals(0, 0, 0), 0, 0)


def dies(work):
    """Whether a child process that does the work dies by SIGKILL; an error in it fails the test."""
    child = os.fork()
    if not child:
        status = 1
        try:
            os.dup2(os.open(os.devnull, os.O_WRONLY), 2)
            work()
            status = 0
        finally:
            os._exit(status)
    _, status = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(status) in (0, -signal.SIGKILL)
    return status != 0


@pytest.fixture
def trigger():
    return Trigger()


@pytest.fixture
def files(tmp_path, trigger):
    made = on_system(tmp_path, trigger)
    for name in ("journal", "checkpoints", "partitions", "partitions/t-0.1", "staged"):
        made.make_directory(name)
    return made


def size(tmp_path, path):
    return (tmp_path / path).stat().st_size if (tmp_path / path).exists() else None


def test_disarmed_it_is_a_file_system_like_any_other(files, tmp_path):
    file = files.open(JOURNAL, create=True)
    assert file.write_some(0, [b"abc", b"def"]) == 6
    file.force()
    assert (file.read(0, 9), file.size()) == (b"abcdef", 6)
    file.truncate(4)
    file.close()
    files.rename(JOURNAL, "journal/other")
    files.force_directory("journal")
    assert size(tmp_path, "journal/other") == 4
    files.unlink("journal/other")
    assert files.list_directory("journal") == []


@pytest.mark.parametrize("made", [on_system, on_power_cuts])
def test_it_has_all_that_a_file_system_has(tmp_path, trigger, made):
    """The scrubber of a drilled broker took a call that was not there for a disk that cannot be read."""
    files = made(tmp_path, trigger=trigger)
    assert verifyObject(IFilesystem, files)
    assert verifyObject(IFile, files.open("a", create=True), tentative=True)


def test_half_of_a_write_is_there_after_a_death_in_its_middle(files, tmp_path, trigger):
    file = files.open(JOURNAL, create=True)
    trigger.arm(POINTS["mid-write"])
    assert dies(lambda: file.write_some(100, [b"x" * 1600, b"y" * 400]))
    assert size(tmp_path, JOURNAL) == 1536, "the sector in which the half of 2,000 bytes from 100 on ends"


def test_what_lies_in_one_sector_is_written_whole(files, tmp_path, trigger):
    file = files.open(JOURNAL, create=True)
    trigger.arm(POINTS["mid-write"])
    assert not dies(lambda: file.write_some(512, [b"x" * 512]))
    assert size(tmp_path, JOURNAL) == 1024


def test_the_nth_time_counts_and_other_files_do_not(files, tmp_path, trigger):
    file, other = files.open(JOURNAL, create=True), files.open("journal/spare.filling", create=True)
    trigger.arm(POINTS["mid-write"], 3)

    def work(times):
        for _ in range(times):
            other.write_some(0, [bytes(5000)])
            file.write_some(file.size(), [bytes(5000)])

    assert not dies(lambda: work(2))
    assert dies(lambda: work(3))


@pytest.mark.parametrize(("point", "renamed"), [("before", False), ("after", True)])
def test_a_death_before_or_after_a_call_leaves_it_undone_or_done(files, tmp_path, trigger, point, renamed):
    files.open("checkpoints/00000000000000000000000000000001.checkpoint.tmp", create=True).close()
    old, new = (f"checkpoints/00000000000000000000000000000001.checkpoint{end}" for end in (".tmp", ""))
    trigger.arm(POINTS[f"{point}-checkpoint-rename"])
    assert dies(lambda: files.rename(old, new))
    assert (tmp_path / new).exists() is renamed


def test_a_force_is_its_point_only_if_a_record_of_the_kind_is_in_the_group(files, trigger):
    file = files.open(JOURNAL, create=True)

    def force(group):
        trigger.writing(group)
        file.force()

    trigger.arm(POINTS["after-prepare-force"])
    trigger.accepted(record.Mark(0), 5)
    trigger.accepted(PREPARED, 12)
    assert not dies(lambda: force(JournalGroup(1, count=11)))
    assert dies(lambda: force(JournalGroup(12, count=1)))
    assert not dies(lambda: force(JournalGroup(13, count=9)))


def test_what_was_accepted_before_the_arming_is_forgotten(files, trigger):
    file = files.open(JOURNAL, create=True)
    trigger.arm(POINTS["before-prepare-force"])
    trigger.accepted(PREPARED, 12)
    trigger.arm(POINTS["before-prepare-force"])
    trigger.writing(JournalGroup(12, count=1))
    assert not dies(file.force)


def test_recovery_is_a_thread(files, trigger):
    trigger.arm(POINTS[RECOVERY], 2)

    def in_thread():
        for number in range(2):
            files.make_directory(f"staged/{number}")

    def work(name):
        thread = threading.Thread(target=in_thread, name=name)
        thread.start()
        thread.join()

    assert not dies(lambda: work("txbroker writer 0"))
    assert dies(lambda: work("txbroker recovery 0"))


def test_a_point_without_a_call_is_passed_by_name(trigger):
    trigger.arm(POINTS[MID_APPLY], 2)
    assert not dies(lambda: trigger.passed("another"))
    assert not dies(lambda: trigger.passed(MID_APPLY))
    assert dies(lambda: [trigger.passed(MID_APPLY), trigger.passed(MID_APPLY)])


def test_every_point_is_at_a_call_that_the_file_system_watches_or_is_passed_by_name():
    for point in POINTS.values():
        assert point.operations or point.name == MID_APPLY
        if point.moment is Moment.HALF:
            assert point.operations == {Operation.WRITE}

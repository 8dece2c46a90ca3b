"""Test the crash model of failed forces: their pages stay clean, in the cache or not, and only a rewrite saves them."""

import errno

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from journal.testing import (
    Fault,
    FaultFilesystem,
    FaultPlan,
    MemoryFilesystem,
    Operation,
)
from journal.testing.pages import PAGE, SECTOR
from journal.vfs.filesystem import write_fully
from tests.testing.crash_outcomes import new_file, outcomes, page, whole


def failed_force(**fault):
    """A file on which a force has failed: `old` was durable, `new` is what reads give."""
    fs = MemoryFilesystem()
    file = new_file(FaultFilesystem(fs, FaultPlan([Fault(Operation.FORCE, nth=2, **fault)])))
    write_fully(file, 0, [page(b"o")])
    file.force()
    write_fully(file, 0, [page(b"n") * 2])
    with pytest.raises(OSError, match="as planned"):
        file.force()
    return fs, file


def test_after_a_failed_force_reads_give_the_new_bytes_and_a_later_force_does_not_write_them():
    fs, file = failed_force()
    assert file.read(0, 2 * PAGE) == page(b"n") * 2
    file.force()
    assert file.read(0, 2 * PAGE) == page(b"n") * 2
    assert page(b"o") + page(b"\0") in outcomes(fs, whole)
    assert outcomes(fs, whole, survive=0) == outcomes(fs, whole, survive=1) == {page(b"o") + page(b"\0")}


def test_pages_of_a_failed_force_stay_clean_in_the_next_process():
    fs, _ = failed_force()
    killed = fs.kill_clone()
    killed.open("a").force()
    assert whole(killed) == page(b"n") * 2
    assert whole(killed.crash_clone(0, survive=0)) == page(b"o") + page(b"\0")


def test_pages_of_a_failed_force_that_leave_the_cache_are_read_as_the_disk_has_them():
    fs, _ = failed_force()
    new, old = page(b"n") * 2, page(b"o") + page(b"\0")
    found = set()
    for seed in range(60):
        killed = fs.kill_clone(seed)
        seen = whole(killed)
        found.add(seen)
        for number in range(2):
            part = slice(number * PAGE, (number + 1) * PAGE)
            assert seen[part] in (new[part], old[part])
            if seen[part] == old[part]:
                assert whole(killed.crash_clone(seed))[part] in (old[part], b""), "the disk has nothing else"
    assert len(found) == 4
    fs.open("forced", create=True).write_some(0, [b"f"])
    fs.open("forced").force()
    fs.open("dirty", create=True).write_some(0, [b"d"])
    assert all(
        whole(fs.kill_clone(seed), name) == name[:1].encode()
        for seed in range(9)
        for name in ("forced", "dirty")
    )


def test_rewriting_what_a_failed_force_lost_makes_it_durable():
    fs, _ = failed_force(error=errno.ENOSPC)
    killed = fs.kill_clone()
    file = killed.open("a")
    write_fully(file, 0, [file.read(0, file.size())])
    file.force()
    assert outcomes(killed, whole) == {page(b"n") * 2}


def test_a_cut_makes_lost_pages_go_for_good():
    fs, file = failed_force()
    file.truncate(0)
    file.truncate(PAGE + 10)
    file.force()
    assert outcomes(fs, whole) == {bytes(PAGE + 10)}


def test_a_cut_that_is_durable_keeps_older_bytes_from_coming_back_where_a_force_failed():
    fs = MemoryFilesystem()
    plan = FaultPlan([Fault(Operation.FORCE, nth=2)])
    file = new_file(FaultFilesystem(fs, plan))
    write_fully(file, 0, [page(b"o")])
    file.force()
    file.truncate(0)
    write_fully(file, 0, [page(b"n")])
    with pytest.raises(OSError, match="as planned"):
        file.force()
    file.force()
    assert {data for data in outcomes(fs, whole) if len(set(data)) == 1} == {page(b"\0"), page(b"n")}
    assert not any(b"o" in data for data in outcomes(fs, whole))


def test_a_lost_page_does_not_come_back_over_one_written_and_forced_later():
    fs, file = failed_force()
    write_fully(file, 0, [page(b"x") * 2])
    file.force()
    assert outcomes(fs, whole) == {page(b"x") * 2}


class ContentMachine(RuleBasedStateMachine):
    """Random writes, cuts and forces beside a plain model; every clone is checked byte by byte."""

    def __init__(self):
        super().__init__()
        self.fs = MemoryFilesystem()
        self.file = new_file(self.fs)
        self.data = b""
        self.forced = b""
        self.history = [b""]
        self.seed = 0

    def now(self, data):
        self.data = data
        self.history.append(data)

    @rule(
        position=st.integers(0, 3 * PAGE), length=st.integers(1, 2 * PAGE), letter=st.sampled_from(b"abcdef")
    )
    def write(self, position, length, letter):
        write_fully(self.file, position, [bytes([letter]) * length])
        grown = self.data.ljust(position, b"\0")
        self.now(grown[:position] + bytes([letter]) * length + grown[position + length :])

    @rule(length=st.integers(0, 4 * PAGE))
    def truncate(self, length):
        self.file.truncate(length)
        self.now(self.data[:length].ljust(length, b"\0"))

    @rule()
    def force(self):
        self.file.force()
        self.history = [self.data]

    @rule()
    def restart(self):
        self.fs = self.fs.kill_clone()
        self.file = self.fs.open("a")

    @invariant()
    def reads_give_what_was_written(self):
        assert whole(self.fs) == self.data

    @invariant()
    def a_clone_invents_no_bytes_and_keeps_what_never_changed(self):
        self.seed += 1
        found = whole(self.fs.crash_clone(self.seed))
        longest = max(len(data) for data in self.history)
        assert min(len(data) for data in self.history) <= len(found) <= longest
        padded = [data.ljust(longest, b"\0") for data in self.history]
        for start in range(0, len(found), SECTOR):
            end = min(start + SECTOR, len(found))
            cut_anywhere = {data[start:end] for data in padded} | {bytes(end - start)}
            assert found[start:end] in cut_anywhere
        for position in range(0, min(len(data) for data in self.history), 97):
            if len({data[position] for data in self.history}) == 1:
                assert found[position] == self.data[position]

    @invariant()
    def beyond_the_end_of_a_clone_there_is_nothing(self):
        self.seed += 1
        clone = self.fs.crash_clone(self.seed)
        file = clone.open("a")
        size = file.size()
        file.truncate(size + 5 * PAGE)
        assert file.read(size, 6 * PAGE) == bytes(5 * PAGE)

    @invariant()
    def the_extremes_are_exact(self):
        assert whole(self.fs.crash_clone(0, survive=0)) == self.history[0]
        assert whole(self.fs.crash_clone(0, survive=1)) == self.data


TestContent = ContentMachine.TestCase

"""Test what the engine needs of file systems, on the one in memory; whole writes, plain paths, clocks."""

import errno
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st
from zope.interface.verify import verifyObject

from journal.interfaces import IClock
from journal.testing import Fault, FaultFilesystem, FaultPlan, ManualClock, MemoryFilesystem, Operation
from journal.vfs.clock import SystemClock
from journal.vfs.filesystem import check_path, write_fully
from tests.support.filesystem_conformance import FilesystemConformance


class TestMemoryFilesystem(FilesystemConformance):
    @pytest.fixture
    def fs(self):
        return MemoryFilesystem()


class TestFaultFilesystemWithoutFaults(FilesystemConformance):
    @pytest.fixture
    def fs(self):
        return FaultFilesystem(MemoryFilesystem())


@given(
    st.lists(st.binary(max_size=20), max_size=12),
    st.lists(st.integers(1, 15), max_size=30),
    st.integers(0, 5_000),
)
def test_short_writes_add_up_to_the_whole(buffers, shorts, position):
    faults = [Fault(Operation.WRITE, nth=nth, error=None, short=short) for nth, short in enumerate(shorts, 1)]
    file = FaultFilesystem(MemoryFilesystem(), FaultPlan(faults)).open("a", create=True)
    whole = b"".join(buffers)
    assert write_fully(file, position, buffers) == len(whole)
    assert file.read(position, 10_000) == whole
    assert file.size() == (position + len(whole) if whole else 0)


def test_a_write_without_progress_is_an_error_and_not_an_endless_loop():
    faults = [Fault(Operation.WRITE, nth, error=None, short=short) for nth, short in ((1, 2), (2, 0))]
    plan = FaultPlan(faults)
    file = FaultFilesystem(MemoryFilesystem(), plan).open("a", create=True)
    with pytest.raises(OSError, match="a write at 12 made no progress") as caught:
        write_fully(file, 10, [b"abcdef"])
    assert (caught.value.errno, caught.value.filename) == (errno.EIO, "a")


def test_a_short_write_goes_on_in_the_callers_own_memory():
    calls = []

    class Recorder:
        path = "a"

        def write_some(self, position, buffers):
            calls.append(buffers)
            return 3

    big = bytes(6)
    write_fully(Recorder(), 0, [big])
    assert calls[0][0] is big
    assert calls[1][0].obj is big


@pytest.mark.parametrize("path", ["", "a", "a/b.c", "...", "a..b", "-"])
def test_a_plain_path_is_returned_as_it_is(path):
    assert check_path(path) == path


def test_the_clocks_of_the_system_count_microseconds():
    clock = SystemClock()
    assert verifyObject(IClock, clock)
    assert verifyObject(IClock, ManualClock())
    assert abs(clock.wall() - time.time() * 1e6) < 60e6
    before = time.monotonic_ns() // 1000
    assert before <= clock.monotonic() <= time.monotonic_ns() // 1000


def test_of_many_files_in_memory_each_is_forced():
    filesystem = MemoryFilesystem()
    for number in range(3):
        write_fully(filesystem.open(str(number), create=True), 0, [b"abc"])
    filesystem.force_directory("")
    filesystem.force_files([filesystem.open(name) for name in "02"])
    disk = filesystem.crash_clone(0, 0.0)
    assert [disk.open(name).read(0, 9) for name in "012"] == [b"abc", b"", b"abc"]

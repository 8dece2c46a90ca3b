import gc
import os
import re
import struct
import subprocess
import sys

import pytest

from journal.buffers import POISON, LeakDetector, PooledAllocator, warn
from journal.constants import MIB
from journal.errors import MemoryExhausted


@pytest.fixture
def allocator():
    return PooledAllocator(64 * MIB)


@pytest.fixture(params=["of the arena", "of the cache"])
def buffer(request, allocator):
    if request.param == "of the cache":
        allocator.allocate(100).release()
    return allocator.allocate(100)


def test_a_second_release_is_refused_and_gives_nothing_back(allocator, buffer):
    buffer.release()
    with pytest.raises(RuntimeError, match="released twice"):
        buffer.release()
    with pytest.raises(RuntimeError, match="released twice"):
        buffer.release()
    one, other = allocator.allocate(100), allocator.allocate(100)
    one.view[:], other.view[:] = b"1" * 100, b"2" * 100
    assert bytes(one.view) == b"1" * 100


def test_a_released_buffer_cannot_be_used(buffer):
    buffer.release()
    with pytest.raises(ValueError, match="released"):
        buffer.view[0]
    with pytest.raises(ValueError, match="released"):
        buffer.view[:1]


def test_each_reference_is_given_back_once_and_the_memory_with_the_last(allocator, buffer):
    buffer.retain()
    buffer.retain()
    for _ in range(2):
        buffer.release()
        buffer.view[:] = b"x" * 100
    buffer.release()
    with pytest.raises(RuntimeError, match="released twice"):
        buffer.release()
    with pytest.raises(RuntimeError, match="retained that had been released"):
        buffer.retain()


def test_a_view_that_a_system_call_reads_is_not_released_under_it(allocator, buffer):
    reading = struct.iter_unpack("100s", buffer.view)  # holds the buffer, as a call on another thread does
    with pytest.raises(BufferError):
        buffer.release()
    buffer.view[:] = b"w" * 100
    assert next(reading) == (b"w" * 100,)
    del reading
    buffer.release()
    assert allocator.available() == allocator.budget


@pytest.mark.parametrize("size", [1, 100, 4096, 200_000, 17 * MIB])
def test_a_slice_that_outlives_its_buffer_reads_poison(size):
    allocator = PooledAllocator(64 * MIB, poison=True)
    for _ in range(2):
        buffer = allocator.allocate(size)
        buffer.view[:] = b"b" * size
        early, late = buffer.view[:5], buffer.view[-5:]
        buffer.release()
        assert set(bytes(early)) == set(bytes(late)) == {POISON}


def test_poison_stays_within_the_buffer():
    allocator = PooledAllocator(MIB, poison=True)
    held = [allocator.allocate(48) for _ in range(3)]
    for each in held:
        each.view[:] = b"k" * 48
    held[1].release()
    assert bytes(held[0].view) == bytes(held[2].view) == b"k" * 48


class TestLeaks:
    def lost(self, every=1, **allocator):
        reports = []
        return PooledAllocator(MIB, leaks=LeakDetector(every, reports.append), **allocator), reports

    def test_a_buffer_that_is_lost_is_reported_with_those_who_allocated_it(self):
        allocator, reports = self.lost()

        def careless():
            allocator.allocate(100)

        careless()
        [report] = reports
        assert "a buffer of 100 bytes was lost" in report
        assert re.search(
            rf"allocated at {__file__}:\d+ \(.*\.careless\), called from {__file__}:\d+ \(", report
        )
        assert "buffers/allocator.py" not in report
        assert allocator.lost == 1

    def test_a_released_buffer_is_not_reported(self):
        allocator, reports = self.lost()
        for _ in range(3):
            allocator.allocate(100).release()
        gc.collect()
        assert reports == []

    def test_one_of_so_many_is_watched_and_whoever_leaks_is_found_whoever_else_used_its_memory(self):
        allocator, reports = self.lost(every=8)
        for _ in range(3):
            allocator.allocate(512).release()

        def leaks():
            allocator.allocate(512)

        for _ in range(64):
            allocator.allocate(512).release()
            leaks()
        assert 4 <= len(reports) <= 16
        assert all("leaks)" in report for report in reports)

    def test_the_end_of_an_allocator_with_all_its_buffers_is_no_leak(self):
        allocator, reports = self.lost()

        class Holder:
            pass

        holder = Holder()
        holder.allocator, holder.buffers, holder.itself = allocator, [allocator.allocate(5)], holder
        del allocator, holder
        gc.collect()
        assert reports == []

    def test_errors_of_a_watched_buffer_name_the_place_too(self):
        allocator, _ = self.lost()
        buffer = allocator.allocate(100)
        buffer.release()
        with pytest.raises(
            RuntimeError, match=r"allocated at .*test_errors_of_a_watched_buffer_name_the_place_too"
        ):
            buffer.release()

    def test_a_leak_fails_a_test(self, recwarn):
        allocator = PooledAllocator(MIB, leaks=LeakDetector(1, warn))
        with pytest.warns(ResourceWarning, match="was lost, not released"):
            allocator.allocate(100)

    def test_a_leak_is_logged_as_an_error(self, caplog):
        allocator = PooledAllocator(MIB, leaks=LeakDetector(1))
        allocator.allocate(100)
        [record] = caplog.records
        assert record.levelname == "ERROR"
        assert "pool_bytes" in record.message

    def test_the_end_of_the_process_is_no_leak(self):
        program = (
            "from journal.buffers import *\n"
            "pool = PooledAllocator(1 << 20, leaks=LeakDetector(1))\nkept = pool.allocate(100)\n"
        )
        done = subprocess.run(
            [sys.executable, "-c", program], env=os.environ, capture_output=True, check=True
        )
        assert done.stderr == b""


def test_memory_is_exhausted_by_what_was_leaked_and_not_before():
    allocator = PooledAllocator(MIB, leaks=LeakDetector(1, list))
    for _ in range(16):
        allocator.allocate(64 * 1024)
    with pytest.raises(MemoryExhausted):
        allocator.allocate(64 * 1024)

"""Test the loop that writes and forces, in whichever build runs: jobs, what came of them, errors, the end."""

import errno
import os
import subprocess
import sys
import threading
import time

import pytest

from journal.vfs.force_calls import (
    BEGUN,
    DESCRIPTOR,
    END,
    ERROR,
    FORCED,
    FORCING,
    HEADER,
    POSITION,
    SIZE,
    STAGE,
    WRITING,
    WRITTEN,
)
from journal.vfs.forcing import serve

ROOM = 4096


class Loop:
    """A thread in the loop, and its area."""

    def __init__(self):
        self.area = bytearray(HEADER + ROOM)
        self.job = memoryview(self.area)[:HEADER].cast("q")
        self.asked, self.done = os.eventfd(0), os.eventfd(0)
        self.raised = None
        self.thread = threading.Thread(target=self._run, daemon=True)
        self.thread.start()

    def _run(self):
        try:
            serve(self.area, self.asked, self.done)
        except Exception as error:  # noqa: BLE001 - looked at by the tests
            self.raised = error

    def do(self, descriptor, position, data=b"", size=None):
        """Return error and stage of a job."""
        self.area[HEADER : HEADER + len(data)] = data
        self.job[DESCRIPTOR], self.job[POSITION] = descriptor, position
        self.job[SIZE] = len(data) if size is None else size
        os.eventfd_write(self.asked, 1)
        os.eventfd_read(self.done)
        return self.job[ERROR], self.job[STAGE]

    def end(self):
        self.job[DESCRIPTOR] = END
        os.eventfd_write(self.asked, 1)
        self.thread.join(10)
        os.close(self.asked)
        os.close(self.done)


@pytest.fixture
def loop():
    made = Loop()
    yield made
    if made.thread.is_alive():
        made.end()
    assert not made.thread.is_alive()


@pytest.fixture
def file(tmp_path):
    descriptor = os.open(tmp_path / "file", os.O_RDWR | os.O_CREAT)
    yield descriptor
    os.close(descriptor)


def test_each_job_is_written_where_it_says_and_its_times_are_of_the_monotonic_clock(loop, file):
    before = time.monotonic_ns()
    for number in range(20):
        assert loop.do(file, 100 * number, bytes([number]) * 100) == (0, FORCING)
        times = [loop.job[each] for each in (BEGUN, WRITTEN, FORCED)]
        in_order = [before, *times, time.monotonic_ns()]
        assert in_order == sorted(in_order)
        before = times[-1]
    assert os.pread(file, 3000, 0) == b"".join(bytes([number]) * 100 for number in range(20))


def test_a_job_without_bytes_only_forces(loop, file):
    assert loop.do(file, 0) == (0, FORCING)
    assert os.fstat(file).st_size == 0


def test_a_whole_area_is_written_and_not_a_byte_more(loop, file):
    assert loop.do(file, 7, b"x" * ROOM) == (0, FORCING)
    assert os.fstat(file).st_size == 7 + ROOM


@pytest.mark.parametrize("size", [ROOM + 1, -1, 1 << 40])
def test_bytes_outside_of_the_area_are_refused_and_nothing_is_written(loop, file, size):
    assert loop.do(file, 0, b"abc", size) == (errno.EINVAL, WRITING)
    assert os.fstat(file).st_size == 0
    assert loop.do(file, 0, b"abc") == (0, FORCING)


def test_errors_of_writing_are_told_and_the_loop_goes_on(loop, file, tmp_path):
    full = os.open("/dev/full", os.O_WRONLY)
    reading = os.open(tmp_path / "file", os.O_RDONLY)
    ends = os.pipe()
    try:
        assert loop.do(full, 0, b"abc") == (errno.ENOSPC, WRITING)
        assert loop.do(reading, 0, b"abc") == (errno.EBADF, WRITING)
        assert loop.do(ends[1], 0, b"abc") == (errno.ESPIPE, WRITING)
        assert loop.do(file, -5, b"abc") == (errno.EINVAL, WRITING)
        assert loop.do(file, 0, b"abc") == (0, FORCING)
    finally:
        for descriptor in (full, reading, *ends):
            os.close(descriptor)


def test_an_error_of_the_force_is_told_as_such(loop):
    ends = os.pipe()  # cannot be forced
    try:
        assert loop.do(ends[1], 0) == (errno.EINVAL, FORCING)
    finally:
        for descriptor in ends:
            os.close(descriptor)


SHORT = """
import os, resource, sys
from tests.vfs.test_forcing import Loop
file = os.open(sys.argv[1], os.O_RDWR | os.O_CREAT)
resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))
loop = Loop()
print(*loop.do(file, 900, b"x" * 300), os.fstat(file).st_size, *loop.do(file, 0, b"y" * 300))
loop.end()
"""


@pytest.mark.slow
def test_a_short_write_is_continued_until_there_is_an_error(tmp_path):
    """A file's largest size lets a write be short; the next one fails."""
    told = subprocess.run(
        [sys.executable, "-c", SHORT, tmp_path / "file"], check=True, capture_output=True, text=True
    )
    assert told.stdout.split() == [str(errno.EFBIG), str(WRITING), "1000", "0", str(FORCING)]


def test_it_ends_when_it_is_told_to(loop):
    loop.end()
    assert not loop.thread.is_alive()
    assert loop.raised is None


def test_an_eventfd_that_fails_ends_it_with_an_error():
    with pytest.raises(OSError, match=f"Errno {errno.EBADF}"):
        serve(bytearray(HEADER), 1 << 20, 1 << 20)


def test_an_area_without_room_for_the_numbers_is_refused():
    with pytest.raises((ValueError, TypeError)):
        serve(bytearray(HEADER - 1), 0, 0)


def test_an_area_that_is_in_use_cannot_be_resized(loop, file):
    loop.do(file, 0, b"abc")
    loop.job.release()
    with pytest.raises(BufferError):
        loop.area.extend(b"x")
    loop.job = memoryview(loop.area)[:HEADER].cast("q")

import contextlib
import gc
import mmap
import threading
from errno import ENOMEM
from pathlib import Path

import pytest
from zope.interface.verify import verifyObject

from journal.buffers import PooledAllocator
from journal.buffers.size_classes import CHUNK, PAGE
from journal.buffers.thread_cache import LARGEST_CACHED, LIMITS
from journal.constants import KIB, MIB
from journal.errors import MemoryExhausted
from journal.interfaces import IBuffer, IBufferAllocator


@pytest.fixture
def allocator():
    return PooledAllocator(64 * MIB)


def test_allocator_and_buffer_keep_their_contracts(allocator):
    assert verifyObject(IBufferAllocator, allocator)
    assert verifyObject(IBuffer, allocator.allocate(1))


@pytest.mark.parametrize("size", [0, 1, 511, 70_000, CHUNK, CHUNK + 1])
def test_a_view_is_writable_and_exactly_as_long_as_asked(allocator, size):
    for _ in range(2):  # of the arena, and of the cache
        buffer = allocator.allocate(size)
        buffer.view[:] = b"x" * size
        assert bytes(buffer.view) == b"x" * size
        buffer.release()


def test_a_size_below_zero_is_refused(allocator):
    allocator.allocate(16).release()
    with pytest.raises(ValueError, match="-1 bytes"):
        allocator.allocate(-1)


def test_pages_count_against_the_budget_and_come_back(allocator):
    buffers = [allocator.allocate(size) for size in (1, PAGE + 1, CHUNK + 1)]
    assert allocator.available() == 64 * MIB - PAGE - 2 * PAGE - CHUNK - PAGE
    for buffer in buffers:
        buffer.release()
    assert allocator.available() == 64 * MIB


def test_a_buffer_of_the_cache_is_the_one_released_last_and_needs_no_room():
    allocator = PooledAllocator(2 * PAGE)
    first, second = allocator.allocate(PAGE), allocator.allocate(PAGE)
    second.view[:3] = b"2nd"
    first.release()
    second.release()
    assert allocator.usage().used == 2 * PAGE
    assert bytes(allocator.allocate(PAGE - 5).view[:3]) == b"2nd"


def test_over_the_budget_nothing_is_taken():
    allocator = PooledAllocator(3 * PAGE)
    held = allocator.allocate(2 * PAGE)
    with pytest.raises(
        MemoryExhausted, match=r"16384 bytes of buffer .* 8192 of 24576 are free; nothing has changed"
    ):
        allocator.allocate(PAGE + 1)
    assert allocator.available() == PAGE
    held.release()


def test_what_caches_hold_is_given_back_before_anything_is_refused():
    allocator = PooledAllocator(16 * PAGE)
    for buffer in [allocator.allocate(PAGE) for _ in range(16)]:
        buffer.release()
    assert allocator.usage().used == 16 * PAGE
    large = allocator.allocate(16 * PAGE)
    large.release()
    for buffer in [allocator.allocate(PAGE) for _ in range(16)]:
        buffer.release()
    allocator.reserve(16 * PAGE)
    assert allocator.usage().used == 0


def test_a_cache_that_is_full_gives_to_the_arena(allocator):
    number = LIMITS.index(128)
    size = 4 * MIB // LIMITS[number]
    assert size == LARGEST_CACHED
    for buffer in [allocator.allocate(size) for _ in range(LIMITS[number] + 3)]:
        buffer.release()
    assert allocator.usage().used == LIMITS[number] * size


def test_reserved_bytes_share_the_budget():
    allocator = PooledAllocator(4 * PAGE)
    allocator.reserve(3 * PAGE + 1)
    with pytest.raises(MemoryExhausted):
        allocator.allocate(1)
    with pytest.raises(MemoryExhausted, match=r"8192 bytes of memory .* 8191 of 32768"):
        allocator.reserve(PAGE)
    allocator.unreserve(1)
    allocator.allocate(1)
    assert allocator.available() == 0


def test_more_than_was_reserved_cannot_be_given_back(allocator):
    allocator.reserve(5)
    with pytest.raises(RuntimeError, match="6 bytes are given back, 5 are reserved"):
        allocator.unreserve(6)


def test_kept_memory_makes_way_for_reservations_and_for_other_buffers():
    allocator = PooledAllocator(4 * MIB)
    for buffer in [allocator.allocate(MIB) for _ in range(4)]:
        buffer.release()
    assert allocator.kept == 4 * MIB
    allocator.reserve(MIB)
    assert allocator.kept <= 3 * MIB
    allocator.allocate(2 * MIB)
    assert allocator.kept <= MIB


def test_trimming_empties_a_cache_that_nobody_uses_and_gives_the_memory_back(allocator):
    for buffer in [allocator.allocate(16 * KIB) for _ in range(100)]:
        buffer.release()
    for buffer in [allocator.allocate(MIB) for _ in range(40)]:
        buffer.release()
    assert allocator.usage().used == 100 * 16 * KIB
    assert allocator.kept >= 40 * MIB
    for _ in range(3):
        allocator.trim()
    assert allocator.usage().used == 0
    assert allocator.kept <= 4 * MIB


def test_the_kernel_allows_65530_maps_and_small_buffers_need_none_of_their_own():
    def maps():
        return Path("/proc/self/maps").read_text().count("\n")

    allocator = PooledAllocator(64 * MIB)
    before = maps()
    held = [allocator.allocate(512) for _ in range(10_000)]
    assert maps() - before < 10
    assert allocator.usage().used == 10_000 // 16 * PAGE
    for buffer in held:
        buffer.release()


def test_a_map_that_the_system_refuses_is_back_pressure_and_not_a_crash(allocator, monkeypatch):
    def fails(*_, **__):
        raise OSError(ENOMEM, "Cannot allocate memory")

    with monkeypatch.context() as patched:
        patched.setattr(mmap, "mmap", fails)
        with pytest.raises(MemoryExhausted, match="the system gives no"):
            allocator.allocate(1)
    assert allocator.available() == allocator.budget
    allocator.allocate(1).release()


class TestThreads:
    def test_each_thread_has_a_cache_of_its_own(self, allocator):
        allocator.allocate(512).release()
        used = []

        def work():
            buffer = allocator.allocate(512)
            used.append(allocator.usage().fragmented)
            buffer.release()

        thread = threading.Thread(target=work)
        thread.start()
        thread.join()
        assert used == [PAGE - 2 * 512], "the second buffer is not the one of the first thread"

    def test_what_a_thread_releases_goes_to_its_own_cache(self, allocator):
        buffer = allocator.allocate(512)
        buffer.view[:2] = b"mm"
        seen = []

        def work():
            buffer.release()
            seen.append(bytes(allocator.allocate(512).view[:2]))

        thread = threading.Thread(target=work)
        thread.start()
        thread.join()
        assert seen == [b"mm"]

    def test_the_cache_of_a_thread_that_has_ended_is_given_back(self, allocator):
        thread = threading.Thread(target=lambda: allocator.allocate(512).release())
        thread.start()
        thread.join()
        assert allocator.usage().used == PAGE
        allocator.trim()
        assert allocator.usage().used == 0
        assert len(allocator.pool.all_caches) <= 1

    @pytest.mark.slow
    def test_threads_that_allocate_and_release_each_others_buffers_never_share_memory(self):
        allocator = PooledAllocator(4 * MIB)
        passed = [(allocator.allocate(1), b"") for _ in range(50)]  # append and pop of a list are atomic
        failures = []

        def work(mark):
            try:
                for turn in range(20_000):
                    allocate_one_and_release_another(mark, turn)
            except BaseException as error:  # noqa: BLE001  (of another thread: told by the assertion below)
                failures.append(error)

        def allocate_one_and_release_another(mark, turn):
            wanted = bytes([mark]) * (40, 512, 4096, 9000, 40_000)[(turn + mark) % 5]
            with contextlib.suppress(MemoryExhausted):
                buffer = allocator.allocate(len(wanted))
                buffer.view[:] = wanted
                passed.append((buffer, wanted))
            if len(passed) > 50:
                other, wanted = passed.pop(turn % 50)
                assert bytes(other.view[: len(wanted)]) == wanted
                other.release()
            if turn % 1000 == mark:
                allocator.trim()
                allocator.available()

        threads = [threading.Thread(target=work, args=(mark,)) for mark in range(1, 5)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert not failures
        for buffer, wanted in passed:
            assert bytes(buffer.view[: len(wanted)]) == wanted
            buffer.release()
        assert allocator.available() == allocator.budget


def test_a_chunk_that_was_given_back_lives_on_while_somebody_looks_at_it(allocator):
    buffer = allocator.allocate(CHUNK)
    buffer.view[:4] = b"late"
    late = buffer.view[:4]
    buffer.release()
    for _ in range(2):
        allocator.trim()
    assert allocator.usage().chunks == 0
    gc.collect()
    assert bytes(late) == b"late"


def test_a_cache_that_another_thread_empties_at_that_moment_is_no_failure(allocator):
    class Emptied(list):
        """Looks as if it held something, as it did a moment ago."""

        def __bool__(self):
            return True

    allocator.pool.caches.blocks = tuple(Emptied() for _ in allocator.pool.caches.blocks)
    buffer = allocator.allocate(100)
    buffer.view[:] = b"x" * 100
    buffer.release()
    assert bytes(buffer._block[0][:100]) == b"x" * 100

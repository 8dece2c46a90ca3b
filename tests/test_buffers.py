from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from zope.interface.verify import verifyObject

from journal.buffers.budget import LARGEST_POOLED, POISON, SMALLEST_CHUNK, BudgetAllocator, chunk_size
from journal.constants import KIB, MIB
from journal.errors import MemoryExhausted
from journal.interfaces import IBuffer, IBufferAllocator


def test_allocator_and_buffer_keep_their_contracts():
    allocator = BudgetAllocator(MIB)
    assert verifyObject(IBufferAllocator, allocator)
    assert verifyObject(IBuffer, allocator.allocate(1))


def test_chunks_double_from_4_kib_to_16_mib():
    assert [chunk_size(n) for n in (1, 4 * KIB, 4 * KIB + 1, 64 * KIB, 100_000, 16 * MIB)] == [
        4 * KIB,
        4 * KIB,
        8 * KIB,
        64 * KIB,
        128 * KIB,
        16 * MIB,
    ]


def test_a_request_over_the_largest_chunk_takes_whole_smallest_chunks():
    assert chunk_size(16 * MIB + 1) == 16 * MIB + SMALLEST_CHUNK


def test_a_view_is_writable_and_exactly_as_long_as_asked():
    buffer = BudgetAllocator(MIB).allocate(70_000)
    buffer.view[:] = b"x" * 70_000
    assert bytes(buffer.view) == b"x" * 70_000


def test_the_whole_chunk_counts_against_the_budget_and_comes_back():
    allocator = BudgetAllocator(MIB)
    buffer = allocator.allocate(1)
    assert allocator.available() == MIB - SMALLEST_CHUNK
    buffer.release()
    assert allocator.available() == MIB


def test_over_the_budget_nothing_is_taken():
    allocator = BudgetAllocator(6 * KIB)
    allocator.allocate(10)
    with pytest.raises(MemoryExhausted, match=r"4096 bytes.* 2048 of 6144 are free"):
        allocator.allocate(10)
    assert allocator.available() == 2 * KIB


def test_small_chunks_are_no_maps_of_which_the_kernel_allows_65530():
    def maps():
        return Path("/proc/self/maps").read_text().count("\n")

    allocator = BudgetAllocator(64 * MIB)
    before = maps()
    held = [allocator.allocate(1) for _ in range(10_000)]
    assert maps() - before < 100
    assert allocator.available() == 64 * MIB - 10_000 * SMALLEST_CHUNK
    for buffer in held:
        buffer.release()


def test_a_second_release_is_refused_and_counts_nothing():
    allocator = BudgetAllocator(MIB)
    allocator.allocate(1)
    buffer = allocator.allocate(1)
    buffer.release()
    with pytest.raises(RuntimeError, match="released twice"):
        buffer.release()
    assert allocator.available() == MIB - SMALLEST_CHUNK


def test_a_released_buffer_cannot_be_used():
    buffer = BudgetAllocator(MIB).allocate(100)
    buffer.release()
    with pytest.raises(ValueError, match="released"):
        buffer.view[0]


def test_a_slice_that_outlives_its_buffer_reads_poison():
    buffer = BudgetAllocator(MIB, poison=True).allocate(200_000)
    buffer.view[:5] = b"bytes"
    early, late = buffer.view[:5], buffer.view[-5:]
    buffer.release()
    assert bytes(early) == bytes(late) == bytes([POISON] * 5)


def test_a_freed_chunk_is_used_again():
    allocator = BudgetAllocator(MIB)
    buffer = allocator.allocate(10)
    buffer.view[:3] = b"old"
    buffer.release()
    assert bytes(allocator.allocate(5).view[:3]) == b"old"


def test_reserved_bytes_share_the_budget():
    allocator = BudgetAllocator(MIB)
    allocator.reserve(MIB - SMALLEST_CHUNK + 1)
    with pytest.raises(MemoryExhausted):
        allocator.allocate(1)
    with pytest.raises(MemoryExhausted):
        allocator.reserve(SMALLEST_CHUNK)
    allocator.unreserve(1)
    allocator.allocate(1)
    assert allocator.available() == 0


def test_more_than_was_reserved_cannot_be_given_back():
    allocator = BudgetAllocator(MIB)
    allocator.reserve(5)
    with pytest.raises(RuntimeError, match="6 bytes are given back, 5 are reserved"):
        allocator.unreserve(6)


def test_kept_chunks_give_way_to_reservations_and_to_larger_chunks():
    allocator = BudgetAllocator(MIB)
    for buffer in [allocator.allocate(256 * KIB) for _ in range(4)]:
        buffer.release()
    assert allocator.kept == MIB
    allocator.reserve(300 * KIB)
    assert allocator.kept == 512 * KIB
    allocator.allocate(512 * KIB)
    assert allocator.kept == 0


def test_a_chunk_over_the_largest_is_not_kept():
    allocator = BudgetAllocator(64 * MIB)
    allocator.allocate(LARGEST_POOLED + 1).release()
    assert allocator.kept == 0


@given(st.lists(st.tuples(st.sampled_from("arRu"), st.integers(1, 300_000)), max_size=60))
def test_what_is_mapped_and_reserved_never_exceeds_the_budget(steps):
    budget = MIB
    allocator = BudgetAllocator(budget)
    held, reserved = [], []
    for step, size in steps:
        try:
            if step == "a":
                held.append((allocator.allocate(size), chunk_size(size)))
            elif step == "R":
                allocator.reserve(size)
                reserved.append(size)
        except MemoryExhausted:
            assert allocator.available() < (chunk_size(size) if step == "a" else size)
        if step == "r" and held:
            held.pop(size % len(held))[0].release()
        if step == "u" and reserved:
            allocator.unreserve(reserved.pop())
        used = sum(size for _, size in held) + sum(reserved)
        assert allocator.available() == budget - used
        assert used + allocator.kept <= budget

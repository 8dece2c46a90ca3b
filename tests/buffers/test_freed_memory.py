"""Test that memory freed by bytes objects returns to the system before the pool takes as much, or after a while."""

import multiprocessing
from concurrent.futures import ProcessPoolExecutor

import pytest

from benchmarks.buffers.churn import resident
from journal.buffers import PooledAllocator
from journal.constants import KIB, MIB
from journal.vfs.c_library import KEPT, keep_freed_memory

HELD = 96 * MIB
EACH = 20 * KIB


def held_and_freed(pool):
    """Bytes that are reserved and given up again; small ones in between stay, so that the heap cannot shrink."""
    held, pins = [], []
    for _ in range(HELD // EACH):
        pool.reserve(EACH)
        held.append(bytes(EACH))
        pins.append([bytes(200) for _ in range(3)])
    del held
    for _ in pins:
        pool.unreserve(EACH)
    return pins


def after_pool_has_grown(size):
    keep_freed_memory()
    pool = PooledAllocator(128 * MIB)
    before = resident()
    pins = held_and_freed(pool)
    buffers = [pool.allocate(size) for _ in range(HELD // size)]
    for buffer in buffers:
        buffer.view[:: 4 * KIB] = bytes(size // (4 * KIB))  # a byte of each of its pages
    return resident() - before, len(pins)


def after_trim():
    keep_freed_memory()
    pool = PooledAllocator(128 * MIB)
    before = resident()
    pins = held_and_freed(pool)
    freed = resident() - before
    pool.trim()
    return freed, resident() - before, len(pins)


@pytest.fixture
def run():
    """Call a function in a process of its own, whose memory nobody else uses."""
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as process:
        yield lambda function, *given: process.submit(function, *given).result(60)


@pytest.mark.slow
@pytest.mark.sampled
@pytest.mark.parametrize("size", [MIB, 24 * MIB], ids=["chunks", "huge"])
def test_pool_and_what_was_freed_are_not_both_resident(run, size):
    grown, _ = run(after_pool_has_grown, size)
    assert HELD / MIB <= grown < (HELD + KEPT) / MIB + 8


@pytest.mark.slow
def test_a_trim_gives_back_what_was_freed_although_something_lies_above_it(run):
    freed, trimmed, _ = run(after_trim)
    assert freed > 0.9 * HELD / MIB, "else the C library has given it back by itself, and this shows nothing"
    assert trimmed < KEPT / MIB + 8


def test_little_that_was_freed_is_left_for_reuse(monkeypatch):
    calls = []
    monkeypatch.setattr("journal.buffers.arena.give_back_freed_memory", lambda: calls.append(1))
    pool = PooledAllocator(128 * MIB)
    for size in (10 * MIB, 5 * MIB):
        pool.reserve(size)
        pool.unreserve(size)
    pool.trim()
    assert not calls
    pool.reserve(MIB)
    pool.unreserve(MIB)
    pool.trim()
    pool.trim()
    assert calls == [1]

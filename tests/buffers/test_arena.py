import mmap
from errno import ENOMEM

import pytest

from journal.buffers import Buffer
from journal.buffers.arena import RESERVE, Arena, extent
from journal.buffers.size_classes import CHUNK, PAGE, SIZES, class_of, rounded
from journal.constants import KIB, MIB
from journal.errors import MemoryExhausted


@pytest.fixture
def arena():
    return Arena(64 * MIB)


def taken(arena, size):
    return arena.take(size, Buffer)


def place(block):
    return block[1], block[1] + SIZES[block[2]]


def test_parts_of_a_page_come_from_one_page_until_it_is_full(arena):
    blocks = [taken(arena, 100) for _ in range(PAGE // 112)]
    assert arena.used == PAGE
    assert [place(block) for block in blocks] == [(n * 112, n * 112 + 112) for n in range(len(blocks))]
    assert taken(arena, 100)[1] == PAGE
    assert arena.used == 2 * PAGE


def test_classes_do_not_share_pages(arena):
    starts = {taken(arena, size)[1] // PAGE for size in (16, 32, 512, 4 * KIB)}
    assert len(starts) == 4
    assert arena.used == 4 * PAGE


def test_a_page_goes_back_when_its_last_part_does(arena):
    blocks = [taken(arena, 512) for _ in range(17)]
    for block in blocks[:15]:
        arena.give(block)
    assert arena.used == 2 * PAGE
    arena.give(blocks[15])
    assert arena.used == PAGE
    arena.give(blocks[16])
    assert (arena.used, arena.available) == (0, arena.budget)


def test_a_part_that_is_free_again_is_given_out_before_another_page(arena):
    blocks = [taken(arena, 4 * KIB) for _ in range(4)]
    arena.give(blocks[1])
    assert place(taken(arena, 4 * KIB)) == place(blocks[1])
    assert arena.used == 2 * PAGE


def test_runs_are_whole_powers_of_two_of_pages(arena):
    block = taken(arena, 3 * PAGE)
    assert len(extent(block)) == 4 * PAGE == arena.used
    assert len(extent(taken(arena, CHUNK))) == CHUNK
    assert arena.usage().chunks == 2


def test_what_is_huge_has_a_map_of_its_own_is_counted_and_not_kept(arena):
    block = taken(arena, CHUNK + 1)
    assert len(extent(block)) == rounded(CHUNK + 1) == arena.used
    assert (arena.usage().chunks, arena.kept) == (0, 0)
    arena.give(block)
    assert (arena.available, arena.kept) == (arena.budget, 0)


@pytest.mark.parametrize("size", [1, 4 * KIB, PAGE, MIB, CHUNK + 1])
def test_without_room_in_the_budget_nothing_is_given_out(size):
    arena = Arena(rounded(CHUNK + 1))
    arena.reserved = arena.budget - max(PAGE, rounded(size)) + 1
    assert taken(arena, size) is None
    assert arena.used == 0
    arena.reserved -= 1
    assert taken(arena, size) is not None


def test_a_part_of_a_page_that_is_in_use_needs_no_room():
    arena = Arena(PAGE)
    assert [taken(arena, 4 * KIB) is None for _ in range(3)] == [False, False, True]


def test_a_pool_that_is_smaller_than_a_chunk_maps_as_much_as_it_may_use():
    arena = Arena(3 * MIB)
    assert len(taken(arena, 1)[0]) == 4 * MIB
    arena = Arena(1 << 30)
    assert len(taken(arena, 1)[0]) == CHUNK


def test_what_is_kept_makes_way_for_what_is_used_and_reserved():
    arena = Arena(4 * MIB)
    for block in [taken(arena, MIB) for _ in range(4)]:
        arena.give(block)
    assert arena.kept == 4 * MIB
    arena.reserved += MIB
    arena.make_way()
    assert arena.kept <= 3 * MIB
    taken(arena, CHUNK // 8)
    assert arena.used + arena.kept + arena.reserved <= arena.budget


def test_memory_that_was_needed_since_the_last_trim_is_kept(arena):
    def churn():
        for block in [taken(arena, MIB) for _ in range(40)]:
            arena.give(block)

    churn()
    for _ in range(3):
        arena.trim()
        assert arena.kept == 40 * MIB
        churn()
    arena.trim()
    arena.trim()
    assert arena.kept <= RESERVE
    assert arena.usage().chunks <= 1


def test_a_trim_leaves_what_is_in_use_as_it_is(arena):
    held = taken(arena, 100)
    extent(held)[:] = b"h" * 112
    for block in [taken(arena, MIB) for _ in range(20)]:
        arena.give(block)
    arena.trim()
    arena.trim()
    assert arena.usage().chunks == 1
    assert arena.kept <= RESERVE
    assert bytes(extent(held)) == b"h" * 112


def test_fragmented_are_the_free_parts_of_pages_in_use(arena):
    taken(arena, 512)
    taken(arena, 500)
    assert class_of(500) == class_of(512)
    assert arena.usage().fragmented == PAGE - 1024
    taken(arena, PAGE)
    assert arena.usage().fragmented == PAGE - 1024


@pytest.mark.parametrize("size", [100, 1 * MIB, CHUNK + 1])
def test_a_system_without_memory_refuses_like_an_exhausted_budget(arena, size, monkeypatch):
    block = taken(arena, CHUNK)
    before = arena.usage()

    def fails(*_, **__):
        raise OSError(ENOMEM, "Cannot allocate memory")

    with monkeypatch.context() as patched:
        patched.setattr(mmap, "mmap", fails)
        with pytest.raises(
            MemoryExhausted, match=r"the system gives no \d+ bytes .*Cannot allocate memory.* pool_bytes"
        ):
            taken(arena, size)
    assert arena.usage() == before
    assert taken(arena, size) is not None
    arena.give(block)


def test_what_is_kept_makes_way_for_a_run_that_it_cannot_be_used_for():
    arena = Arena(4 * MIB)
    first, _ = taken(arena, MIB), taken(arena, MIB)
    arena.give(first)
    arena.reserved += MIB
    assert taken(arena, 2 * MIB) is not None
    assert arena.used + arena.kept + arena.reserved <= arena.budget


def test_what_is_kept_makes_way_for_what_is_huge(arena):
    for block in [taken(arena, MIB) for _ in range(40)]:
        arena.give(block)
    assert taken(arena, 40 * MIB) is not None
    assert arena.used + arena.kept <= arena.budget


def test_a_reserve_stays_however_often_it_is_trimmed(arena):
    arena.give(taken(arena, RESERVE))
    for _ in range(3):
        arena.trim()
    assert arena.kept == RESERVE

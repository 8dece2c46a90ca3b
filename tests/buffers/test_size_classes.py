from journal.buffers.size_classes import (
    CHUNK,
    DEEPEST,
    FIRST_RUN,
    LARGEST_TABLED,
    NUMBERS,
    PAGE,
    PAGES,
    SIZES,
    class_of,
    depth_of,
    rounded,
)  # fmt: skip
from journal.constants import KIB, MIB


def test_a_chunk_is_16_mib_of_2048_pages_of_8_kib():
    assert (CHUNK, PAGES, PAGE, PAGES >> DEEPEST) == (16 * MIB, 2048, 8 * KIB, 1)


def test_tiny_classes_are_16_bytes_apart_small_ones_and_runs_double():
    assert SIZES[:31] == tuple(range(16, 512, 16))
    assert SIZES[31:FIRST_RUN] == (512, 1 * KIB, 2 * KIB, 4 * KIB)
    assert SIZES[FIRST_RUN:] == tuple(8 * KIB << power for power in range(12))


def test_the_class_of_a_size_is_the_smallest_that_holds_it():
    for size in (*range(LARGEST_TABLED + 1), *(s + d for s in SIZES for d in (-1, 0, 1) if s + d <= CHUNK)):
        number = class_of(size)
        assert SIZES[number] >= size
        assert not number or SIZES[number - 1] < size
        assert size > LARGEST_TABLED or NUMBERS[size] == number
        assert rounded(size) == SIZES[number]


def test_what_is_larger_than_a_chunk_is_rounded_to_pages():
    assert rounded(CHUNK + 1) == CHUNK + PAGE


def test_the_depth_of_a_class_is_where_its_runs_are_in_the_tree():
    assert depth_of(class_of(1)) == depth_of(class_of(PAGE)) == DEEPEST
    assert depth_of(class_of(PAGE + 1)) == DEEPEST - 1
    assert depth_of(class_of(CHUNK)) == 0

from threading import current_thread

import pytest

from journal.buffers.arena import HUGE
from journal.buffers.size_classes import SIZES, class_of
from journal.buffers.thread_cache import LARGEST_CACHED, LIMITS, ThreadCache
from journal.constants import KIB, MIB


@pytest.fixture
def cache():
    return ThreadCache(current_thread())


def blocks(count, number=0):
    return [(memoryview(b""), start, number, None) for start in range(count)]


def test_what_a_thread_keeps_from_the_others_is_bounded():
    assert sum(limit * size for limit, size in zip(LIMITS, SIZES, strict=False)) < 96 * MIB
    assert [LIMITS[class_of(size)] for size in (16, 512, 32 * KIB, 32 * KIB + 1)] == [8192, 8192, 128, 0]
    assert LIMITS[HUGE] == 0
    assert class_of(LARGEST_CACHED + 1) > class_of(LARGEST_CACHED)


def test_draining_takes_everything(cache):
    one, other = blocks(3), blocks(2, 5)
    cache.blocks[0].extend(one)
    cache.blocks[5].extend(other)
    assert sorted(cache.drain()) == sorted(one + other)
    assert cache.drain() == []


def test_what_was_there_at_the_last_trim_and_is_still_there_goes(cache):
    stack = cache.blocks[0]
    first, second, third, fourth = blocks(4)
    stack.extend((first, second, third))
    assert cache.trim() == []
    assert stack.pop() is third
    stack.append(fourth)
    assert cache.trim() == [first, second]
    assert stack == [fourth]
    assert cache.trim() == [fourth]
    assert not stack


def test_what_came_back_to_another_place_stays(cache):
    stack = cache.blocks[0]
    first, second = blocks(2)
    stack.extend((first, second))
    cache.trim()
    stack.clear()
    stack.extend((second, first))
    assert cache.trim() == []

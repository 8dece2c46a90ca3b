from collections import deque
from itertools import count

import pytest

from journal.buffers import POISON, PooledAllocator
from journal.constants import KIB, MIB
from journal.errors import InvalidFrame, MemoryExhausted
from journal.formats.frame import decode_run, encode, encode_inner, encode_wrapper, walk, walk_begun
from journal.formats.index import LONG_APPEND
from journal.log.tail import Tail


def frame(size=100):
    return encode(b"v" * (size - 44), 1)


def wrapper(count):
    return encode_wrapper(b"".join(encode_inner(n, b"%d" % n, 1) for n in range(count)), count, 1)


@pytest.fixture
def allocator():
    return PooledAllocator(8 * MIB, poison=True)


@pytest.fixture
def tail(allocator):
    return Tail(allocator, base_offset=10, last_time=3)


def offsets(data):
    return [offset for _, _, offset, _ in walk(data)]


def test_appended_frames_are_stamped_in_the_returned_view(tail):
    assert offsets(tail.append(frame(), 1, 5)) == [10]
    assert offsets(tail.append(frame() + frame(), 2, 6)) == [11, 12]
    assert offsets(tail.append(wrapper(7), 7, 6)) == [13]
    assert (tail.end_offset, tail.last_time, tail.oldest_time) == (20, 6, 5)


def test_a_long_append_is_stamped_with_the_same_time_in_all_its_frames(tail):
    run = frame() * (LONG_APPEND // 100 + 20) + wrapper(7)
    found = decode_run(tail.append(run, LONG_APPEND // 100 + 27, 5, wall_offset=1000))
    assert [message.offset for message in found] == list(range(10, tail.end_offset))
    assert {message.appended for message in found} == {1005}


def test_the_source_is_not_touched(tail):
    source = frame()
    tail.append(memoryview(source), 1, 5)
    assert source == frame()


def test_a_count_that_the_frames_do_not_have_changes_nothing(tail):
    with pytest.raises(InvalidFrame, match="does not hold 3 messages"):
        tail.append(frame() + frame(), 3, 5)
    assert (tail.end_offset, tail.end_position, len(tail), tail.last_time) == (10, 0, 0, 3)
    assert offsets(tail.append(frame(), 1, 5)) == [10]
    assert offsets(tail.read(10, 11, KIB).data) == [10]


def test_places_in_long_appends_are_noted_until_these_are_dropped(tail):
    tail.append(frame(), 1, 5)
    with pytest.raises(InvalidFrame):
        tail.append(frame() * 500, 499, 5)
    assert tail.inside == {}
    tail.append(frame() * 500, 500, 5)
    tail.append(frame() * 100, 100, 5)
    tail.append(frame(60 * KIB) + frame(), 2, 5)
    last = [(612, 10_100 + 50_000 + 60 * KIB)]
    assert tail.inside == {100: [(175, 16_500), (339, 32_900), (503, 49_300)], 60_100: last}
    tail.drop(2)
    assert tail.inside == {60_100: last}
    tail.drop(2)
    assert tail.inside == {}


def test_without_memory_nothing_changes():
    tail = Tail(PooledAllocator(64 * KIB))
    tail.append(frame(60 * KIB), 1, 5)
    with pytest.raises(MemoryExhausted):
        tail.append(frame(60 * KIB), 1, 6)
    assert (tail.end_offset, len(tail), tail.last_time) == (1, 1, 5)
    assert offsets(tail.append(frame(), 1, 7)) == [1]


@pytest.mark.slow
def test_the_last_of_the_memory_is_taken_in_few_parts_and_all_of_it():
    """A chunk as large as all that waits no longer fits then: chunks of one append each were 60,000 for 8 MiB."""
    allocator = PooledAllocator(8 * MIB)
    tail = Tail(allocator)
    with pytest.raises(MemoryExhausted):
        deque((tail.append(frame(128), 1, 5) for _ in count()), maxlen=0)
    assert tail.end_position > 8 * MIB - 16 * KIB
    assert len(tail._chunks) < 60
    assert allocator.available() == 0
    assert offsets(tail.read(tail.end_offset - 2, tail.end_offset, KIB).data) == [
        tail.end_offset - 2,
        tail.end_offset - 1,
    ]


def test_one_tail_leaves_others_most_of_what_is_left():
    allocator = PooledAllocator(7 * MIB)
    tail = Tail(allocator)
    tail.append(frame(4 * MIB), 1, 5)
    assert allocator.available() == 3 * MIB
    tail.append(frame(128), 1, 5)
    assert allocator.available() == 2 * MIB


def test_chunks_grow_with_what_is_waiting(tail, allocator):
    sizes = []
    while tail.end_position < 700 * KIB:
        tail.append(frame(128), 1, 5)
        if len(tail._chunks) > len(sizes):
            sizes.append(len(tail._chunks[-1].buffer.view))
    assert sizes == [512, 4 * KIB, *(8 * KIB << power for power in range(7))]


def test_the_first_chunk_is_as_large_as_what_was_there_before(tail):
    def first_chunk(messages):
        for _ in range(messages):
            tail.append(frame(128), 1, 5)
        size = len(tail._chunks[0].buffer.view)
        tail.drop(len(tail))
        return size

    assert [first_chunk(count) for count in (10, 10, 1, 1, 10_000, 1, 1)] == [
        512, 2 * KIB, 2 * KIB, 512, 512, 64 * KIB, 512,
    ]  # fmt: skip


@pytest.mark.slow
def test_ten_thousand_partitions_with_a_message_each_take_5_mib():
    allocator = PooledAllocator(8 * MIB)
    tails = [Tail(allocator) for _ in range(10_000)]
    for tail in tails:
        tail.append(frame(136), 1, 5)
    assert allocator.usage().used < 5 * MIB


def test_a_smaller_chunk_does_when_a_large_one_is_over_the_budget():
    allocator = PooledAllocator(24 * KIB)
    tail = Tail(allocator)
    for _ in range(5 * 4):
        tail.append(frame(KIB), 1, 5)
    assert [len(chunk.buffer.view) for chunk in tail._chunks] == [KIB, 4 * KIB, 8 * KIB, *[KIB] * 7]


def test_frames_larger_than_a_chunk_get_one_of_their_size(tail):
    assert offsets(tail.append(frame(MIB), 1, 5)) == [10]
    assert tail.read(10, 11, 1).data[44:48] == b"vvvv"


def test_reads_give_whole_frames_up_to_the_limit(tail):
    for _ in range(5):
        tail.append(frame(), 1, 5)
    tail.append(frame() * 5, 5, 5)
    assert offsets(tail.read(10, 20, 10_000).data) == list(range(10, 20))
    assert offsets(tail.read(10, 13, 10_000).data) == [10, 11, 12]
    assert offsets(tail.read(12, 20, 299).data) == [12, 13]
    assert offsets(tail.read(12, 20, 1).data) == [12]
    assert offsets(tail.read(17, 20, 10_000).data) == [17, 18, 19]
    assert offsets(tail.read(16, 20, 299).data) == [16, 17]
    assert offsets(tail.read(19, 20, 1).data) == [19]
    assert tail.read(20, 20, 10_000).data == b""


def test_an_append_is_seen_wholly_or_not_at_all(tail):
    tail.append(frame() * 5, 5, 5)
    assert tail.read(10, 14, 10_000).data == b""


def test_messages_of_a_long_append_are_found_one_by_one_where_the_last_read_ended(tail, monkeypatch):
    walked = 0

    def counted(view, position):
        nonlocal walked
        for each in walk_begun(view, position):
            walked += 1
            yield each

    monkeypatch.setattr("journal.log.tail.walk_begun", counted)
    tail.append(frame() * 1000, 1000, 5)
    tail.append(frame() * 1000, 1000, 5)
    for offset in range(10, 2010):
        assert offsets(tail.read(offset, 2010, 1).data) == [offset]
    assert walked < 10_000
    for offset in (2009, 10, 1009, 1010, 1500, 11):
        assert offsets(tail.read(offset, 2010, 150).data) == [offset]
    tail.drop(1)
    assert offsets(tail.read(1500, 2010, 1).data) == [1500]


def test_a_wrapper_is_given_whole_for_any_offset_inside(tail):
    tail.append(frame(), 1, 5)
    tail.append(wrapper(5), 5, 5)
    tail.append(frame(), 1, 5)
    assert offsets(tail.read(13, 17, 1).data) == [11]
    assert [m.offset for m in decode_run(tail.read(13, 17, 10_000).data, 13)] == [13, 14, 15, 16]


def test_reads_go_across_chunks(tail):
    for _ in range(500):
        tail.append(frame(KIB), 1, 5)
    assert offsets(tail.read(10, 510, MIB).data) == list(range(10, 510))
    assert offsets(tail.read(70, 510, 9 * KIB).data) == list(range(70, 79))


def test_dropping_everything_gives_all_memory_back(tail, allocator):
    for _ in range(500):
        tail.append(frame(KIB), 1, 5)
    tail.drop(len(tail))
    assert allocator.available() == allocator.budget
    assert (tail.base_offset, tail.base_position, tail.oldest_time) == (510, 500 * KIB, None)
    assert offsets(tail.append(frame(), 1, 6)) == [510]


def test_dropping_a_part_releases_only_chunks_that_hold_nothing_else(tail, allocator):
    views = [tail.append(frame(KIB), 1, number) for number in range(100)]
    sizes = [len(chunk.buffer.view) // KIB for chunk in tail._chunks]
    assert sizes == [1, 4, 8, 16, 32, 64]
    tail.drop(60)
    assert allocator.available() == allocator.budget - 96 * KIB
    tail.drop(1)
    assert allocator.available() == allocator.budget - 64 * KIB
    assert bytes(views[60][:4]) == bytes([POISON] * 4)
    assert offsets(views[61]) == [71]
    assert offsets(tail.read(74, 110, MIB).data) == list(range(74, 110))
    assert tail.oldest_time == 61


def test_dropping_nothing_does_nothing(tail):
    tail.append(frame(), 1, 5)
    tail.drop(0)
    assert (tail.base_offset, len(tail)) == (10, 1)


def test_the_first_offset_of_a_time_is_exact(tail):
    for time in (5, 5, 7, 9):
        tail.append(frame() * 2, 2, time)
    found = [tail.offset_for_time(time) for time in (0, 5, 6, 7, 8, 9, 10)]
    assert found == [10, 10, 14, 14, 16, 16, 18]


def test_reading_up_to_an_offset_gives_whole_appends_below_it_or_one_frame(tail):
    for number in (2, 3, 1):
        tail.append(frame() * number, number, 5)
    assert tail.read(10, 16, MIB, until=15) == (tail.read(10, 16, MIB).data[: 5 * 100], 15)
    assert tail.read(10, 16, MIB, until=14).end == 12
    assert [each.offset for each in decode_run(tail.read(12, 16, MIB, until=13).data)] == [12]
    assert tail.read(12, 16, MIB, until=13).end == 13
    assert tail.read(16, 16, MIB) == (b"", 16)

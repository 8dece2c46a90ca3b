"""Test tails that have the bytes of large messages in common.

Seen to fail: with the reference of who lends kept, with what is lent counted as memory of the tail's own or counted for
ever, with a reference to the lender's bytes or to the tail's own missing, and with the lender's stamps.
"""

import pytest

from journal.buffers import PooledAllocator
from journal.constants import KIB, MESSAGE_WEIGHT, MIB
from journal.errors import InvalidFrame, MemoryExhausted
from journal.formats.frame import HEADER_BYTES, decode_run, encode, walk
from journal.log.shared_run import SharedRun
from journal.log.tail import LARGEST_FIRST, SMALLEST_CHUNK, Tail
from journal.records.copies import SHARED_BYTES, further_bytes, weight_of_runs
from journal.records.record import Run

TAILS = 50


def run_of(*sizes):
    return b"".join(encode(b"%d" % size * (size // len(b"%d" % size)), 1) for size in sizes)


def into(tails, frames, count, time=5):
    shared = SharedRun.of(frames, count, len(tails))
    assert shared is not None
    try:
        for tail in tails:
            tail.append_shared(shared, count, time)
    finally:
        shared.release()


def values(tail, max_bytes=MIB):
    offset, found = tail.base_offset, []
    while offset < tail.end_offset:
        frames = tail.read(offset, tail.end_offset, max_bytes)
        found += decode_run(frames.data, offset)
        offset = frames.end
    assert [each.offset for each in found] == list(range(tail.base_offset, tail.end_offset))
    return [each.value for each in found]


def tails_of(allocator, count=TAILS):
    """Tails that begin at different offsets, because a header that is another's would show then."""
    return [Tail(allocator, base_offset=10 * number) for number in range(count)]


def test_messages_are_in_memory_once_for_all_tails():
    allocator = PooledAllocator(64 * MIB, poison=True)
    tails = tails_of(allocator)
    for _ in range(20):
        into(tails, run_of(60 * KIB), 1)
    assert [len(set(values(tail))) for tail in tails] == [1] * TAILS
    own = 20 * HEADER_BYTES
    assert allocator.usage().used <= 2 * 20 * 64 * KIB + TAILS * 2 * max(own, SMALLEST_CHUNK) + MIB
    for tail in tails:
        tail.drop(len(tail))
    assert allocator.usage().used <= 2 * MIB, "the rest is in caches"


@pytest.mark.parametrize("order", [1, -1], ids=["who lends first", "who lends last"])
def test_bytes_stay_until_the_last_tail_has_dropped_them(order):
    allocator = PooledAllocator(8 * MIB, poison=True)
    tails = tails_of(allocator, 3)
    into(tails, run_of(100 * KIB, 5 * KIB), 2)
    expected = values(tails[0])
    for tail in tails[::order]:
        assert values(tail) == values(tail, 1) == expected
        tail.drop(1)
        assert len(tail) == 0
    used = allocator.usage().used
    into(tails, run_of(100 * KIB, 5 * KIB), 2)
    assert {len(values(tail)) for tail in tails} == {2}
    for tail in tails:
        tail.drop(1)
    assert allocator.usage().used == used


def test_a_tail_that_only_borrows_takes_as_much_as_the_headers_need():
    allocator = PooledAllocator(16 * MIB)
    lender, tail = tails_of(allocator, 2)
    for _ in range(30):
        into([lender, tail], run_of(200 * KIB), 1)
    own = {id(chunk.buffer): len(chunk.buffer.view) for chunk in tail._chunks if not chunk.borrowed}
    assert sum(own.values()) == SMALLEST_CHUNK + 4 * KIB
    tail.append(run_of(10), 1, 5)
    tail.drop(len(tail))
    assert tail._first <= 2 * KIB < LARGEST_FIRST
    for _ in range(30):
        into([lender, tail], run_of(200 * KIB), 1)
        tail.append(run_of(10), 1, 5)
    assert len(values(tail)) == 60


def test_what_is_copied_is_between_what_is_shared():
    allocator = PooledAllocator(8 * MIB, poison=True)
    lender, tail = tails_of(allocator, 2)
    expected = []
    for number in range(40):
        tail.append(run_of(number + 1) * 3, 3, 5)
        expected += [b"%d" % (number + 1) * ((number + 1) // len(b"%d" % (number + 1)))] * 3
        into([lender, tail], run_of(5000 + number, 9000), 2)
        expected += [each.value for each in decode_run(run_of(5000 + number, 9000))]
    assert values(tail) == values(tail, 1) == values(tail, 6000) == expected
    for offset in range(tail.base_offset, tail.end_offset):
        frames = tail.read(offset, tail.end_offset, 1).data
        assert [found for _, _, found, _ in walk(frames)] == [offset]


def test_without_memory_for_a_header_nothing_changes():
    allocator = PooledAllocator(64 * KIB)
    lender, tail = tails_of(allocator, 2)
    shared = SharedRun.of(run_of(60 * KIB), 1, 2)
    lender.append_shared(shared, 1, 5)
    with pytest.raises(MemoryExhausted):
        tail.append_shared(shared, 1, 5)
    assert (tail.end_offset, tail.end_position, len(tail), len(tail._chunks)) == (10, 0, 0, 0)
    shared.release()
    assert len(values(lender)) == 1
    lender.drop(1)
    into([tail, lender], run_of(10 * KIB), 1)
    assert values(tail) == values(lender)


def test_a_borrower_does_not_keep_a_chunk_that_is_much_larger():
    """Of eight chunks of 16 MiB each one had a message of 5 KB, which an idle queue kept for hours."""
    allocator = PooledAllocator(256 * MIB)
    lender, *borrowers = tails_of(allocator, 9)
    filling = run_of(1000) * 1000
    lender.append(filling, 1000, 5)
    for each in borrowers:
        into([lender, each], run_of(5000), 1)
        for _ in range(2 + lender._room // len(filling)):
            lender.append(filling, 1000, 5)
    last = values(lender)[-1]
    lender.drop(len(lender))
    assert [len(values(each)) for each in borrowers] == [1] * 8
    assert allocator.usage().used < MIB
    assert len(last) == 1000


def test_without_memory_for_a_buffer_of_its_own_it_is_lent_from_the_chunk():
    allocator = PooledAllocator(MIB)
    taken = [allocator.allocate(256 * KIB) for _ in range(3)]
    lender, borrower = tails_of(allocator, 2)
    lender.add_room(allocator.allocate(128 * KIB))
    borrower.add_room(allocator.allocate(64 * KIB))
    taken.append(allocator.allocate(64 * KIB))
    assert allocator.available() == 0
    into([lender, borrower], run_of(20 * KIB), 1)
    assert values(lender) == values(borrower)
    assert allocator.available() == 0


def test_a_run_with_another_number_of_frames_changes_nothing():
    lender, borrower = tails_of(PooledAllocator(MIB), 2)
    shared = SharedRun.of(run_of(5000, 6000), 2, 2)
    lender.append_shared(shared, 2, 5)
    for count in (1, 3):
        with pytest.raises(InvalidFrame, match=f"as {count} messages"):
            borrower.append_shared(shared, count, 5)
    assert (borrower.end_offset, len(borrower), len(borrower._chunks)) == (10, 0, 0)
    shared.release()


def test_only_large_messages_for_several_logs_are_shared():
    assert SharedRun.of(bytes(SHARED_BYTES + 1), 1, 1) is None
    assert SharedRun.of(bytes(SHARED_BYTES), 1, 2) is None
    assert SharedRun.of(bytes(2 * SHARED_BYTES), 2, 2) is None
    assert SharedRun.of(bytes(SHARED_BYTES + 1), 1, 2) is not None
    assert (further_bytes(5000, 1, 2), further_bytes(5000, 2, 2)) == (HEADER_BYTES, 5000)
    runs = [Run(1, 1, 0, 0, [2, 3]), Run(4, 1, 100, 0, []), Run(5, 1, 5100, 0, [6, 7])]
    assert weight_of_runs(runs, 10_100) == 3 * 100 + 5000 + 5000 + 2 * HEADER_BYTES + 7 * MESSAGE_WEIGHT

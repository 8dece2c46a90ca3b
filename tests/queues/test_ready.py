"""Test what is ready, and its bytes, against a list of all messages; and the table of sizes by itself."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from journal.formats import frame
from journal.formats.frame_stamp import stamp
from journal.offset_set import OffsetSet
from txbroker.queues import body_sizes
from txbroker.queues.body_sizes import BodySizes, body_bytes, sizes_in
from txbroker.queues.level import range_of
from txbroker.queues.ready import Ready

SPAN = 40
SIZES = st.lists(st.integers(0, 9), max_size=SPAN)
RANGE = st.tuples(st.integers(0, SPAN), st.integers(0, SPAN)).map(sorted)
STEPS = st.lists(
    st.tuples(st.sampled_from(["put", "remove", "advance", "settled", "measured"]), RANGE, st.integers(1, 9)),
    max_size=30,
)


def table(base: int, *several: list[int]) -> BodySizes:
    found = BodySizes(base)
    for each in several:
        found.add(each)
    return found


@given(st.integers(0, SPAN), SIZES, SIZES, RANGE)
def test_sums_are_those_of_a_list(base, one, two, run):
    known = [0] * base + one + two
    found = table(base, one, two)
    assert found.end == len(known)
    assert found.sum(*run) == sum(known[slice(*run)])


@given(SIZES, RANGE, st.integers(0, 60))
def test_so_many_messages_have_so_many_bytes(sizes, run, wanted):
    first, end = run
    count = table(0, sizes).count_for(first, end, wanted)
    assert count <= end - first
    assert sum(sizes[first : first + count]) >= wanted or count == end - first
    assert not count or sum(sizes[first : first + count - 1]) < wanted


@given(
    st.integers(0, 3),
    st.lists(st.integers(0, 9), max_size=30),
    RANGE,
    st.integers(0, SPAN),
    st.integers(0, 9),
)
def test_blocks_change_nothing(base, sizes, run, below, gap):
    with_blocks, bits = [], body_sizes._BITS
    for number in (bits, 2):
        body_sizes._BITS, body_sizes._BLOCK, body_sizes._PLACE = number, 1 << number, (1 << number) - 1
        try:
            found = table(base, sizes)
            found.skip(found.end + gap)
            found.add(sizes)
            found.forget_below(below)
            first, end = max(run[0], below), max(run[1], below)
            with_blocks.append((found.sum(first, end), found.count_for(first, end, 20), found.end))
        finally:
            body_sizes._BITS, body_sizes._BLOCK, body_sizes._PLACE = bits, 1 << bits, (1 << bits) - 1
    assert with_blocks[0] == with_blocks[1]


def test_what_is_forgotten_takes_no_memory():
    found = table(0, [1] * (3 * body_sizes._BLOCK + 1))
    found.forget_below(2 * body_sizes._BLOCK + 5)
    assert list(found._blocks) == list(found._sums) == [2, 3]
    assert found.sum(2 * body_sizes._BLOCK + 5, found.end) == body_sizes._BLOCK - 4


def test_sizes_of_what_is_finished_are_forgotten():
    ready = Ready(0, OffsetSet(), BodySizes())
    ready.measured([1] * (2 * body_sizes._BLOCK + 5))
    ready.settled(OffsetSet(), OffsetSet(), 2 * body_sizes._BLOCK + 1)
    assert list(ready.sizes._blocks) == [2]
    assert ready.size == 4


@given(st.lists(st.tuples(st.binary(max_size=9), st.none() | st.binary(max_size=9)), max_size=9), RANGE)
def test_sizes_in_frames_are_those_of_their_bodies(messages, run):
    frames = bytearray(b"".join(frame.encode(body, 1, key, {"h": body}) for body, key in messages))
    assert body_bytes(frames) == sum(len(body) for body, _ in messages)
    assert stamp(memoryview(frames), 5, 1) == 5 + len(messages)
    first, end = run
    wanted = [len(body) for offset, (body, _) in enumerate(messages, 5) if first <= offset < end]
    assert list(sizes_in(bytes(frames), first, end)) == wanted


def test_lost_messages_have_no_size():
    lost = frame.encode_lost(3, 4, 100)
    assert list(sizes_in(lost, 4, 6)) == [0, 0]


@given(st.integers(0, 9), STEPS)
def test_the_bytes_of_what_is_ready_are_those_of_its_messages(frontier, steps):
    known = [7 * number % 5 + 1 for number in range(3 * SPAN)]
    ready, there = Ready(frontier, OffsetSet(), BodySizes()), set(range(frontier, 3 * SPAN))
    for step, (first, end), count in steps:
        run, before = set(range(first, end)), ready.frontier
        if step == "put":
            ready.put(first, end)
            there |= run
        elif step == "remove":
            ready.remove(range_of(first, end))
            there -= {each for each in run if each < before}
        elif step == "advance":
            ready.advance(end)
            there -= set(range(before, end))
        elif step == "settled":
            ready.settled(range_of(first, end), OffsetSet(), first)
            there -= {each for each in there if each < first or (each < before and each in run)}
            there -= set(range(before, end)) if first <= before else set()
        else:
            begin = ready.sizes.end
            ready.measured(known[begin : begin + count])
        found = {each for each in range(3 * SPAN) if each >= ready.frontier or each in ready.returned}
        assert found == there
        assert ready.size == sum(ready.sizes.sum(each, each + 1) for each in there)

import contextlib
from itertools import accumulate, pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from journal.buffers import PooledAllocator
from journal.constants import INDEX_INTERVAL_BYTES, MIB
from journal.formats.frame import encode, stamp, walk
from journal.formats.index import (
    LONG_APPEND,
    MAX_GAP,
    OFFSET_ENTRY,
    TIME_ENTRY,
    DamagedIndex,
    IndexEntries,
    above_offset,
    anchors,
    around_time,
    floor_offset,
    sound_entries,
)
from journal.formats.segment_header import SEGMENT_HEADER_BYTES, seed_of
from journal.log.tail import Tail

SALT = seed_of(0x1122334455667788)
START = SEGMENT_HEADER_BYTES


def entries(*places):
    """Both indexes; the running checksum at a position is said to be its number, and 7."""
    made = IndexEntries()
    for offset, position, time in places:
        made.add(offset, position, time)
    return made.packed(SALT, [position + 7 for _, position, _ in made.places])


OFFSETS, TIMES = entries((1_100, 20_000, 5), (1_200, 40_000, 5), (1_300, 60_000, 9))


def test_an_entry_is_taken_for_every_interval_only():
    due = START + INDEX_INTERVAL_BYTES
    offsets, times = entries((1, due - 1, 0), (2, due, 0), (3, due + 1, 0))
    assert [each[:3] for each in OFFSET_ENTRY.iter_unpack(offsets)] == [(2, due, due + 7)]
    assert [offset for _, offset, _ in TIME_ENTRY.iter_unpack(times)] == [2]


@pytest.mark.parametrize(
    ("offset", "floor", "above"),
    [
        (1_000, None, (1_100, 20_000)),
        (1_099, None, (1_100, 20_000)),
        (1_100, (1_100, 20_000), (1_200, 40_000)),
        (1_299, (1_200, 40_000), (1_300, 60_000)),
        (9_999, (1_300, 60_000), None),
    ],
)
def test_the_neighbours_of_an_offset_are_found(offset, floor, above):
    assert floor_offset(OFFSETS, SALT, offset) == floor
    assert above_offset(OFFSETS, SALT, offset) == above


def test_a_time_leads_to_the_entries_around_it():
    first, second, third = (1_100, 20_000), (1_200, 40_000), (1_300, 60_000)
    for times, around in (((0, 5), (None, first)), ((6, 9), (second, third)), ((10, 99), (third, None))):
        for time in times:
            assert around_time(OFFSETS, TIMES, SALT, time) == around


def test_a_time_index_of_another_length_or_other_offsets_is_not_believed():
    _, other = entries((1_100, 20_000, 5), (1_201, 40_000, 5), (1_300, 60_000, 9))
    for times in (TIMES[: TIME_ENTRY.size * 2], b"", other, bytes(len(TIMES))):
        with pytest.raises(DamagedIndex):
            around_time(OFFSETS, times, SALT, 7)


def test_an_empty_index_knows_nothing():
    assert floor_offset(b"", SALT, 5) is above_offset(b"", SALT, 5) is None
    assert around_time(b"", b"", SALT, 5) == (None, None)


def test_a_torn_last_entry_is_not_looked_at():
    assert floor_offset(OFFSETS[:-1], SALT, 9_999) == (1_200, 40_000)
    assert around_time(OFFSETS[:-1], TIMES[:-1], SALT, 99) == ((1_200, 40_000), None)


@pytest.mark.parametrize("position", range(OFFSET_ENTRY.size))
def test_no_changed_byte_of_an_offset_entry_is_believed(position):
    data = bytearray(OFFSETS[: OFFSET_ENTRY.size])
    data[position] ^= 0x01
    assert sound_entries(bytes(data), TIMES, SALT, 2_000, 80_000) == 0
    with contextlib.suppress(DamagedIndex):
        assert floor_offset(bytes(data), SALT, 1_101) is None


def test_the_index_of_another_segment_or_partition_is_noise():
    for other in (seed_of(0x1122334455667789), seed_of(0)):
        assert sound_entries(OFFSETS, TIMES, other, 2_000, 80_000) == 0
        with pytest.raises(DamagedIndex):
            floor_offset(OFFSETS, other, 1_150)
        with pytest.raises(DamagedIndex):
            around_time(OFFSETS, TIMES, other, 50)


def test_zero_bytes_are_no_entries():
    zeros = bytes(3 * OFFSET_ENTRY.size)
    assert sound_entries(zeros, zeros, SALT, 2_000, 80_000) == 0
    with pytest.raises(DamagedIndex):
        floor_offset(zeros, SALT, 5)


def test_entries_beyond_a_cut_are_not_counted():
    assert sound_entries(OFFSETS, TIMES, SALT, 2_000, 80_000) == 3
    assert sound_entries(OFFSETS, TIMES, SALT, 2_000, 60_000) == 2
    assert sound_entries(OFFSETS, TIMES, SALT, 1_200, 80_000) == 1


def test_entries_count_only_where_both_indexes_agree():
    _, other = entries((1_100, 20_000, 5), (1_201, 40_000, 5), (1_300, 60_000, 9))
    assert sound_entries(OFFSETS, other, SALT, 2_000, 80_000) == 1
    assert sound_entries(OFFSETS, TIMES[: TIME_ENTRY.size * 2], SALT, 2_000, 80_000) == 2


def test_entries_that_do_not_ascend_are_not_counted():
    size = OFFSET_ENTRY.size
    swapped = OFFSETS[size : 2 * size] + OFFSETS[:size], TIMES[20:40] + TIMES[:20]
    assert sound_entries(*swapped, SALT, 2_000, 80_000) == 1


def noted_by(tail):
    return {
        start + 7_000: [(offset, position + 7_000) for offset, position in places]
        for start, places in tail.inside.items()
    }


def appends(sizes, shift, noted):
    """Indexes and bytes of appends, each of frames of a kilobyte or so (or one larger), with places in long ones."""
    runs, ends, offset = [], [], 50
    tail = Tail(PooledAllocator(8 * MIB), base_offset=offset)
    for size in sizes:
        frames = bytearray(
            b"".join(encode(b"x" * 1_000, 1) for _ in range(size // 1_036)) or encode(b"x" * size, 1)
        )
        before, offset = offset, stamp(memoryview(frames), offset, 1)
        tail.append(frames, offset - before, 1)
        runs.append(bytes(frames))
        ends.append(offset)
    positions = [at + 7_000 for at in accumulate(map(len, runs))]
    joined = memoryview(b"".join(runs))
    made = IndexEntries(last_position=shift)
    made.add_appends(
        ends,
        positions,
        range(len(runs)),
        (50, 7_000),
        shift - 7_000,
        lambda start, end: joined[start - 7_000 : end - 7_000],
        noted_by(tail) if noted else {},
    )
    return made.packed(SALT, range(len(made.places))), bytes(joined)


@given(
    st.lists(
        st.sampled_from((40, 900, 5_000, 20_000, LONG_APPEND, LONG_APPEND + 5_000, 120_000)), max_size=20
    ),
    st.sampled_from((START, 500)),
    st.booleans(),
)
def test_no_frame_begins_a_gap_or_more_after_the_entry_before_it(sizes, shift, noted):
    (offsets, times), data = appends(sizes, shift, noted)
    places = {offset: position + shift for position, _, offset, _ in walk(data)}
    found = [(offset, position) for offset, position, _, _ in OFFSET_ENTRY.iter_unpack(offsets)]
    assert all(places[offset] == position for offset, position in found)
    for offset, position in places.items():
        entry = floor_offset(offsets, SALT, offset)
        assert position - (entry[1] if entry else shift) < MAX_GAP
    assert all(b[1] - a[1] >= INDEX_INTERVAL_BYTES for a, b in pairwise(found))
    assert sound_entries(offsets, times, SALT, 1 << 60, 1 << 60) == len(found)


def test_sound_entries_around_damaged_ones_are_anchors():
    size = OFFSET_ENTRY.size
    damaged = bytearray(OFFSETS)
    damaged[size + 3] ^= 0x10
    every = [(1_100, 20_000, 20_007), (1_200, 40_000, 40_007), (1_300, 60_000, 60_007)]
    assert anchors(OFFSETS, SALT, 2_000, 80_000) == every
    assert anchors(bytes(damaged), SALT, 2_000, 80_000) == [every[0], every[2]]
    assert anchors(OFFSETS[: 2 * size + 5], SALT, 2_000, 80_000) == every[:2]
    assert anchors(OFFSETS, SALT, 1_300, 60_000) == every[:2], (
        "what lies behind the end is no place of the segment"
    )
    assert anchors(OFFSETS, SALT + 1, 2_000, 80_000) == []
    assert anchors(OFFSETS[size:] + OFFSETS[:size], SALT, 2_000, 80_000) == every[1:]

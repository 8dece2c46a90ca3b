"""The bytes of sets of offsets: one form for each set, the smaller of two, and no other is read."""

import time
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from journal.errors import InvalidFrame
from journal.formats.offset_set_bytes import MAX_SPAN, count_walked_runs, decode_offsets, encode_offsets
from journal.offset_set import OffsetSet

RUNS = st.lists(st.tuples(st.integers(0, 3000), st.integers(1, 3000)), max_size=20)
BASES = st.one_of(st.just(0), st.integers(0, 1 << 40))


def of_runs(base, runs):
    found, end = OffsetSet(), base
    for gap, length in runs:
        found.add_range(end + gap, end + gap + length)
        end += gap + length
    return found


@given(BASES, RUNS)
def test_a_set_is_read_back_as_it_was(base, runs):
    offsets = of_runs(base, runs)
    assert decode_offsets(encode_offsets(offsets, base), base) == offsets


@given(BASES, st.integers(1, 1 << 2000))
def test_a_dense_set_takes_no_more_than_its_bitmap(base, bits):
    data = encode_offsets(OffsetSet.from_bits(base, bits), base)
    assert decode_offsets(data, base).bits(base) == bits
    assert len(data) <= 1 + (bits.bit_length() + 7) // 8


@given(st.binary(max_size=40))
def test_whatever_is_read_is_the_only_form_of_what_it_says(data):
    for start in (b"", b"\x01", b"\x02"):
        try:
            offsets = decode_offsets(start + data, 7)
        except InvalidFrame:
            continue
        assert encode_offsets(offsets, 7) == start + data


def test_the_bytes_are_as_the_file_format_says():
    ten_in_a_row, every_second = OffsetSet.from_bits(300, (1 << 10) - 1), OffsetSet.from_bits(100, 0b10101)
    assert encode_offsets(OffsetSet(), 5) == b""
    assert encode_offsets(ten_in_a_row, 300 - 130) == b"\x01\x82\x01\x0a"
    assert encode_offsets(every_second, 100) == b"\x02\x15"
    assert encode_offsets(every_second, 99) == b"\x02\x2a"


def test_the_smaller_form_is_chosen_and_a_bitmap_of_two_equal_ones():
    assert encode_offsets(OffsetSet.from_bits(0, 1 << 20), 0) == b"\x01\x14\x01"
    assert encode_offsets(OffsetSet.from_bits(0, 1 << 8), 0) == b"\x02\x00\x01"
    assert encode_offsets(OffsetSet.from_bits(0, 1), 0) == b"\x02\x01"


def test_offsets_below_the_base_or_too_far_above_it_are_not_encoded():
    with pytest.raises(ValueError, match="below 8"):
        encode_offsets(OffsetSet.from_bits(7, 1), 8)
    assert decode_offsets(encode_offsets(OffsetSet.from_bits(MAX_SPAN, 1), 1), 1).first == MAX_SPAN
    with pytest.raises(ValueError, match="more than 1048576 above 0"):
        encode_offsets(OffsetSet.from_bits(MAX_SPAN, 1), 0)


@pytest.mark.parametrize(
    ("data", "why"),
    {
        "no kind": (b"\x03\x01", "of kind 3"),
        "no bits": (b"\x02\x00", "only form"),
        "a bitmap of nothing": (b"\x02", "only form"),
        "a bitmap with a byte too many": (b"\x02\x05\x00", "only form"),
        "a bitmap where runs are smaller": (b"\x02\xff\xff\xff\xff", "only form"),
        "runs where a bitmap is as small": (b"\x01\x00\x01", "only form"),
        "runs of nothing": (b"\x01", "only form"),
        "two runs without a gap": (b"\x01\x80\x20\x05\x00\x05", "only form"),
        "a run of no length": (b"\x01\x80\x20\x00", "only form"),
        "a number in more bytes than it needs": (b"\x01\xa0\x9f\x00\x01", "only form"),
        "a gap without its run": (b"\x01\x80\x20\x05\x07", "cut off"),
        "a cut number": (b"\x01\x80\x20\x85", "cut off"),
        "a number without an end": (b"\x01" + b"\xff" * 9 + b"\x01", "too large"),
        "an offset too far above": (b"\x01\x00\x81\x80\x40", "more than 1048576 above the base"),
        "a bitmap that is too long": (b"\x02" + b"\xaa" * (MAX_SPAN // 8 + 1), "too long"),
    }.values(),
)
def test_other_bytes_are_refused(data, why):
    with pytest.raises(InvalidFrame, match=why):
        decode_offsets(data, 0)


@given(BASES, RUNS)
def test_the_runs_that_are_walked_are_counted_without_reading_the_set(base, runs):
    offsets = of_runs(base, runs)
    data = encode_offsets(offsets, base)
    sparse = 2 * offsets.count_runs() < len(data) - 1 or data[:1] == b"\x01"
    assert count_walked_runs(data) == (offsets.count_runs() if sparse else 0)


def test_runs_are_counted_of_forged_sets_too():
    assert count_walked_runs(b"\x02" + b"\x55" * 1000) == 0
    assert count_walked_runs(b"\x02" + b"\x01\x00\x00" * 1000) == 1000
    assert count_walked_runs(b"\x01" + b"\x81\x01\x07" * 1000) == 1000


def test_no_bytes_take_long_or_much_memory():
    """The worst of each kind, and forged ones: measured 50 ms at most, allowed ten times that."""
    worst = [
        b"\x01" + b"\x01\x01" * 65_000,
        b"\x01\xff\xff\x3f" + b"\x00" * 130_000,
        b"\x02" + b"\x55" * (MAX_SPAN // 8),
        encode_offsets(OffsetSet.from_bits(0, int("1000" * (MAX_SPAN // 4), 2)), 0),
    ]
    for data in worst:
        began = time.process_time()
        with suppress(InvalidFrame):
            decode_offsets(data, 1 << 62)
        assert time.process_time() - began < 0.5
